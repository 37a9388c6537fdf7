"""Runs from acceptance to completion, through the engine's public face (design, 3 and 4)."""

from __future__ import annotations

import anyio
import pytest

from engine.app import Engine
from engine.broker.broker import Broker, Subscription
from engine.client import Admission
from engine.errors import (
    EmptyPromptError,
    EngineClosedError,
    IllegalIdError,
    RunIdConflictError,
    UnknownRunError,
    UnknownSessionError,
)
from engine.event import RunCompleted, TextDelta
from engine.lifecycle import FinishReason, RunState
from engine.message import FinishPart, Role
from engine.model.base import FaultKind, ModelFault
from engine.run import RunComplete
from tests.fakes import FakeModel, FakeTool, Gate, calls, echo, held, opened, request, says

pytestmark = pytest.mark.anyio

BROKEN = ModelFault(FaultKind.REFUSED, "the model refused")


def completions(events: Subscription) -> list[RunComplete]:
    """The completions announced so far, in order."""
    found = []
    while (event := events.next_nowait()) is not None:
        if isinstance(event, RunCompleted):
            found.append(event.completion)
    return found


async def submit_held(engine: Engine, gate: Gate) -> str:
    """Start the run `active` whose answer is held at the gate; returns the session id."""
    submitted = await engine.submit(request("first", run_id="active"))
    await gate.reached.wait()
    return submitted.session_id


async def test_run_completes_with_its_answer_and_is_on_record() -> None:
    with anyio.fail_after(5):
        async with opened(FakeModel(says("Hello there"))) as engine:
            with engine.subscribe() as events:
                submitted = await engine.submit(request())
                assert submitted.admission is Admission.ACTIVE
                completion = await engine.wait("r1")
                assert completions(events) == [completion]
            assert (completion.text, completion.status, completion.exit_code) == ("Hello there", RunState.COMPLETED, 0)
            assert (completion.usage.input_tokens, completion.steps, completion.error) == (10, 1, None)
            record = await engine.find_run("r1")
            assert record is not None
            assert record.completion == completion
            history = await engine.store.load_history(submitted.session_id)
            assert [message.role for message in history] == [Role.USER, Role.ASSISTANT]
            assert history[-1].message_id == completion.message_id


async def test_users_message_is_durable_before_the_first_model_call() -> None:
    """M9, FIX-30."""
    gate, answer = held("Hello")
    with anyio.fail_after(5):
        async with opened(FakeModel([gate, *answer])) as engine:
            session_id = await submit_held(engine, gate)
            history = await engine.store.load_history(session_id)
            assert [message.text for message in history] == ["first"]
            gate.open()
            await engine.wait("active")


async def test_queued_runs_keep_their_own_turns_in_order_of_acceptance() -> None:
    gate, answer = held("one")
    model = FakeModel(answer, says("two"), says("three"))
    with anyio.fail_after(5):
        async with opened(model) as engine:
            with engine.subscribe() as events:
                session_id = await submit_held(engine, gate)
                for run_id in ("second", "third"):
                    submitted = await engine.submit(request(run_id, run_id=run_id, session_id=session_id))
                    assert submitted.admission is Admission.QUEUED
                gate.open()
                await engine.wait("third")
                done = completions(events)
            assert [(each.run_id, each.text) for each in done] == [
                ("active", "one"),
                ("second", "two"),
                ("third", "three"),
            ]
            texts = [message.text for message in await engine.store.load_history(session_id)]
            assert texts == ["first", "one", "second", "two", "third", "three"]


async def test_completion_is_out_before_the_next_turns_model_call() -> None:
    """FIX-4, G-3."""
    gate, answer = held("one")
    model = FakeModel(answer, says("two"))
    with anyio.fail_after(5):
        async with opened(model) as engine:
            session_id = await submit_held(engine, gate)
            await engine.submit(request(run_id="second", session_id=session_id))
            with engine.subscribe(run_id="active") as events:
                gate.open()
                async for event in events:
                    if isinstance(event, RunCompleted):
                        break
                assert len(model.requests) == 1, "told before the next one asks"
            await engine.wait("second")


