"""Events a second through the broker: 1, 10 and 100 subscribers that read meanwhile, and what a stalled one costs."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path

import anyio
import anyio.lowlevel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from engine.broker.broker import Broker
from engine.event import Notice, TextDelta
from engine.limits import DELIVER_SECONDS

BREATH = 256
"""Events between two turns of the loop: the readers run then, as they do behind a model's network reads."""


async def measure_fan_out(subscribers: int, events: int, backend: str) -> None:
    """Publish `events` deltas to readers that run concurrently; all of them must arrive."""
    broker = Broker()
    read = 0

    async def count_events() -> None:
        nonlocal read
        async for _ in subscription:
            read += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(subscribers):
            subscription = broker.subscribe(session_id="ses-1")
            tasks.start_soon(count_events)
            await anyio.wait_all_tasks_blocked()  # each reader has bound its own subscription
        delta = TextDelta("run-1", "ses-1", "word")
        started = time.perf_counter()
        for number in range(events):
            broker.publish(delta)
            if number % BREATH == 0:
                await anyio.lowlevel.checkpoint()
        broker.shutdown()
    seconds = time.perf_counter() - started
    lost = broker.counts.dropped
    print(
        f"{backend:8} {subscribers:4} subscribers: {events / seconds:10,.0f} events/s published, "
        f"{read / seconds:12,.0f}/s read, {lost} lost"
    )


async def measure_stalled(events: int, backend: str) -> None:
    """Must-deliver beside one subscriber that never reads: each costs the bound, the other subscriber nothing."""
    broker = Broker(buffer_max=1)
    broker.subscribe(session_id="ses-1")
    notice = Notice("run-1", "ses-1", "fill")
    broker.publish(notice)
    waits: list[float] = []

    async def read() -> None:
        async for _ in subscription:
            waits.append(time.perf_counter() - published)  # noqa: PERF401 - each at its own moment

    with broker.subscribe(session_id="ses-1") as subscription:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            started = time.perf_counter()
            for _ in range(events):
                published = time.perf_counter()
                await broker.publish_must_deliver(notice)
            seconds = time.perf_counter() - started
            broker.shutdown()
    print(
        f"{backend:8} must-deliver, one of two stalled: {1000 * seconds / events:.1f} ms each for the publisher (bound "
        f"{1000 * DELIVER_SECONDS:.0f} ms), {1000 * max(waits):.2f} ms at most for the one that reads, "
        f"{broker.counts.undelivered} lost"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="events a second through the broker")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--backend", choices=["asyncio", "trio"], default="asyncio")
    options = parser.parse_args()
    logging.disable()  # each loss is logged, and here they are the point
    for subscribers in (1, 10, 100):
        anyio.run(measure_fan_out, subscribers, options.events // subscribers, options.backend, backend=options.backend)
    anyio.run(measure_stalled, 20, options.backend, backend=options.backend)


if __name__ == "__main__":
    main()
