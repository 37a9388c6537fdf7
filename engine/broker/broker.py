"""In-process publish and subscribe over bounded buffers (design, 5).

`publish` never waits: a subscriber that is full loses that event, and it is counted. `publish_must_deliver`
tries at once, then gives each full subscriber up to a bound, all at the same time, so that a slow one costs
the others nothing beyond that bound. A subscription to one run keeps a slot for that run's completion,
which deltas cannot take.

All methods but two are plain `def` and run on the event loop's thread, so that nothing can come between
looking and acting; the buffers need no lock. There is no unbounded buffer and no task: what is full says
so.

An event that waits for room stands in line at its subscriber, and whoever takes an event out puts the first
of the line in, in the same breath: a delta published just then cannot take the room, and a wake-up that
comes late (a busy loop) cannot lose an event for which there was room in time.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from enum import Enum
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


class _Standing(Enum):
    """Where an event that found no room stands: `GONE` when its listener left, which is nobody's loss."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    LOST = "lost"
    GONE = "gone"


class _LateEvent:
    """An event in line for room in one subscription."""

    __slots__ = ("event", "settled", "standing")

    def __init__(self, event: Event) -> None:
        self.event = event
        self.standing = _Standing.WAITING
        self.settled = anyio.Event()

    def settle(self, standing: _Standing) -> None:
        self.standing = standing
        self.settled.set()


class Subscription:
    """One listener's bounded buffer; an async iterator that ends when the subscription is closed.

    What was buffered before the end can still be read. `lagged` counts the events this listener lost: after a
    gap it reads the store (design, 4). A reader that is cancelled while it waits loses nothing.
    """

    def __init__(self, broker: Broker, run_id: str | None, session_id: str | None, buffer_max: int) -> None:
        self._broker = broker
        self._run_id = run_id
        self._session_id = session_id
        self._buffer_max = buffer_max
        self._events: deque[Event] = deque()
        self._line: deque[_LateEvent] = deque()  # not empty only while the buffer is full
        self._arrival: anyio.Event | None = None
        self._is_closed = False
        self.lagged = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        self._settle_line(_Standing.GONE)
        self._wake_readers()

    def wants(self, event: Event) -> bool:
        """Whether the event is of this subscription's run or session."""
        if self._run_id is not None:
            return event.run_id == self._run_id
        return self._session_id is None or event.session_id == self._session_id

    def offer(self, event: Event) -> bool:
        """Buffer the event if there is room; the completion of the run subscribed to always has its slot."""
        assert not self._is_closed, "the broker forgets a subscription in the moment that it closes"
        has_slot = self._run_id is not None and isinstance(event, RunCompleted)
        if len(self._events) >= self._buffer_max and not has_slot:
            return False
        if has_slot:
            self._settle_line(_Standing.LOST)  # no event of a run may follow its completion
        self._put(event)
        return True

    def stand_in_line(self, event: Event) -> _LateEvent:
        """Put an event that found no room in line for it; `leave_line` when the wait is over."""
        late = _LateEvent(event)
        self._line.append(late)
        return late

    def leave_line(self, late: _LateEvent) -> None:
        """Give up on an event in line; harmless when it has been settled."""
        if late.standing is _Standing.WAITING:
            self._line.remove(late)
            late.settle(_Standing.LOST)

    def _put(self, event: Event) -> None:
        self._events.append(event)
        self._wake_readers()

    def _take(self) -> Event:
        event = self._events.popleft()
        if self._line and len(self._events) < self._buffer_max:
            late = self._line.popleft()
            self._put(late.event)
            late.settle(_Standing.DELIVERED)
        return event

    def _settle_line(self, standing: _Standing) -> None:
        while self._line:
            self._line.popleft().settle(standing)

    def _wake_readers(self) -> None:
        if self._arrival is not None:
            self._arrival.set()
            self._arrival = None


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

    def is_heard(self, run_id: str) -> bool:
        """Whether somebody listens to this run alone."""
        return run_id in self._by_run

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
        """Give the event to all, waiting up to the bound for those who are full; losses are counted, logged.

        Whoever had room has it before the first wait, also when the caller's scope is cancelled.
        """
        full = self._offer(event)
        if not full:
            return
        late_events = [(subscription, subscription.stand_in_line(event)) for subscription in full]
        try:
            with anyio.move_on_after(self._deliver_seconds):  # one bound for all: they wait at the same time
                for _, late in late_events:
                    await late.settled.wait()
        finally:
            for subscription, late in late_events:
                subscription.leave_line(late)
                self._count_late(subscription, late)

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

    def _count_late(self, subscription: Subscription, late: _LateEvent) -> None:
        if late.standing is _Standing.DELIVERED:
            self.counts.delivered += 1
        elif late.standing is _Standing.LOST:
            subscription.lagged += 1
            self.counts.undelivered += 1
            logger.error("a subscriber stayed full (bound %s s) and lost %s", self._deliver_seconds, late.event.type)
