"""Whatever is published, taken and closed in whatever order: received is published minus lost, in order."""

from __future__ import annotations

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.broker.broker import Broker
from engine.event import Event
from tests.broker.events import RUN, completed, delta, drain, saved, words

Step = tuple[str, int]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.just(0)),
        st.tuples(st.just("must_deliver"), st.just(0)),
        st.tuples(st.just("must_deliver_cancelled"), st.just(0)),
        st.tuples(st.just("take"), st.integers(0, 2)),
        st.tuples(st.just("close"), st.integers(0, 2)),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(steps=STEPS, buffer_max=st.integers(1, 4))
def test_received_is_published_minus_lost_in_order(steps: list[Step], buffer_max: int) -> None:
    anyio.run(check_steps, steps, buffer_max, backend="asyncio")


@settings(max_examples=50, deadline=None)
@given(steps=STEPS, buffer_max=st.integers(1, 4))
def test_received_is_published_minus_lost_in_order_on_trio(steps: list[Step], buffer_max: int) -> None:
    anyio.run(check_steps, steps, buffer_max, backend="trio")


async def check_steps(steps: list[Step], buffer_max: int) -> None:
    """Three listeners of one run; all events are numbered, and each listener's account must add up."""
    broker = Broker(buffer_max=buffer_max, deliver_seconds=0.0001)
    listeners = [broker.subscribe(run_id=RUN), broker.subscribe(), broker.subscribe(session_id="ses-1")]
    received: list[list[Event]] = [[], [], []]
    published_until: list[int | None] = [None, None, None]
    published = 0
    for step, index in steps:
        match step:
            case "publish":
                broker.publish(delta(str(published)))
                published += 1
            case "must_deliver":
                await broker.publish_must_deliver(saved(str(published)))
                published += 1
            case "must_deliver_cancelled":
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    await broker.publish_must_deliver(saved(str(published)))
                published += 1
            case "take":
                if (event := listeners[index].next_nowait()) is not None:
                    received[index].append(event)
            case _:
                listeners[index].close()
                if published_until[index] is None:
                    published_until[index] = published
    broker.publish(completed())
    for listener, events, until in zip(listeners, received, published_until, strict=True):
        events.extend(drain(listener))
        heard = words(events)
        if until is None:
            assert len(heard) + listener.lagged == published + 1
        else:
            assert len(heard) + listener.lagged == until
        if listener is listeners[0] and until is None:
            assert heard.pop() == "complete"  # its slot is never taken
        numbers = [int(word) for word in heard if word != "complete"]
        assert numbers == sorted(set(numbers))
    lost = broker.counts.dropped + broker.counts.undelivered
    assert lost == sum(listener.lagged for listener in listeners)
    assert broker.counts.delivered == sum(len(events) for events in received)


@settings(max_examples=50, deadline=None)
@given(counts=st.lists(st.integers(0, 30), min_size=1, max_size=4), buffer_max=st.integers(1, 3))
def test_concurrent_must_deliver_publishers_lose_nothing_to_a_reader_that_reads(
    counts: list[int], buffer_max: int
) -> None:
    for backend in ("asyncio", "trio"):
        anyio.run(check_concurrent, counts, buffer_max, backend=backend)


async def check_concurrent(counts: list[int], buffer_max: int) -> None:
    """Each publisher's events arrive all, and in its own order."""
    broker = Broker(buffer_max=buffer_max, deliver_seconds=5)
    heard: list[str] = []

    async def publish(publisher: int, count: int) -> None:
        for number in range(count):
            await broker.publish_must_deliver(saved(f"{publisher}:{number}"))

    async def read() -> None:
        async for event in subscription:
            heard.extend(words([event]))
            await anyio.lowlevel.checkpoint()

    with broker.subscribe() as subscription, anyio.fail_after(5):
        async with anyio.create_task_group() as readers:
            readers.start_soon(read)
            async with anyio.create_task_group() as publishers:
                for publisher, count in enumerate(counts):
                    publishers.start_soon(publish, publisher, count)
            broker.shutdown()
    for publisher, count in enumerate(counts):
        mine = [word for word in heard if word.startswith(f"{publisher}:")]
        assert mine == [f"{publisher}:{number}" for number in range(count)]