async def test_eight_concurrent_prompts_run_one_at_a_time_in_the_order_of_their_calls() -> None:
    model = FakeModel(says("start"), *[says(f"answer {number}") for number in range(8)])
    with anyio.fail_after(5):
        async with opened(model) as engine:
            session_id = (await engine.submit(request(run_id="start"))).session_id
            await engine.wait("start")
            with engine.subscribe() as events:
                async with anyio.create_task_group() as tasks:
                    for number in range(8):
                        tasks.start_soon(engine.submit, request(run_id=f"r{number}", session_id=session_id))
                for number in range(8):
                    await engine.wait(f"r{number}")
                done = completions(events)
            assert model.most_in_flight == 1
            records = [await engine.find_run(each.run_id) for each in done]
            sequences = [record.accept_seq for record in records if record is not None]
            assert sequences == sorted(sequences)
            assert len(sequences) == 8


async def test_prompt_sent_upon_a_completion_is_run() -> None:
    """R-A18, G-2: after success, failure and cancel alike."""
    gate, answer = held("never told")
    model = FakeModel(says("one"), [BROKEN], answer, says("last"))
    with anyio.fail_after(5):
        async with opened(model) as engine:
            with engine.subscribe() as events:
                session_id = (await engine.submit(request(run_id="r1"))).session_id
                seen = []
                async for event in events:
                    if not isinstance(event, RunCompleted):
                        continue
                    seen.append(event.completion.status)
                    if len(seen) == 4:
                        break
                    submitted = await engine.submit(request(run_id=f"r{len(seen) + 1}", session_id=session_id))
                    assert submitted.admission is Admission.ACTIVE
                    if len(seen) == 2:
                        await gate.reached.wait()
                        await engine.cancel_run("r3")
            assert seen == [RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED, RunState.COMPLETED]


@pytest.mark.parametrize("how", ["fails", "is cancelled", "crashes"])
async def test_queue_goes_on_behind_a_turn_that_ends_badly(how: str) -> None:
    """FIX-1: nobody is stranded."""
    gate = Gate()
    ending = {"fails": BROKEN, "is cancelled": BROKEN, "crashes": RuntimeError("a bug")}[how]
    model = FakeModel([gate, ending], says("second"), says("third"))
    with anyio.fail_after(5):
        async with opened(model) as engine:
            session_id = await submit_held(engine, gate)
            await engine.submit(request(run_id="second", session_id=session_id))
            await engine.submit(request(run_id="third", session_id=session_id))
            if how == "is cancelled":
                await engine.cancel_run("active")
            gate.open()
            first = await engine.wait("active")
            assert first.status is (RunState.CANCELLED if how == "is cancelled" else RunState.FAILED)
            assert (await engine.wait("second")).text == "second"
            assert (await engine.wait("third")).text == "third"


async def test_base_exception_of_a_turn_becomes_its_completion() -> None:
    """FIX-16: nothing a run does takes the others down."""

    class Unruly(BaseException):
        pass

    with anyio.fail_after(5):
        async with opened(FakeModel([Unruly("loose")], says("fine"))) as engine:
            session_id = (await engine.submit(request(run_id="r1"))).session_id
            completion = await engine.wait("r1")
            assert (completion.status, completion.exit_code) == (RunState.FAILED, 1)
            assert "Unruly" in (completion.error or "")
            await engine.submit(request(run_id="r2", session_id=session_id))
            assert (await engine.wait("r2")).text == "fine"


async def test_failure_before_the_turn_begins_still_completes_the_run() -> None:
    """FIX-2 and FIX-3: also for a run that came out of the queue."""
    gate, answer = held("one")
    with anyio.fail_after(5):
        async with opened(FakeModel(answer)) as engine:
            session_id = await submit_held(engine, gate)
            bad = request(run_id="second", session_id=session_id, tools=["no such tool"])
            await engine.submit(bad)
            gate.open()
            completion = await engine.wait("second")
            assert completion.status is RunState.FAILED
            assert completion.exit_code == 1
            history = await engine.store.load_history(session_id)
            assert history[-2].text == "hello", "the user's message is kept"
            assert history[-1].parts_of(FinishPart)[0].reason is FinishReason.ERROR


async def test_follow_up_joins_the_active_turn_at_its_next_step() -> None:
    gate = Gate()
    model = FakeModel([gate, *calls(("echo", {}))], says("both answered"))
    with anyio.fail_after(5):
        async with opened(model, FakeTool("echo", echo)) as engine:
            with engine.subscribe() as events:
                submitted = await engine.submit(request("first", run_id="active", tools=["echo"]))
                await gate.reached.wait()
                follow_up = request("and this", run_id=None, session_id=submitted.session_id)
                assert (await engine.submit(follow_up)).admission is Admission.QUEUED
                gate.open()
                await engine.wait("active")
                assert [each.run_id for each in completions(events)] == ["active"], "it owns no completion"
            assert [message.text for message in model.requests[1].messages if message.role is Role.USER] == [
                "first",
                "and this",
            ]


