"""Answers that are none, or not whole: empty, cut, filtered, broken off; and what was paid for them (design, 6)."""

from __future__ import annotations

import anyio
import pytest

from engine.event import RetryScheduled
from engine.lifecycle import FinishReason, RunState
from engine.message import FinishPart, ReasoningPart, ToolCallPart
from engine.model.base import FaultKind, ModelFault, ModelFinish, ReasoningChunk, ResponseEnd, TextChunk
from engine.run import Usage
from engine.turn.loop import LOOP_REPEATS
from tests.fakes import USAGE, FakeModel, FakeTool, Gate, Item, calls, echo, opened, request, says
from tests.turn.provider import refusals
from tests.turn.scenario import finish, saying
from tests.turn.tools import stored_results

pytestmark = pytest.mark.anyio

SILENT: list[Item] = [ResponseEnd(ModelFinish.STOP, usage=USAGE)]
THINKING: list[Item] = [ReasoningChunk("hm"), *SILENT]


@pytest.mark.parametrize(
    "nothing",
    [SILENT, THINKING, says(" \n"), [ResponseEnd(ModelFinish.TOOL_CALLS, usage=USAGE)]],
    ids=["nothing at all", "reasoning alone", "white space", "calls announced and none sent"],
)
async def test_empty_answer_is_asked_for_once_more_and_is_then_a_failure(nothing: list[Item]) -> None:
    with anyio.fail_after(5):
        async with opened(FakeModel(nothing, says("Hello"))) as engine:
            completion, _ = await finish(engine)
        assert (completion.text, completion.exit_code, completion.retries) == ("Hello", 0, 1)
        assert (completion.steps, completion.usage) == (1, USAGE + USAGE), "both responses were paid for"
        model = FakeModel(nothing, nothing)
        async with opened(model) as engine:
            completion, history = await finish(engine)
    assert (completion.status, completion.exit_code, len(model.requests)) == (RunState.FAILED, 1, 2)
    assert "empty response" in (completion.error or "")
    assert completion.text.strip() == ""
    assert history[-1].parts_of(FinishPart)[0].reason is FinishReason.ERROR


async def test_retry_for_an_empty_answer_is_announced() -> None:
    with anyio.fail_after(5):
        async with opened(FakeModel(SILENT, says("Hello"))) as engine:
            with engine.subscribe(run_id="r1") as events:
                await finish(engine)
                told = []
                while (event := events.next_nowait()) is not None:
                    told.append(event)
    assert [event.error for event in told if isinstance(event, RetryScheduled)] == ["empty response"]


async def test_thoughts_of_an_empty_answer_are_kept_for_people() -> None:
    with anyio.fail_after(5):
        async with opened(FakeModel(THINKING, THINKING)) as engine:
            _, history = await finish(engine)
    assert history[-1].parts_of(ReasoningPart) == [ReasoningPart("hm")]


async def test_answer_cut_by_the_output_limit_is_told_with_what_there_is() -> None:
    """Exit 5: a cut answer is no answer."""
    with anyio.fail_after(5):
        async with opened(FakeModel(says("Once upon a", finish=ModelFinish.LENGTH))) as engine:
            completion, history = await finish(engine)
    assert (completion.status, completion.exit_code, completion.text) == (RunState.FAILED, 5, "Once upon a")
    assert completion.finish_reason is FinishReason.MAX_TOKENS
    assert "output limit" in (completion.error or "")
    assert history[-1].parts_of(FinishPart)[0].reason is FinishReason.MAX_TOKENS


async def test_output_limit_met_before_the_first_word_is_told_at_once() -> None:
    model = FakeModel([ReasoningChunk("hm"), ResponseEnd(ModelFinish.LENGTH, usage=USAGE)])
    with anyio.fail_after(5):
        async with opened(model) as engine:
            completion, _ = await finish(engine)
    assert (completion.exit_code, completion.retries) == (5, 0)


async def test_calls_of_a_cut_response_are_not_run_and_the_model_is_told_why() -> None:
    """A24: and the turn goes on."""
    tool = FakeTool("echo", echo)
    cut = saying("writing", calls(("echo", {}), ("echo", '{"half'), finish=ModelFinish.LENGTH))
    model = FakeModel(cut, says("shorter"))
    with anyio.fail_after(5):
        async with opened(model, tool) as engine:
            session_id = (await engine.submit(request(tools=["echo"]))).session_id
            completion = await engine.wait("r1")
            results = await stored_results(engine, session_id)
    assert tool.started == 0
    assert [(result.is_error, "cut by the output limit" in result.text) for result in results] == [(True, True)] * 2
    assert (completion.text, completion.exit_code, completion.steps) == ("shorter", 0, 2)
    assert refusals(model.requests[1].messages) == []


