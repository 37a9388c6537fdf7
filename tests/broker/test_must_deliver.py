"""The must-deliver publish: waits for the full, within its bound, and never for long on anyone's behalf."""

from __future__ import annotations

import time

import anyio
import pytest

from engine.broker.broker import Broker
from tests.broker.events import RUN, completed, delta, drain, saved, words

pytestmark = pytest.mark.anyio

BOUND_SECONDS = 0.05
FAR_SECONDS = 60.0
"""A bound that no test may reach: what returns before it did not wait for it."""


async def test_with_room_it_delivers_at_once_and_waits_for_nothing() -> None:
    broker = Broker(deliver_seconds=FAR_SECONDS)
    with broker.subscribe() as subscription, anyio.fail_after(5):
        await broker.publish_must_deliver(saved("a"))
        assert words(drain(subscription)) == ["a"]


async def test_a_stalled_subscriber_costs_the_bound_and_is_counted_apart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker(buffer_max=1, deliver_seconds=BOUND_SECONDS)
    with broker.subscribe() as stalled, anyio.fail_after(5):
        broker.publish(delta("a"))
        started = time.monotonic()
        await broker.publish_must_deliver(saved("lost"))
        assert time.monotonic() - started >= BOUND_SECONDS * 0.9  # clocks of loops are coarse
        assert words(drain(stalled)) == ["a"]
        assert stalled.lagged == 1
    assert (broker.counts.dropped, broker.counts.undelivered) == (0, 1)
    assert "lost message" in caplog.text


async def test_many_stalled_subscribers_share_one_bound() -> None:
    broker = Broker(buffer_max=1, deliver_seconds=0.2)
    stalled = [broker.subscribe() for _ in range(100)]
    broker.publish(delta("a"))
    with anyio.fail_after(5):  # one after another they would take 20 s
        await broker.publish_must_deliver(saved("lost"))
    assert broker.counts.undelivered == 100
    assert all(each.lagged == 1 for each in stalled)


async def test_a_stalled_subscriber_does_not_delay_the_others() -> None:
    broker = Broker(buffer_max=1, deliver_seconds=FAR_SECONDS)
    with broker.subscribe(), broker.subscribe() as reader, anyio.fail_after(5):
        broker.publish(delta("a"))
        drain(reader)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(broker.publish_must_deliver, saved("b"))
            assert words([await anext(reader)]) == ["b"]
            tasks.cancel_scope.cancel()