async def test_follow_up_to_an_idle_session_is_a_turn_of_its_own() -> None:
    model = FakeModel(says("one"), says("two"))
    with anyio.fail_after(5):
        async with opened(model) as engine:
            session_id = (await engine.submit(request())).session_id
            await engine.wait("r1")
            submitted = await engine.submit(request("more", run_id=None, session_id=session_id))
            assert (submitted.run_id, submitted.admission) == (None, Admission.ACTIVE)
            await engine.dispatcher.wait_settled()
            texts = [message.text for message in await engine.store.load_history(session_id)]
            assert texts == ["hello", "one", "more", "two"]


async def test_follow_up_left_at_the_end_of_a_turn_runs_before_later_prompts() -> None:
    """FIX-5: a turn without an id is as good as any; C7."""
    gate, answer = held("one")
    model = FakeModel(answer, says("two"), says("three"))
    with anyio.fail_after(5):
        async with opened(model) as engine:
            session_id = await submit_held(engine, gate)
            await engine.submit(request("follow-up", run_id=None, session_id=session_id))
            await engine.submit(request("later", run_id="later", session_id=session_id))
            gate.open()
            assert (await engine.wait("later")).text == "three"
            texts = [message.text for message in await engine.store.load_history(session_id)]
            assert texts == ["first", "one", "follow-up", "two", "later", "three"]


async def test_waiter_hears_of_its_own_run_alone() -> None:
    """J39: other completions on the same session neither answer nor end the wait."""
    gate, answer = held("one")
    with anyio.fail_after(5):
        async with opened(FakeModel(answer, says("two"))) as engine:
            session_id = await submit_held(engine, gate)
            await engine.submit(request(run_id="second", session_id=session_id))
            answers: list[RunComplete] = []

            async def wait_second() -> None:
                answers.append(await engine.wait("second"))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait_second)
                while not engine.broker.is_heard("second"):
                    await anyio.lowlevel.checkpoint()
                gate.open()
            assert [each.run_id for each in answers] == ["second"]


async def test_late_and_repeated_waiters_get_the_same_completion() -> None:
    """FIX-9, G-5."""
    with anyio.fail_after(5):
        async with opened(FakeModel(says("Hello"))) as engine:
            await engine.submit(request())
            first = await engine.wait("r1")
            assert await engine.wait("r1") == first
            with pytest.raises(UnknownRunError):
                await engine.wait("never")


async def test_full_subscription_does_not_lose_its_own_completion() -> None:
    """FIX-9: deltas crowd out deltas, never the completion."""
    answer = says("x")
    flood = [part for _ in range(50) for part in answer[:1]]
    with anyio.fail_after(5):
        async with opened(FakeModel([*flood, answer[-1]]), broker=Broker(buffer_max=4)) as engine:
            with engine.subscribe(run_id="r1") as stalled, engine.subscribe() as foreign:
                await engine.submit(request())
                assert (await engine.wait("r1")).text == "x" * 50
                assert stalled.lagged > 0
                buffered = []
                while (event := stalled.next_nowait()) is not None:
                    buffered.append(event)
                assert isinstance(buffered[-1], RunCompleted)
                assert sum(isinstance(event, TextDelta) for event in buffered) < 50
                assert foreign.lagged > 0


async def test_used_run_id_is_replayed_without_a_model_call() -> None:
    model = FakeModel(says("Hello"))
    with anyio.fail_after(5):
        async with opened(model) as engine:
            await engine.submit(request())
            first = await engine.wait("r1")
            again = await engine.submit(request())
            assert again.admission is Admission.REPLAYED
            assert await engine.wait("r1") == first
            assert len(model.requests) == 1


async def test_run_id_in_flight_is_attached_and_run_once() -> None:
    """FIX-13, G-4."""
    gate, answer = held("Hello")
    model = FakeModel(answer)
    with anyio.fail_after(5):
        async with opened(model) as engine:
            await submit_held(engine, gate)
            assert (await engine.submit(request("first", run_id="active"))).admission is Admission.ATTACHED
            gate.open()
            assert (await engine.wait("active")).text == "Hello"
            assert len(model.requests) == 1


async def test_two_calls_at_once_with_one_run_id_run_it_once() -> None:
    model = FakeModel(says("Hello"))
    admissions: list[Admission] = []
    with anyio.fail_after(5):
        async with opened(model) as engine:

            async def submit() -> None:
                admissions.append((await engine.submit(request())).admission)
                assert (await engine.wait("r1")).text == "Hello"

            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(submit)
            assert admissions.count(Admission.ACTIVE) == 1
            assert len(model.requests) == 1


