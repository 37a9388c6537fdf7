"""Waiting for other processes: on SQLite by looking at the store's change stamp, which costs a `stat` (design, 7)."""

from __future__ import annotations

import anyio

from engine.store.base import Store

POLL_SECONDS = 0.1
"""How often the change stamp is looked at: a third of what a cancel from another process may take."""

LOOK_SECONDS = 2.0
"""After how long the store is asked itself, whatever the stamp says: a change can be missed, never for longer."""


async def wait_change(store: Store, stamp: object) -> None:
    """Wait until somebody has committed something since `stamp` was read, or for a while.

    Read the stamp before the store: what is committed in between is then a change.
    """
    with anyio.move_on_after(LOOK_SECONDS):
        while store.change_stamp() == stamp:  # noqa: ASYNC110 - another process cannot set our event
            await anyio.sleep(POLL_SECONDS)