async def test_a_stalled_subscriber_does_not_delay_other_publishes() -> None:
    broker = Broker(buffer_max=1, deliver_seconds=FAR_SECONDS)
    with broker.subscribe(session_id="ses-1"), anyio.fail_after(5):
        broker.publish(delta("a"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(broker.publish_must_deliver, saved("b"))
            await anyio.wait_all_tasks_blocked()
            with broker.subscribe(session_id="ses-2") as elsewhere:
                await broker.publish_must_deliver(saved("c", "run-2", "ses-2"))
                assert words(drain(elsewhere)) == ["c"]
            tasks.cancel_scope.cancel()


async def test_a_slow_reader_gets_the_event_when_it_makes_room() -> None:
    broker = Broker(buffer_max=1, deliver_seconds=FAR_SECONDS)
    with broker.subscribe() as slow, anyio.fail_after(5):
        broker.publish(delta("a"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(broker.publish_must_deliver, saved("b"))
            await anyio.wait_all_tasks_blocked()
            assert words(drain(slow)) == ["a", "b"]
    assert broker.counts.undelivered == 0


async def test_a_delta_cannot_take_the_room_that_an_event_waits_for() -> None:
    broker = Broker(buffer_max=1, deliver_seconds=FAR_SECONDS)
    with broker.subscribe() as slow, anyio.fail_after(5):
        broker.publish(delta("a"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(broker.publish_must_deliver, saved("b"))
            await anyio.wait_all_tasks_blocked()
            assert words([await anext(slow)]) == ["a"]
            broker.publish(delta("overtaker"))  # before the waiting publisher can have run
        assert words(drain(slow)) == ["b"]


async def test_events_that_wait_for_room_keep_their_order() -> None:
    broker = Broker(buffer_max=1, deliver_seconds=FAR_SECONDS)
    with broker.subscribe() as slow, anyio.fail_after(5):
        broker.publish(delta("a"))
        async with anyio.create_task_group() as tasks:
            for text in "bcd":
                tasks.start_soon(broker.publish_must_deliver, saved(text))
                await anyio.wait_all_tasks_blocked()
            assert words(drain(slow)) == ["a", "b", "c", "d"]


async def test_room_made_in_time_counts_even_when_the_wake_up_comes_late() -> None:
    broker = Broker(buffer_max=1, deliver_seconds=BOUND_SECONDS)
    with broker.subscribe() as slow, anyio.fail_after(5):
        broker.publish(delta("a"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(broker.publish_must_deliver, saved("b"))
            await anyio.wait_all_tasks_blocked()
            assert words([await anext(slow)]) == ["a"]
            time.sleep(BOUND_SECONDS * 2)  # noqa: ASYNC251 - the loop is busy elsewhere, past the bound
        assert words(drain(slow)) == ["b"]
    assert (broker.counts.delivered, broker.counts.undelivered) == (2, 0)


async def test_in_a_cancelled_scope_those_with_room_get_it_and_the_rest_are_counted() -> None:
    broker = Broker(buffer_max=1, deliver_seconds=FAR_SECONDS)
    with broker.subscribe() as full, broker.subscribe() as roomy, anyio.fail_after(5):
        broker.publish(delta("a"))
        drain(roomy)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await broker.publish_must_deliver(completed())
        assert scope.cancelled_caught
        assert words(drain(roomy)) == ["complete"]
        assert words(drain(full)) == ["a"]
        assert full.lagged == broker.counts.undelivered == 1


async def test_a_publisher_cancelled_while_it_waits_leaves_no_event_in_line() -> None:
    broker = Broker(buffer_max=1, deliver_seconds=FAR_SECONDS)
    with broker.subscribe() as slow, anyio.fail_after(5):
        broker.publish(delta("a"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(broker.publish_must_deliver, saved("given up"))
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert words(drain(slow)) == ["a"]
        broker.publish(delta("b"))
        assert words(drain(slow)) == ["b"]


async def test_the_completion_never_waits_in_its_runs_own_subscription() -> None:
    broker = Broker(buffer_max=1, deliver_seconds=FAR_SECONDS)
    with broker.subscribe(run_id=RUN) as waiter, anyio.fail_after(5):
        broker.publish(delta("a"))
        with anyio.CancelScope() as scope:
            scope.cancel()
            await broker.publish_must_deliver(completed())
        assert words(drain(waiter)) == ["a", "complete"]


async def test_no_event_of_a_run_follows_its_completion_out_of_the_line() -> None:
    broker = Broker(buffer_max=1, deliver_seconds=FAR_SECONDS)
    with broker.subscribe(run_id=RUN) as waiter, anyio.fail_after(5):
        broker.publish(delta("a"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(broker.publish_must_deliver, saved("late"))
            await anyio.wait_all_tasks_blocked()
            broker.publish(completed())
        assert words(drain(waiter)) == ["a", "complete"]
    assert broker.counts.undelivered == 1


async def test_a_listener_that_leaves_frees_the_publisher_and_is_nobodys_loss() -> None:
    broker = Broker(buffer_max=1, deliver_seconds=FAR_SECONDS)
    with broker.subscribe() as leaver, anyio.fail_after(5):
        broker.publish(delta("a"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(broker.publish_must_deliver, saved("b"))
            await anyio.wait_all_tasks_blocked()
            leaver.close()
        assert words(drain(leaver)) == ["a"]
    assert (broker.counts.delivered, broker.counts.undelivered) == (1, 0)