async def test_used_run_id_with_another_prompt_is_refused_and_names_both() -> None:
    with anyio.fail_after(5):
        async with opened(FakeModel(says("Hello"), says("other"))) as engine:
            await engine.submit(request())
            await engine.wait("r1")
            with pytest.raises(RunIdConflictError) as caught:
                await engine.submit(request("something else"))
            assert request().prompt.digest()[:12] in str(caught.value)
            assert request("something else").prompt.digest()[:12] in str(caught.value)
            other = await engine.submit(request(run_id="r2"))
            with pytest.raises(RunIdConflictError):
                await engine.submit(request(session_id=other.session_id))
            await engine.wait("r2")


async def test_bad_requests_are_refused_and_leave_nothing() -> None:
    """FIX-29; J49 to J53."""
    with anyio.fail_after(5):
        async with opened(FakeModel()) as engine:
            for bad, kind in [
                (request("  \n"), EmptyPromptError),
                (request(run_id="no spaces"), IllegalIdError),
                (request(run_id="x" * 129), IllegalIdError),
                (request(session_id="nowhere"), UnknownSessionError),
            ]:
                with pytest.raises(kind):
                    await engine.submit(bad)
            assert list(await engine.list_runs()) == []
            assert list(await engine.list_sessions()) == []
            assert list(engine.dispatcher.sessions()) == []


async def test_reservation_that_is_never_dispatched_blocks_nobody() -> None:
    with anyio.fail_after(5):
        async with opened(FakeModel(says("one"), says("two"))) as engine:
            session_id = (await engine.submit(request())).session_id
            await engine.wait("r1")
            reservation = await engine.dispatcher.accept(request(run_id="lost", session_id=session_id))
            reservation.close()
            reservation.close()
            assert (await engine.wait("lost")).status is RunState.CANCELLED
            await engine.submit(request(run_id="r2", session_id=session_id))
            assert (await engine.wait("r2")).text == "two"
            assert list(engine.dispatcher.sessions()) == []


async def test_closing_engine_takes_no_more_prompts() -> None:
    with anyio.fail_after(5):
        async with opened(FakeModel()) as engine:
            engine.dispatcher.close()
            with pytest.raises(EngineClosedError):
                await engine.submit(request())


async def test_error_of_the_callers_own_leaves_the_engine_as_it_is() -> None:
    """K6: no task group wraps it."""
    with anyio.fail_after(5), pytest.raises(KeyError):
        async with opened(FakeModel()):
            raise KeyError("the caller's")


async def test_caller_who_goes_away_does_not_take_the_run_along() -> None:
    """J57, J62: the run belongs to the engine, not to whoever handed it in."""
    gate, answer = held("Hello")
    with anyio.fail_after(5):
        async with opened(FakeModel(answer)) as engine:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(submit_held, engine, gate)
                await gate.reached.wait()
                tasks.cancel_scope.cancel()
            gate.open()
            assert (await engine.wait("active")).text == "Hello"


async def test_nothing_of_a_run_is_announced_after_its_completion() -> None:
    """G-13."""
    model = FakeModel(calls(("echo", {})), says("done"))
    with anyio.fail_after(5):
        async with opened(model, FakeTool("echo", echo)) as engine:
            with engine.subscribe() as events:
                await engine.submit(request(tools=["echo"]))
                await engine.wait("r1")
                await engine.dispatcher.wait_settled()
                kinds = []
                while (event := events.next_nowait()) is not None:
                    kinds.append(event.type)
            assert kinds[0] == "run_accepted"
            assert kinds[-1] == "run_complete"
            assert kinds.count("run_complete") == 1


async def test_thousand_queued_runs_drain_in_order() -> None:
    """FIX-18: a loop, not a stack of calls."""
    gate, answer = held("one")
    model = FakeModel(answer, *[says(str(number)) for number in range(1000)])
    with anyio.fail_after(30):
        async with opened(model) as engine:
            with engine.subscribe() as events:
                session_id = await submit_held(engine, gate)
                for number in range(1000):
                    await engine.submit(request(run_id=f"q{number}", session_id=session_id, max_steps=1))
                order = []
                gate.open()
                async for event in events:
                    if isinstance(event, RunCompleted):
                        order.append(event.completion.run_id)
                        if len(order) == 1001:
                            break
            assert order == ["active", *[f"q{number}" for number in range(1000)]]
