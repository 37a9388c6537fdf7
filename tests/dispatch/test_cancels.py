"""A cancel is a stop button: what it stops, what it keeps, and what it leaves alone (design, 3 and 6)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from engine.app import Engine
from engine.client import CancelResult, SessionCancelled
from engine.dispatch.session_queue import Decision
from engine.errors import UnknownRunError, UnknownSessionError
from engine.event import RunCompleted
from engine.lifecycle import FinishReason, RunState
from engine.message import FinishPart, Role, TextPart, ToolResultPart
from engine.model.base import FaultKind, ModelFault
from engine.run import RunRequest, StopReason
from engine.turn.context import valid_history
from tests.fakes import FakeModel, FakeTool, Gate, calls, echo, held, opened, request, says

pytestmark = pytest.mark.anyio


async def history_of(engine: Engine, session_id: str) -> list[tuple[Role, str]]:
    return [(message.role, message.text) for message in await engine.store.load_history(session_id)]


async def test_cancel_in_mid_stream_keeps_prompt_and_partial_text_and_marks_it() -> None:
    gate, answer = held("Hello there")
    model = FakeModel(answer)
    with anyio.fail_after(5):
        async with opened(model) as engine:
            submitted = await engine.submit(request())
            await gate.reached.wait()
            assert await engine.cancel_run("r1") is CancelResult.CANCELLING
            completion = await engine.wait("r1")
            assert (completion.status, completion.exit_code) == (RunState.CANCELLED, 4)
            assert (completion.cancelled, completion.finish_reason) == (True, FinishReason.CANCELLED)
            assert completion.text == "Hello"
            user, assistant = await engine.store.load_history(submitted.session_id)
            assert user.text == "hello"
            assert assistant.parts_of(FinishPart) == [
                FinishPart(FinishReason.CANCELLED, is_partial=True, detail="cancelled")
            ]
            assert (len(model.requests), model.in_flight) == (1, 0)


@pytest.mark.parametrize(
    ("reason", "exit_code"),
    [
        (StopReason.SIGINT, 130),
        (StopReason.SIGTERM, 143),
        (StopReason.SIGHUP, 129),
        (StopReason.CANCEL, 4),
        (StopReason.STDOUT_CLOSED, 141),
    ],
)
async def test_exit_code_tells_who_cancelled(reason: StopReason, exit_code: int) -> None:
    gate, answer = held("Hello")
    with anyio.fail_after(5):
        async with opened(FakeModel(answer)) as engine:
            await engine.submit(request())
            await gate.reached.wait()
            await engine.cancel_run("r1", reason)
            await engine.cancel_run("r1", StopReason.CANCEL)
            completion = await engine.wait("r1")
            assert (completion.exit_code, completion.status) == (exit_code, RunState.CANCELLED), "the first one counts"


async def test_no_model_call_follows_a_cancel_that_a_tool_swallows() -> None:
    """FIX-22, D13, K4: stopped, not muted."""
    gate = Gate()

    async def swallow(_arguments: dict[str, Any]) -> str:
        try:
            await gate.hold()
        except anyio.get_cancelled_exc_class():
            return "as if nothing had happened"
        return "not cancelled"

    model = FakeModel(calls(("stubborn", {}), ("next", {})))
    following = FakeTool("next", echo, is_read_only=False)
    with anyio.fail_after(5):
        async with opened(model, FakeTool("stubborn", swallow, is_read_only=False), following) as engine:
            submitted = await engine.submit(request(tools=["stubborn", "next"]))
            await gate.reached.wait()
            await engine.cancel_run("r1")
            completion = await engine.wait("r1")
            assert completion.status is RunState.CANCELLED
            assert (len(model.requests), following.started) == (1, 0)
            results = [
                part.text
                for message in await engine.store.load_history(submitted.session_id)
                for part in message.parts_of(ToolResultPart)
            ]
            assert results[0] == "as if nothing had happened"
            assert results[1].startswith("not run")


async def test_cancel_in_a_tool_leaves_one_result_for_each_call() -> None:
    gate = Gate()

    async def hang(_arguments: dict[str, Any]) -> str:
        await gate.hold()
        return "never"

    model = FakeModel(calls(("echo", {}), ("hang", {}), ("echo", {}, "third")), says("fine"))
    tools = FakeTool("echo", echo), FakeTool("hang", hang, is_read_only=False)
    with anyio.fail_after(5):
        async with opened(model, *tools) as engine:
            submitted = await engine.submit(request(tools=["echo", "hang"]))
            await gate.reached.wait()
            await engine.cancel_run("r1")
            await engine.wait("r1")
            history = await engine.store.load_history(submitted.session_id)
            results = [part for message in history for part in message.parts_of(ToolResultPart)]
            assert [(result.call_id, result.is_error) for result in results] == [
                ("call-echo-0", False),
                ("call-hang-1", True),
                ("third", True),
            ]
            assert results[1].text.startswith("interrupted")
            assert results[2].text.startswith("not run")
            await engine.submit(request(run_id="r2", session_id=submitted.session_id))
            assert (await engine.wait("r2")).text == "fine"
            sent = model.requests[1].messages
            assert [message.parts for message in valid_history(sent)] == [message.parts for message in sent]


async def test_cancel_between_steps_does_not_touch_the_finished_step() -> None:
    """D3: the step before keeps its own finish."""
    gate = Gate()
    model = FakeModel(calls(("echo", {})), [gate, *says("never")])
    with anyio.fail_after(5):
        async with opened(model, FakeTool("echo", echo)) as engine:
            submitted = await engine.submit(request(tools=["echo"]))
            await gate.reached.wait()
            await engine.cancel_run("r1")
            await engine.wait("r1")
            history = await engine.store.load_history(submitted.session_id)
            assert [message.role for message in history] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
            assert history[1].parts_of(FinishPart) == []
            assert history[3].parts_of(FinishPart)[0].reason is FinishReason.CANCELLED
            assert history[3].text == ""


async def test_cancel_before_dispatch_keeps_prompt_and_says_cancelled_once() -> None:
    """J7, J16, J45: cancelled on entry."""
    model = FakeModel(says("one"), says("after"))
    with anyio.fail_after(5):
        async with opened(model) as engine:
            session_id = (await engine.submit(request())).session_id
            await engine.wait("r1")
            with engine.subscribe() as events:
                accepted = await engine.dispatcher.accept(request("stop me", run_id="r2", session_id=session_id))
                hit = await engine.cancel(session_id)
                assert hit == SessionCancelled(accepted=("r2",))
                assert accepted.dispatch() is Decision.CANCELLED_ON_ENTRY
                completion = await engine.wait("r2")
                await engine.submit(request(run_id="r3", session_id=session_id))
                await engine.wait("r3")
                seen = []
                while (event := events.next_nowait()) is not None:
                    if isinstance(event, RunCompleted):
                        seen.append(event.completion.run_id)
                assert seen == ["r2", "r3"]
            assert (completion.status, completion.steps) == (RunState.CANCELLED, 0)
            assert len(model.requests) == 2
            assert (Role.USER, "stop me") in await history_of(engine, session_id)


async def test_prompt_that_is_still_being_saved_is_covered() -> None:
    """B3, M1: the reservation is there before the first await of `submit`."""
    model = FakeModel(says("one"))
    with anyio.fail_after(5):
        async with opened(model) as engine:
            session_id = (await engine.submit(request())).session_id
            await engine.wait("r1")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(engine.submit, request(run_id="r2", session_id=session_id))
                while not engine.dispatcher.live_runs("r2"):
                    await anyio.lowlevel.checkpoint()
                engine.dispatcher.cancel_session(session_id, StopReason.CANCEL)
            assert (await engine.wait("r2")).status is RunState.CANCELLED
            assert len(model.requests) == 1


async def test_prompts_accepted_after_a_cancel_run_and_those_before_do_not() -> None:
    """J17, J19."""
    model = FakeModel(says("one"), says("later"))
    with anyio.fail_after(5):
        async with opened(model) as engine:
            session_id = (await engine.submit(request())).session_id
            await engine.wait("r1")
            before = [
                await engine.dispatcher.accept(request(run_id=run_id, session_id=session_id)) for run_id in ("a", "b")
            ]
            await engine.cancel(session_id)
            later = await engine.dispatcher.accept(request(run_id="c", session_id=session_id))
            later.dispatch()
            assert (await engine.wait("c")).text == "later"
            for reservation in before:
                assert reservation.dispatch() is Decision.CANCELLED_ON_ENTRY
            assert [(await engine.wait(run_id)).status for run_id in ("a", "b")] == [RunState.CANCELLED] * 2
            await engine.dispatcher.wait_settled()
            assert list(engine.dispatcher.sessions()) == []


async def test_cancel_of_a_session_hits_active_and_queued_and_each_is_told_once() -> None:
    """J12, J28, J64."""
    gate, answer = held("Hello")
    model = FakeModel(answer, says("after"))
    with anyio.fail_after(5):
        async with opened(model) as engine:
            with engine.subscribe() as events:
                session_id = (await engine.submit(request())).session_id
                await gate.reached.wait()
                for run_id in ("q1", None, "q2"):
                    await engine.submit(request(run_id=run_id, session_id=session_id))
                hit = await engine.cancel(session_id)
                assert hit == SessionCancelled(active=("r1",), dropped=("q1", "q2"))
                await engine.cancel(session_id)
                for run_id in ("r1", "q1", "q2"):
                    completion = await engine.wait(run_id)
                    assert (completion.status, completion.exit_code) == (RunState.CANCELLED, 4)
                await engine.submit(request("next", run_id="next", session_id=session_id))
                assert (await engine.wait("next")).text == "after"
                seen = []
                while (event := events.next_nowait()) is not None:
                    if isinstance(event, RunCompleted):
                        seen.append(event.completion.run_id)
            assert sorted(seen) == ["next", "q1", "q2", "r1"]
            assert len(model.requests) == 2
            assert [text for role, text in await history_of(engine, session_id) if role is Role.USER] == [
                "hello",
                "next",
            ], "dropped prompts leave no message"


async def test_cancel_of_one_queued_run_leaves_its_neighbours_in_place() -> None:
    """FIX-14."""
    gate, answer = held("one")
    model = FakeModel(answer, says("two"), says("four"))
    with anyio.fail_after(5):
        async with opened(model) as engine:
            session_id = (await engine.submit(request())).session_id
            await gate.reached.wait()
            for run_id in ("r2", "r3", "r4"):
                await engine.submit(request(run_id=run_id, session_id=session_id))
            assert await engine.cancel_run("r3") is CancelResult.DROPPED
            assert (await engine.wait("r3")).status is RunState.CANCELLED
            gate.open()
            assert [(await engine.wait(run_id)).text for run_id in ("r1", "r2", "r4")] == ["one", "two", "four"]
            record = await engine.find_run("r3")
            assert record is not None
            assert record.prompt.text == "hello", "its prompt stays in its row"


async def test_idle_cancel_is_silent_and_the_next_prompt_runs() -> None:
    """J18, J60."""
    model = FakeModel(says("one"), says("two"))
    with anyio.fail_after(5):
        async with opened(model) as engine:
            session_id = (await engine.submit(request())).session_id
            await engine.wait("r1")
            with engine.subscribe() as events:
                assert await engine.cancel(session_id) == SessionCancelled()
                assert await engine.cancel_run("r1") is CancelResult.ALREADY_ENDED
                assert events.next_nowait() is None
            await engine.submit(request(run_id="r2", session_id=session_id))
            assert (await engine.wait("r2")).text == "two"
            with pytest.raises(UnknownRunError):
                await engine.cancel_run("never")
            with pytest.raises(UnknownSessionError):
                await engine.cancel("never")
            with pytest.raises(UnknownSessionError):
                await engine.clear_queue("never")


async def test_clear_queue_drops_what_waits_and_spares_the_active_run() -> None:
    """FIX-7."""
    gate, answer = held("one")
    with anyio.fail_after(5):
        async with opened(FakeModel(answer)) as engine:
            session_id = (await engine.submit(request())).session_id
            await gate.reached.wait()
            for run_id in ("q1", None, "q2"):
                await engine.submit(request(run_id=run_id, session_id=session_id))
            assert await engine.clear_queue(session_id) == ("q1", "q2")
            assert await engine.clear_queue(session_id) == ()
            assert [(await engine.wait(run_id)).status for run_id in ("q1", "q2")] == [RunState.CANCELLED] * 2
            gate.open()
            assert (await engine.wait("r1")).text == "one"


async def test_session_stays_busy_until_the_cancelled_turn_has_wound_up() -> None:
    """FIX-31, design 3.5: what the engines of stack.md 5b get wrong."""
    gate, leaving = Gate(), Gate()

    async def slow_to_stop(_arguments: dict[str, Any]) -> str:
        try:
            await gate.hold()
        finally:
            with anyio.CancelScope(shield=True):
                await leaving.hold()
        return "never"

    model = FakeModel(calls(("slow", {})), says("two"))
    with anyio.fail_after(5):
        async with opened(model, FakeTool("slow", slow_to_stop)) as engine:
            session_id = (await engine.submit(request(tools=["slow"]))).session_id
            await gate.reached.wait()
            await engine.cancel_run("r1")
            await engine.submit(request(run_id="r2", session_id=session_id))
            await leaving.reached.wait()
            record = await engine.find_run("r2")
            assert record is not None
            assert len(model.requests) == 1
            leaving.open()
            assert (await engine.wait("r1")).status is RunState.CANCELLED
            assert (await engine.wait("r2")).text == "two"


async def test_cancel_that_comes_after_the_answer_finds_it_completed() -> None:
    """D16: what happened beats what was asked."""
    with anyio.fail_after(5):
        async with opened(FakeModel(says("all of it"))) as engine:
            store = engine.store
            saving = engine.store.finish_run

            async def cancel_while_saving(*args: Any) -> None:
                assert await engine.cancel_run("r1") is CancelResult.CANCELLING
                await saving(*args)

            store.finish_run = cancel_while_saving  # type: ignore[method-assign,assignment]
            await engine.submit(request())
            completion = await engine.wait("r1")
            assert (completion.status, completion.text) == (RunState.COMPLETED, "all of it")
            assert await engine.cancel_run("r1") is CancelResult.ALREADY_ENDED


async def test_cancel_ends_a_retry_pause_at_once() -> None:
    """G-10."""
    model = FakeModel([ModelFault(FaultKind.RATE_LIMIT, "busy", retry_after_seconds=200)])
    with anyio.fail_after(5):
        async with opened(model) as engine:
            with engine.subscribe() as events:
                await engine.submit(request())
                async for event in events:
                    if event.type == "retry":
                        break
                await engine.cancel_run("r1")
            completion = await engine.wait("r1")
            assert (completion.status, completion.retries) == (RunState.CANCELLED, 1)
            assert len(model.requests) == 1


async def test_run_that_waits_for_a_place_can_be_cancelled() -> None:
    """FIX-21, M7: a wait before the turn ends with the cancel, and prompt and cancellation are kept."""
    gate, answer = held("one")
    with anyio.fail_after(5):
        async with opened(FakeModel(answer), concurrency=1) as engine:
            await engine.submit(request())
            await gate.reached.wait()
            other = await engine.submit(request("elsewhere", run_id="r2"))
            await engine.cancel_run("r2")
            assert (await engine.wait("r2")).status is RunState.CANCELLED
            assert await history_of(engine, other.session_id) == [(Role.USER, "elsewhere"), (Role.ASSISTANT, "")]
            gate.open()
            await engine.wait("r1")


async def test_own_time_limit_ends_active_and_waiting_runs_as_timed_out() -> None:
    """R-D20: counted from acceptance, told apart from a cancel, the work kept."""
    _gate, answer = held("Hello")
    model = FakeModel(answer)
    with anyio.fail_after(5):
        async with opened(model) as engine:
            session_id = (await engine.submit(request(timeout_seconds=0.05))).session_id
            await engine.submit(request(run_id="r2", session_id=session_id, timeout_seconds=0.02))
            for run_id in ("r1", "r2"):
                completion = await engine.wait(run_id)
                assert (completion.status, completion.exit_code) == (RunState.FAILED, 124)
                assert (completion.finish_reason, completion.cancelled) == (FinishReason.LIMIT, False)
                assert "timed out" in (completion.error or "")
            assert (await engine.wait("r1")).text == "He"
            assert len(model.requests) == 1


async def test_closing_the_engine_settles_runs_in_every_state() -> None:
    """D15, G-1, FIX-17: each run is told, before the subscriptions end."""
    gate, answer = held("Hello")
    with anyio.fail_after(5):
        async with opened(FakeModel(answer)) as engine:
            events = engine.subscribe()
            session_id = (await engine.submit(request(run_id="active"))).session_id
            await gate.reached.wait()
            await engine.submit(request(run_id="queued", session_id=session_id))
            reserved = await engine.dispatcher.accept(request(run_id="reserved", session_id=session_id))
            reserved.close()
        told = [event.completion async for event in events if isinstance(event, RunCompleted)]
        assert sorted(each.run_id for each in told) == ["active", "queued", "reserved"]
        assert {each.status for each in told} == {RunState.CANCELLED}
        for run_id in ("active", "queued", "reserved"):
            record = await engine.store.find_run(run_id)
            assert record is not None
            assert record.state is RunState.CANCELLED


async def test_engine_cancelled_from_outside_still_settles_every_run() -> None:
    """M20, K13: the scope around the engine is cancelled; saves are shielded, completions are out."""
    gate, answer = held("Hello")
    with anyio.fail_after(5):
        told = []
        with anyio.CancelScope() as scope:
            async with opened(FakeModel(answer)) as engine:
                events = engine.subscribe()
                session_id = (await engine.submit(request(run_id="active"))).session_id
                await gate.reached.wait()
                await engine.submit(request(run_id="queued", session_id=session_id))
                scope.cancel()
                await anyio.sleep_forever()
        told = [event.completion async for event in events if isinstance(event, RunCompleted)]
        assert sorted(each.run_id for each in told) == ["active", "queued"]
        record = await engine.store.find_run("active")
        assert record is not None
        assert record.state is RunState.CANCELLED
        assert [message.text for message in await engine.store.load_history(session_id)] == ["hello", "He"]


async def test_run_cancelled_by_its_own_tool_keeps_its_books() -> None:
    """K22."""
    engines: list[Engine] = []

    async def suicide(_arguments: dict[str, Any]) -> str:
        await engines[0].cancel_run("r1")
        return "done"

    model = FakeModel(calls(("suicide", {})))
    with anyio.fail_after(5):
        async with opened(model, FakeTool("suicide", suicide)) as engine:
            engines.append(engine)
            session_id = (await engine.submit(request(tools=["suicide"]))).session_id
            assert (await engine.wait("r1")).status is RunState.CANCELLED
            results = [
                part.text
                for message in await engine.store.load_history(session_id)
                for part in message.parts_of(ToolResultPart)
            ]
            assert results == ["done"]


async def test_history_of_a_cancelled_turn_says_what_the_model_had_said() -> None:
    gate, answer = held("Hello there")
    model = FakeModel(answer, says("again"))
    with anyio.fail_after(5):
        async with opened(model) as engine:
            session_id = (await engine.submit(request("one"))).session_id
            await gate.reached.wait()
            await engine.cancel_run("r1")
            await engine.wait("r1")
            again = RunRequest(request("two").prompt, run_id="r2", session_id=session_id, model="fake/model")
            await engine.submit(again)
            await engine.wait("r2")
            texts = [part.text for message in model.requests[1].messages for part in message.parts_of(TextPart)]
            assert texts == ["one", "Hello", "two"]
