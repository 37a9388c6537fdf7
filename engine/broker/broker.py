"""In-process publish and subscribe over bounded buffers (design, 5).

`publish` never waits: a subscriber that is full loses that event, and it is counted. `publish_must_deliver` tries at
once, then gives each full subscriber up to a bound, all at the same time, so that a slow one costs the others nothing
beyond that bound. A subscription to one run keeps a slot for that run's completion, which deltas cannot take.

All methods but one are plain `def` and run on the event loop's thread, so that nothing can come between looking and
acting; the buffers need no lock. There is no unbounded buffer and no task: what is full says so.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import anyio

from engine.event import Event, RunCompleted
from engine.limits import BUFFER_MAX, DELIVER_SECONDS

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class BrokerCounts:
    """Events since the start: accepted by a buffer, lost by `publish`, lost by `publish_must_deliver`."""

    published: int = 0
    delivered: int = 0
    dropped: int = 0
    undelivered: int = 0
    after_shutdown: int = 0


class Subscription:
    """One listener's bounded buffer; an async iterator that ends when the subscription is closed.

    What was buffered before the end can still be read. `lagged` counts the events this listener lost: after a gap it
    reads the store (design, 4).
    """

    def __init__(self, broker: Broker, run_id: str | None, session_id: str | None, buffer_max: int) -> None:
        self._broker = broker
        self._run_id = run_id
        self._session_id = session_id
        self._buffer_max = buffer_max
        self._events: deque[Event] = deque()
        self._arrival: anyio.Event | None = None
        self._room: anyio.Event | None = None
        self._is_closed = False
        self.lagged = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._is_closed:
                raise StopAsyncIteration
            if self._arrival is None:
                self._arrival = anyio.Event()
            await self._arrival.wait()
        return self._take()

    def next_nowait(self) -> Event | None:
        """The next event if one is buffered."""
        return self._take() if self._events else None

    def close(self) -> None:
        """Stop listening; what is buffered stays readable."""
        self._is_closed = True
        self._broker.forget(self)
        self._wake()

    def wants(self, event: Event) -> bool:
        """Whether the event is of this subscription's run or session."""
        if self._run_id is not None:
            return event.run_id == self._run_id
        return self._session_id is None or event.session_id == self._session_id

    def offer(self, event: Event) -> bool:
        """Buffer the event if there is room; the completion of the run subscribed to always has its slot."""
        if self._is_closed:
            return True
        if len(self._events) >= self._buffer_max and not (self._run_id is not None and isinstance(event, RunCompleted)):
            return False
        self._events.append(event)
        if self._arrival is not None:
            self._arrival.set()
            self._arrival = None
        return True

    async def wait_room(self) -> None:
        """Wait until the buffer has room, or the listener has gone."""
        while len(self._events) >= self._buffer_max and not self._is_closed:
            if self._room is None:
                self._room = anyio.Event()
            await self._room.wait()

    def _take(self) -> Event:
        event = self._events.popleft()
        if self._room is not None:
            self._room.set()
            self._room = None
        return event

    def _wake(self) -> None:
        for waiting in (self._arrival, self._room):
            if waiting is not None:
                waiting.set()
        self._arrival = self._room = None


class Broker:
    """The fan-out of one engine."""

    def __init__(self, *, buffer_max: int = BUFFER_MAX, deliver_seconds: float = DELIVER_SECONDS) -> None:
        self._buffer_max = buffer_max
        self._deliver_seconds = deliver_seconds
        # By what they listen to, so that a publish costs what its own listeners cost, not all there are.
        self._by_run: dict[str, dict[Subscription, None]] = {}
        self._others: dict[Subscription, None] = {}
        self._is_shut_down = False
        self.counts = BrokerCounts()

    def subscribe(
        self, *, run_id: str | None = None, session_id: str | None = None, buffer_max: int | None = None
    ) -> Subscription:
        """Listen from now on; after shutdown, to a stream that has ended. Use it in a `with`."""
        subscription = Subscription(self, run_id, session_id, buffer_max or self._buffer_max)
        if self._is_shut_down:
            subscription.close()
        elif run_id is not None:
            self._by_run.setdefault(run_id, {})[subscription] = None
        else:
            self._others[subscription] = None
        return subscription

    def forget(self, subscription: Subscription) -> None:
        """Take a subscription out; harmless when it is out."""
        self._others.pop(subscription, None)
        run_id = subscription._run_id  # noqa: SLF001 - the two classes are one mechanism
        if run_id is not None and run_id in self._by_run:
            self._by_run[run_id].pop(subscription, None)
            if not self._by_run[run_id]:
                del self._by_run[run_id]

    def publish(self, event: Event) -> None:
        """Give the event to whoever has room; the rest lose it, counted."""
        for subscription in self._offer(event):
            subscription.lagged += 1
            self.counts.dropped += 1

    async def publish_must_deliver(self, event: Event) -> None:
        """Give the event to all, waiting up to the bound for those who are full; then it is counted and logged.

        Whoever had room has it before the first wait, also when the caller's scope is cancelled.
        """
        full = self._offer(event)
        if not full:
            return
        late = dict.fromkeys(full)
        try:
            async with anyio.create_task_group() as tasks:
                for subscription in full:
                    tasks.start_soon(self._deliver_late, subscription, event, late, name="deliver late")
        finally:
            for subscription in late:
                subscription.lagged += 1
                self.counts.undelivered += 1
                logger.error("a subscriber was full for %s s and lost %s", self._deliver_seconds, event.type)

    def shutdown(self) -> None:
        """End every subscription; what is buffered stays readable. Safe to call twice."""
        self._is_shut_down = True
        for subscription in [*self._others, *(each for group in self._by_run.values() for each in group)]:
            subscription.close()

    def _offer(self, event: Event) -> list[Subscription]:
        """Offer to every interested subscription; returns those that were full."""
        if self._is_shut_down:
            self.counts.after_shutdown += 1
            return []
        self.counts.published += 1
        full = []
        for group in (self._others, self._by_run.get(event.run_id or "", {})):
            for subscription in group:
                if not subscription.wants(event):
                    continue
                if subscription.offer(event):
                    self.counts.delivered += 1
                else:
                    full.append(subscription)
        return full

    async def _deliver_late(self, subscription: Subscription, event: Event, late: dict[Subscription, None]) -> None:
        with anyio.move_on_after(self._deliver_seconds):
            await subscription.wait_room()
            if subscription.offer(event):
                self.counts.delivered += 1
                del late[subscription]
