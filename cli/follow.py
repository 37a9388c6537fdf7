"""Follow a run to its end: live events on the way, the completion from the one who knows it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import anyio

from engine.event import Event, RunAccepted, RunCompleted
from engine.run import RunComplete

if TYPE_CHECKING:
    from engine.broker.broker import Subscription
    from engine.client import Client


async def follow(
    client: Client,
    subscription: Subscription,
    run_id: str,
    on_event: Callable[[Event], Awaitable[None]],
) -> RunComplete:
    """Hand each live event to `on_event`, in order and never cut short, and return the run's completion.

    The caller subscribed before it submitted. The first and the last event are left out: the caller has both from
    better sources. A subscription that lags or ends early costs events, never the completion.
    """
    found: list[RunComplete] = []

    async def wait_completion() -> None:
        found.append(await client.wait(run_id))
        subscription.close()  # ends the loop below once it has read what was published before

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait_completion, name="wait for completion")
        async for event in subscription:
            if not isinstance(event, (RunAccepted, RunCompleted)):
                await on_event(event)
    return found[0]
