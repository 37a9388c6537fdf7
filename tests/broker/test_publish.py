"""The lossy publish: who gets what, what is dropped, and the completion's own slot (design, 5)."""

from __future__ import annotations

import anyio
import pytest

from engine.broker.broker import Broker
from tests.broker.events import RUN, completed, delta, drain, saved, words

pytestmark = pytest.mark.anyio


async def test_every_subscriber_gets_every_event_in_order() -> None:
    broker = Broker()
    with broker.subscribe() as one, broker.subscribe() as other:
        for text in "abc":
            broker.publish(delta(text))
        assert words(drain(one)) == words(drain(other)) == ["a", "b", "c"]
    assert (broker.counts.published, broker.counts.delivered) == (3, 6)


async def test_a_run_subscription_gets_its_run_alone_and_a_session_subscription_its_session() -> None:
    broker = Broker()
    with broker.subscribe(run_id="run-1") as run, broker.subscribe(session_id="ses-1") as session:
        broker.publish(delta("mine"))
        broker.publish(delta("neighbour", "run-2", "ses-1"))
        broker.publish(delta("elsewhere", "run-3", "ses-2"))
        broker.publish(delta("follow-up", None, "ses-1"))
        assert words(drain(run)) == ["mine"]
        assert words(drain(session)) == ["mine", "neighbour", "follow-up"]


async def test_a_full_subscriber_loses_the_event_and_it_is_counted() -> None:
    broker = Broker()
    with broker.subscribe(buffer_max=2) as slow, broker.subscribe(buffer_max=8) as roomy:
        for text in "abcd":
            broker.publish(delta(text))
        assert words(drain(slow)) == ["a", "b"]
        assert words(drain(roomy)) == ["a", "b", "c", "d"]
        assert (slow.lagged, roomy.lagged) == (2, 0)
    assert (broker.counts.delivered, broker.counts.dropped, broker.counts.undelivered) == (6, 2, 0)


async def test_a_subscriber_that_lost_an_event_gets_the_next_when_it_has_room() -> None:
    broker = Broker(buffer_max=1)
    with broker.subscribe() as slow:
        broker.publish(delta("a"))
        broker.publish(delta("lost"))
        assert words(drain(slow)) == ["a"]
        broker.publish(delta("b"))
        assert words(drain(slow)) == ["b"]


async def test_deltas_do_not_crowd_the_completion_out_of_its_runs_subscription() -> None:
    broker = Broker(buffer_max=2)
    with broker.subscribe(run_id=RUN) as waiter:
        for text in "abcd":
            broker.publish(delta(text))
        broker.publish(completed())
        assert words(drain(waiter)) == ["a", "b", "complete"]


async def test_the_slot_is_for_the_completion_of_the_run_subscribed_to() -> None:
    broker = Broker(buffer_max=1)
    with broker.subscribe(run_id=RUN) as waiter, broker.subscribe() as everyone:
        broker.publish(delta("a"))
        broker.publish(completed("run-2"))
        assert words(drain(waiter)) == ["a"]
        assert everyone.lagged == 1


async def test_publish_in_a_cancelled_scope_delivers() -> None:
    broker = Broker()
    with broker.subscribe(run_id=RUN) as waiter:
        with anyio.CancelScope() as scope:  # noqa: ASYNC100 - that publishing holds no checkpoint is the point
            scope.cancel()
            broker.publish(completed())
        assert words(drain(waiter)) == ["complete"]


async def test_a_waiting_reader_is_woken_by_a_publish() -> None:
    broker = Broker()
    heard: list[str] = []

    async def read() -> None:
        heard.extend(words([await anext(subscription)]))

    with broker.subscribe() as subscription, anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            broker.publish(delta("a"))
    assert heard == ["a"]


async def test_a_reader_cancelled_while_it_waits_loses_no_event() -> None:
    broker = Broker()
    with broker.subscribe() as subscription, anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anext, subscription)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
            broker.publish(delta("a"))  # in the same breath as the cancel
        assert words(drain(subscription)) == ["a"]


async def test_readers_of_one_subscription_share_its_events_each_read_once() -> None:
    broker = Broker()
    heard: list[str] = []

    async def read() -> None:
        async for event in subscription:
            heard.extend(words([event]))
            await anyio.lowlevel.checkpoint()

    sent = [str(number) for number in range(20)]
    with broker.subscribe() as subscription, anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            for text in sent:
                broker.publish(delta(text))
            await anyio.wait_all_tasks_blocked()
            broker.shutdown()
    assert sorted(heard, key=int) == sent


async def test_a_hundred_concurrent_readers_each_hear_everything_in_order() -> None:
    broker = Broker(buffer_max=8)
    heard: dict[int, list[str]] = {}

    async def read(number: int) -> None:
        with broker.subscribe() as subscription:
            ready.append(number)
            async for event in subscription:
                heard.setdefault(number, []).extend(words([event]))

    ready: list[int] = []
    sent = [str(number) for number in range(50)]
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(read, number)
            await anyio.wait_all_tasks_blocked()
            assert len(ready) == 100
            for text in sent:
                await broker.publish_must_deliver(saved(text))
                await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
            broker.shutdown()
    assert heard == dict.fromkeys(range(100), sent)
