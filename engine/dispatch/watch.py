"""Hearing other processes: cancels asked for elsewhere, and the lease that says that we live (design, 7).

On SQLite there is no notification between processes: the store's change stamp is looked at ten times a second while
this process owns a run, which costs a `stat`, and the store is asked only when the stamp has changed, or every few
seconds in case a change was missed.
"""

from __future__ import annotations

import logging

import anyio

from engine.dispatch.changes import LOOK_SECONDS, POLL_SECONDS
from engine.dispatch.dispatcher import Dispatcher
from engine.errors import StoreError
from engine.run import StopReason
from engine.store.base import Store

logger = logging.getLogger(__name__)

RENEW_SECONDS = 10.0
"""How often the lease is renewed: a third of its length, so that one missed renewal loses nothing."""


async def watch_store(store: Store, dispatcher: Dispatcher, owner: str) -> None:
    """Carry out what other processes ask for, for as long as the engine is open."""
    while True:
        await dispatcher.wait_live()
        await _watch_while_live(store, dispatcher, owner)


async def _watch_while_live(store: Store, dispatcher: Dispatcher, owner: str) -> None:
    stamp = store.change_stamp()
    looked = renewed = anyio.current_time()
    while dispatcher.is_live():
        await anyio.sleep(POLL_SECONDS)
        seen, now = store.change_stamp(), anyio.current_time()
        try:
            if seen != stamp or now - looked >= LOOK_SECONDS:
                stamp, looked = seen, now
                _cancel(dispatcher, await store.cancelled_runs(owner))
            if now - renewed >= RENEW_SECONDS:
                renewed = now
                await store.renew_lease(owner)
        except StoreError as error:
            # The runs' own saves will tell whoever waits; this only makes us deaf for a while.
            logger.warning("cannot hear other processes: %s", error)


def _cancel(dispatcher: Dispatcher, accept_seqs: list[int]) -> None:
    for accept_seq in accept_seqs:
        run = dispatcher.live_by_seq(accept_seq)
        if run is not None and run.stop.reason is None:
            dispatcher.cancel_run(run, StopReason.CANCEL)