async def test_model_that_is_cut_at_the_same_call_for_ever_is_stopped() -> None:
    model = FakeModel(*[calls(("echo", {}), finish=ModelFinish.LENGTH) for _ in range(50)])
    with anyio.fail_after(5):
        async with opened(model, FakeTool("echo", echo)) as engine:
            completion, _ = await finish(engine, "echo")
    assert (completion.finish_reason, completion.steps) == (FinishReason.LIMIT, LOOP_REPEATS + 1)


@pytest.mark.parametrize("text", ["", "I would"])
async def test_filtered_answer_is_a_failure_that_keeps_what_was_said(text: str) -> None:
    with anyio.fail_after(5):
        async with opened(FakeModel(says(text, finish=ModelFinish.CONTENT_FILTER))) as engine:
            completion, _ = await finish(engine)
    assert (completion.status, completion.exit_code, completion.text) == (RunState.FAILED, 1, text)
    assert "content filter" in (completion.error or "")


async def test_calls_of_a_filtered_response_are_not_run() -> None:
    """A24: never on an abnormal finish; there is no whole response to act on."""
    tool = FakeTool("echo", echo)
    model = FakeModel(calls(("echo", {}), finish=ModelFinish.CONTENT_FILTER))
    with anyio.fail_after(5):
        async with opened(model, tool) as engine:
            completion, history = await finish(engine, "echo")
    assert (completion.exit_code, tool.started, len(model.requests)) == (1, 0, 1)
    assert [part for message in history for part in message.parts_of(ToolCallPart)] == []


async def test_calls_count_whatever_the_provider_says_of_the_finish() -> None:
    """Some say `stop` and send calls."""
    tool = FakeTool("echo", echo)
    model = FakeModel(calls(("echo", {}), finish=ModelFinish.STOP), says("done"))
    with anyio.fail_after(5):
        async with opened(model, tool) as engine:
            completion, _ = await finish(engine, "echo")
    assert (completion.text, tool.started) == ("done", 1)


async def test_nothing_runs_from_a_response_that_broke_off() -> None:
    tool = FakeTool("echo", echo)
    broken: list[Item] = [TextChunk("I will"), ModelFault(FaultKind.CUT, "reset", retry_after_seconds=0)]
    with anyio.fail_after(5):
        async with opened(FakeModel(broken, broken), tool) as engine:
            completion, history = await finish(engine, "echo", retries_max=1)
    assert (completion.status, completion.exit_code, completion.text) == (RunState.FAILED, 1, "I will")
    assert (tool.started, completion.retries, completion.usage) == (0, 1, Usage())
    assert history[-1].parts_of(FinishPart)[0].is_partial


async def test_retry_that_helped_leaves_no_trace_in_the_exit_code() -> None:
    broken: list[Item] = [TextChunk("Hal"), ModelFault(FaultKind.SERVER, "ill", retry_after_seconds=0)]
    with anyio.fail_after(5):
        async with opened(FakeModel(broken, says("Hello"))) as engine:
            completion, history = await finish(engine)
    assert (completion.exit_code, completion.text, completion.retries, completion.error) == (0, "Hello", 1, None)
    assert len(history) == 2


async def test_usage_of_a_run_that_failed_counts_what_was_answered() -> None:
    model = FakeModel(calls(("echo", {})), [ModelFault(FaultKind.AUTH, "the key has expired")])
    with anyio.fail_after(5):
        async with opened(model, FakeTool("echo", echo)) as engine:
            completion, _ = await finish(engine, "echo")
    assert (completion.status, completion.usage, completion.steps) == (RunState.FAILED, USAGE, 2)
    assert completion.error == "the key has expired"


async def test_usage_of_a_cancelled_run_counts_what_was_answered() -> None:
    gate = Gate()
    model = FakeModel(calls(("echo", {})), [gate])
    with anyio.fail_after(5):
        async with opened(model, FakeTool("echo", echo)) as engine:
            await engine.submit(request(tools=["echo"]))
            await gate.reached.wait()
            await engine.cancel_run("r1")
            completion = await engine.wait("r1")
    assert (completion.status, completion.usage) == (RunState.CANCELLED, USAGE)


async def test_error_of_a_run_is_text_that_any_output_takes() -> None:
    with anyio.fail_after(5):
        async with opened(FakeModel([RuntimeError("caf\udce9\x00")])) as engine:
            with engine.subscribe(run_id="r1") as events:
                completion, _ = await finish(engine)
                told = None
                while (event := events.next_nowait()) is not None:
                    told = event
    assert completion.error == "internal error: RuntimeError: caf\ufffd\ufffd"
    assert getattr(told, "completion", None) == completion, "what is announced is what is stored"
