"""A turn from its first step to its end: what ends it, how it says so, and what counts as its answer (design, 6)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from engine.lifecycle import FinishReason, RunState
from engine.message import FinishPart, Message, Role, ToolCallPart
from engine.turn.loop import LOOP_REPEATS
from tests.fakes import USAGE, FakeModel, FakeTool, Gate, calls, echo, opened, request, says
from tests.turn.provider import refusals
from tests.turn.scenario import finish, saying
from tests.turn.tools import stored_results

pytestmark = pytest.mark.anyio


# --- the answer ------------------------------------------------------------------------------------------------------


async def test_answer_is_the_last_message_and_not_what_was_said_on_the_way() -> None:
    """FIX-20, E4: one assistant message a step; `text` and `message_id` are of the last."""
    model = FakeModel(saying("I will look.", calls(("echo", {}))), saying("Again.", calls(("echo", {}))), says("Done."))
    with anyio.fail_after(5):
        async with opened(model, FakeTool("echo", echo)) as engine:
            completion, history = await finish(engine, "echo")
    assert completion.text == "Done."
    assert [message.text for message in history if message.role is Role.ASSISTANT] == [
        "I will look.",
        "Again.",
        "Done.",
    ]
    assert completion.message_id == history[-1].message_id
    assert [bool(message.parts_of(FinishPart)) for message in history] == [False] * 5 + [True]
    assert (completion.steps, completion.usage) == (3, USAGE + USAGE + USAGE)


async def test_every_request_of_a_turn_is_one_that_a_provider_takes() -> None:
    asked = calls(("echo", "bad json", "a"), ("nothing", {}, "a"), ("echo", [1], ""), ("echo", {}, "b\ud800"))
    model = FakeModel(saying("\x00", asked), asked, says("done"))
    with anyio.fail_after(5):
        async with opened(model, FakeTool("echo", echo)) as engine:
            completion, _ = await finish(engine, "echo")
    assert completion.text == "done"
    for sent in model.requests:
        assert refusals(sent.messages) == []
    assert [len(sent.messages) for sent in model.requests] == [1, 3, 5]


async def test_broken_history_of_an_earlier_turn_is_repaired_and_nothing_is_run_again() -> None:
    """J98, E9: a process died between call and result; the next turn is told so, and the tool is not called for it."""
    model = FakeModel(calls(("echo", {})), says("one"), says("two"))
    tool = FakeTool("echo", echo)
    with anyio.fail_after(5):
        async with opened(model, tool) as engine:
            session_id = (await engine.submit(request(tools=["echo"]))).session_id
            await engine.wait("r1")
            lost = Message("lost", Role.ASSISTANT, (ToolCallPart("dangling", "echo", "{}"),), "then")
            await engine.store.add_messages(1, session_id, [lost])
            await engine.submit(request(run_id="r2", session_id=session_id, tools=["echo"]))
            assert (await engine.wait("r2")).text == "two"
            assert tool.started == 1
    assert refusals(model.requests[2].messages) == []
    assert any(
        part.call_id == "dangling" for each in model.requests[2].messages for part in each.parts_of(ToolCallPart)
    )


async def test_call_id_of_an_earlier_turn_is_stored_under_another_one() -> None:
    """Providers that count from one in each response: ids in a session stay unique, and no result is taken for two."""
    model = FakeModel(calls(("echo", {}, "call-1")), says("one"), calls(("echo", {}, "call-1")), says("two"))
    with anyio.fail_after(5):
        async with opened(model, FakeTool("echo", echo)) as engine:
            session_id = (await engine.submit(request(tools=["echo"]))).session_id
            await engine.wait("r1")
            await engine.submit(request(run_id="r2", session_id=session_id, tools=["echo"]))
            assert (await engine.wait("r2")).text == "two"
            first, second = await stored_results(engine, session_id)
    assert first.call_id == "call-1"
    assert second.call_id != "call-1"
    assert not second.is_error


async def test_model_that_takes_no_tools_is_offered_none() -> None:
    model = FakeModel(says("hi"), takes_tools=False)
    with anyio.fail_after(5):
        async with opened(model, FakeTool("echo", echo)) as engine:
            await finish(engine, "echo")
    assert model.requests[0].tools == ()


# --- limits ----------------------------------------------------------------------------------------------------------


async def test_limit_of_steps_ends_the_turn_with_every_call_answered() -> None:
    model = FakeModel(*[saying(f"step {number}", calls(("echo", {"n": number}))) for number in range(3)])
    with anyio.fail_after(5):
        async with opened(model, FakeTool("echo", echo)) as engine:
            completion, history = await finish(engine, "echo", max_steps=3)
    assert (completion.status, completion.finish_reason, completion.exit_code) == (
        RunState.FAILED,
        FinishReason.MAX_STEPS,
        5,
    )
    assert completion.error == "the limit of 3 steps was met (--max-steps)"
    assert completion.text == "", "what was said on the way is no answer"
    assert (completion.steps, len(model.requests)) == (3, 3)
    assert history[-1].parts_of(FinishPart) == [FinishPart(FinishReason.MAX_STEPS, detail=completion.error)]
    assert refusals(history[:-1]) == []


async def test_answer_at_the_last_step_is_an_answer() -> None:
    with anyio.fail_after(5):
        async with opened(FakeModel(calls(("echo", {})), says("just in time")), FakeTool("echo", echo)) as engine:
            completion, _ = await finish(engine, "echo", max_steps=2)
    assert (completion.text, completion.exit_code) == ("just in time", 0)


async def test_same_call_again_and_again_is_a_loop() -> None:
    """J83: the same calls with the same results, more often than anybody needs them."""
    model = FakeModel(*[calls(("echo", {}, f"c{number}")) for number in range(50)])
    with anyio.fail_after(5):
        async with opened(model, FakeTool("echo", echo)) as engine:
            completion, history = await finish(engine, "echo")
    assert (completion.status, completion.finish_reason, completion.exit_code) == (
        RunState.FAILED,
        FinishReason.LIMIT,
        5,
    )
    assert (completion.error or "").startswith("loop")
    assert completion.steps == LOOP_REPEATS + 1
    assert len([message for message in history if message.role is Role.TOOL]) == LOOP_REPEATS + 1


async def test_two_calls_in_turn_are_left_to_the_limit_of_steps() -> None:
    """The window holds ten steps: of A B A B ... each is in it five times, which is still no loop."""
    two = [("echo", {"n": number % 2}, f"c{number}") for number in range(50)]
    model = FakeModel(*[calls(each) for each in two])
    with anyio.fail_after(5):
        async with opened(model, FakeTool("echo", echo)) as engine:
            completion, _ = await finish(engine, "echo", max_steps=20)
    assert completion.finish_reason is FinishReason.MAX_STEPS


@pytest.mark.parametrize("what_changes", ["the arguments", "the result"])
async def test_call_that_gets_somewhere_is_no_loop(what_changes: str) -> None:
    counted = 0

    async def count(_arguments: dict[str, Any]) -> str:
        nonlocal counted
        counted += 1
        return str(counted) if what_changes == "the result" else "same"

    numbers = range(12)
    arguments = [{"n": number if what_changes == "the arguments" else 0} for number in numbers]
    model = FakeModel(*[calls(("count", arguments[number], f"c{number}")) for number in numbers], says("done"))
    with anyio.fail_after(5):
        async with opened(model, FakeTool("count", count)) as engine:
            completion, _ = await finish(engine, "count")
    assert (completion.text, completion.steps) == ("done", 13)


# --- follow-ups ------------------------------------------------------------------------------------------------------


async def test_follow_ups_join_behind_the_results_in_the_order_they_came() -> None:
    gate = Gate()

    async def hold(_arguments: dict[str, Any]) -> str:
        await gate.hold()
        return "held"

    model = FakeModel(calls(("hold", {})), says("all"))
    with anyio.fail_after(5):
        async with opened(model, FakeTool("hold", hold)) as engine:
            session_id = (await engine.submit(request("first", tools=["hold"]))).session_id
            await gate.reached.wait()
            for text in ("one more", "and another"):
                await engine.submit(request(text, run_id=None, session_id=session_id))
            gate.open()
            await engine.wait("r1")
            stored = await engine.store.load_history(session_id)
    sent = model.requests[1].messages
    roles = [Role.USER, Role.ASSISTANT, Role.TOOL, Role.USER, Role.USER]
    assert [message.role for message in sent] == roles
    assert [message.text for message in sent if message.role is Role.USER] == ["first", "one more", "and another"]
    assert [message.role for message in stored] == [*roles, Role.ASSISTANT]


async def test_follow_up_of_a_turn_that_is_cancelled_is_dropped_with_it_and_not_folded() -> None:
    gate = Gate()
    model = FakeModel([gate, *calls(("echo", {}))])
    with anyio.fail_after(5):
        async with opened(model, FakeTool("echo", echo)) as engine:
            session_id = (await engine.submit(request("first", tools=["echo"]))).session_id
            await gate.reached.wait()
            await engine.submit(request("too late", run_id=None, session_id=session_id))
            await engine.cancel(session_id)
            await engine.wait("r1")
            await engine.dispatcher.wait_settled()
            texts = [message.text for message in await engine.store.load_history(session_id)]
    assert (texts, len(model.requests)) == (["first", ""], 1)
