"""How subscriptions end: closed by their owner, or all at once by a shutdown (design, 5; behaviours, F8)."""

from __future__ import annotations

import anyio
import pytest

from engine.broker.broker import Broker, Subscription
from tests.broker.events import RUN, completed, delta, drain, saved, words

pytestmark = pytest.mark.anyio


async def test_shutdown_ends_every_kind_of_subscription_and_wakes_its_reader() -> None:
    broker = Broker()
    subscriptions = [
        broker.subscribe(),
        broker.subscribe(run_id=RUN),
        broker.subscribe(run_id=RUN),
        broker.subscribe(session_id="ses-1"),
    ]
    ended: list[Subscription] = []

    async def read(subscription: Subscription) -> None:
        async for event in subscription:
            pytest.fail(f"nothing was published, heard {event}")
        ended.append(subscription)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for subscription in subscriptions:
                tasks.start_soon(read, subscription)
            await anyio.wait_all_tasks_blocked()
            broker.shutdown()
    assert set(ended) == set(subscriptions)


async def test_what_was_buffered_at_shutdown_stays_readable_then_the_stream_ends() -> None:
    broker = Broker()
    subscription = broker.subscribe(run_id=RUN)
    broker.publish(delta("a"))
    broker.publish(completed())
    broker.shutdown()
    with anyio.fail_after(5):
        assert words([event async for event in subscription]) == ["a", "complete"]


async def test_shutdown_frees_a_publisher_that_waits() -> None:
    broker = Broker(buffer_max=1, deliver_seconds=60)
    broker.subscribe()
    broker.publish(delta("a"))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(broker.publish_must_deliver, saved("b"))
            await anyio.wait_all_tasks_blocked()
            broker.shutdown()


async def test_shutdown_twice_is_harmless_and_later_publishes_are_counted() -> None:
    broker = Broker()
    with broker.subscribe() as subscription:
        broker.shutdown()
        broker.shutdown()
        broker.publish(delta("a"))
        await broker.publish_must_deliver(saved("b"))
        assert drain(subscription) == []
    assert (broker.counts.published, broker.counts.after_shutdown) == (0, 2)


@pytest.mark.parametrize("run_id", [None, RUN])
async def test_subscribing_after_shutdown_yields_an_ended_stream(run_id: str | None) -> None:
    broker = Broker()
    broker.shutdown()
    with broker.subscribe(run_id=run_id) as subscription, anyio.fail_after(5):
        assert [event async for event in subscription] == []


@pytest.mark.parametrize("run_id", [None, RUN])
async def test_an_unsubscribed_listener_hears_nothing_more_and_costs_nothing(run_id: str | None) -> None:
    broker = Broker()
    with broker.subscribe(run_id=run_id) as gone, broker.subscribe(run_id=run_id) as staying:
        broker.publish(delta("a"))
        gone.close()
        gone.close()
        broker.publish(delta("b"))
        assert words(drain(gone)) == ["a"]
        assert words(drain(staying)) == ["a", "b"]
    assert broker.counts.delivered == 3


async def test_the_broker_keeps_nothing_of_runs_that_nobody_listens_to() -> None:
    broker = Broker()
    for number in range(100):
        with broker.subscribe(run_id=f"run-{number}"):
            broker.publish(delta("a", f"run-{number}"))
    assert broker._by_run == {}
    assert broker._others == {}


async def test_a_listener_may_leave_and_another_come_while_events_are_read() -> None:
    broker = Broker()
    with broker.subscribe() as first, anyio.fail_after(5):
        broker.publish(delta("a"))
        assert words([await anext(first)]) == ["a"]
        first.close()
        with broker.subscribe() as second:
            broker.publish(delta("b"))
            assert words([await anext(second)]) == ["b"]
        assert [event async for event in first] == []
