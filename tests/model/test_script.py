"""Answers replayed from a file or a list."""

from __future__ import annotations

import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from engine.errors import ConfigurationError
from engine.message import Role, ToolResultPart
from engine.model.base import FaultKind, ModelFinish, RawToolCall, ReasoningChunk, ResponseEnd, TextChunk
from engine.model.script import ScriptModel
from engine.model.script_file import Gate, scripted
from engine.run import Usage
from tests.model.asking import answer_of, asks, events_of, fault_of, said, user

pytestmark = pytest.mark.anyio


def script(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "script.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


async def test_a_file_is_replayed_in_order(tmp_path: Path) -> None:
    call = {"id": "a", "name": "read", "arguments": {"path": "x"}}
    responses = [
        {"chunks": ["hel", "lo"], "reasoning": "hm", "tool_calls": [call], "usage": {"input_tokens": 3}},
        {"text": "done", "finish": "length"},
    ]
    model = ScriptModel.from_file(script(tmp_path, {"responses": responses}))
    first, second = await events_of(model), await events_of(model)
    assert [event for event in first if isinstance(event, ReasoningChunk | TextChunk)] == [
        ReasoningChunk("hm"), TextChunk("hel"), TextChunk("lo"),
    ]  # fmt: skip
    assert first[-1] == ResponseEnd(ModelFinish.TOOL_CALLS, (RawToolCall("a", "read", '{"path":"x"}'),), Usage(3))
    assert second == [TextChunk("done"), ResponseEnd(ModelFinish.LENGTH)]
    assert model.calls == 2


async def test_a_script_that_is_used_up_says_so() -> None:
    model = ScriptModel([scripted(text="one")])
    await answer_of(model)
    fault, _ = await fault_of(model)
    assert fault.kind is FaultKind.CONFIG
    assert "1 response and all are used" in str(fault)


async def test_a_script_may_start_again(tmp_path: Path) -> None:
    model = ScriptModel.from_file(script(tmp_path, {"responses": [{"text": "a"}, {"text": "b"}], "repeat": True}))
    assert [(await answer_of(model))[0] for _ in range(5)] == ["a", "b", "a", "b", "a"]


async def test_broken_arguments_and_missing_ids_can_be_played() -> None:
    _, end = await answer_of(ScriptModel([scripted(tool_calls=[{"name": "read", "arguments": "{oops"}])]))
    assert end.tool_calls[0].arguments == "{oops"
    assert end.tool_calls[0].call_id


async def test_a_fault_comes_after_as_many_chunks_as_asked() -> None:
    fault = {"kind": "rate_limit", "message": "slow down", "retry_after_seconds": 2, "after_chunks": 1}
    raised, text = await fault_of(ScriptModel([scripted(chunks=["a", "b"], fault=fault)]))
    assert (raised.kind, str(raised), raised.retry_after_seconds, text) == (FaultKind.RATE_LIMIT, "slow down", 2.0, "a")
    _, text = await fault_of(ScriptModel([scripted(text="a", fault={"kind": "cut"})]))
    assert text == ""
    _, text = await fault_of(ScriptModel([scripted(text="a", fault={"kind": "cut", "after_chunks": 9})]))
    assert text == "a"


async def test_an_expectation_looks_at_the_last_message() -> None:
    results = asks(user("sum"), said(Role.TOOL, ToolResultPart("a", "read", "forty-two")))
    await answer_of(ScriptModel([scripted(text="a", expect="forty")]), results)
    fault, _ = await fault_of(ScriptModel([scripted(text="a", expect="sum")]), results)
    assert "'sum'" in str(fault)


async def test_a_gate_holds_between_chunks() -> None:
    before, between = Gate(), Gate()
    model = ScriptModel([scripted(chunks=["a", "b"], hold={0: before, 1: between})])
    seen: list[str] = []

    async def listen() -> None:
        async with aclosing(model.stream(asks())) as events:
            async for event in events:
                seen.append(getattr(event, "text", "end"))  # noqa: PERF401 - each is looked at as it comes

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await before.reached.wait()
            assert seen == []
            before.release.set()
            await between.reached.wait()
            assert seen == ["a"]
            between.release.set()
    assert seen == ["a", "b", "end"]


async def test_a_call_counts_before_anything_can_strike() -> None:
    model = ScriptModel([scripted(text="a")])
    with anyio.CancelScope() as scope:
        scope.cancel()
        await events_of(model)
    assert scope.cancelled_caught
    assert model.calls == 1


async def test_a_second_call_at_a_time_is_a_bug() -> None:
    gate = Gate()
    model = ScriptModel([scripted(text="a", hold=gate), scripted(text="b")])
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(events_of, model)
            await gate.reached.wait()
            with pytest.raises(AssertionError, match="in flight"):
                await events_of(model)
            gate.release.set()
    assert model.calls == 2
    assert (await answer_of(model))[0] == "b"


async def test_a_second_call_at_a_time_may_be_allowed() -> None:
    gate = Gate()
    model = ScriptModel([scripted(text="a", hold=gate), scripted(text="b")], allows_concurrent=True)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(events_of, model)
            await gate.reached.wait()
            assert (await answer_of(model))[0] == "b"
            gate.release.set()


async def test_a_delay_can_be_cancelled() -> None:
    model = ScriptModel([scripted(text="a", delay_seconds=1000)])
    with anyio.move_on_after(0.01) as scope:
        await events_of(model)
    assert scope.cancelled_caught


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("{", "no valid JSON"),
        ("3", "the top level must be an object"),
        ({}, "responses must be a list with at least one"),
        ({"responses": []}, "responses must be a list with at least one"),
        ({"responses": [3]}, "responses[0] must be an object"),
        ({"responses": [{}, {"txt": "x"}]}, "responses[1].txt is not known"),
        ({"responses": [{"text": 3}]}, "responses[0].text must be text"),
        ({"responses": [{"text": "a", "chunks": ["b"]}]}, "responses[0].chunks cannot stand beside text"),
        ({"responses": [{"chunks": "abc"}]}, "responses[0].chunks must be a list"),
        ({"responses": [{"chunks": [1]}]}, "responses[0].chunks must be a list of texts"),
        ({"responses": [{"tool_calls": [{}]}]}, "responses[0].tool_calls[0].name is missing"),
        ({"responses": [{"tool_calls": [{"name": "a", "arguments": 3}]}]}, "tool_calls[0].arguments must be an object"),
        ({"responses": [{"delay_seconds": -1}]}, "delay_seconds must be a number of seconds"),
        ({"responses": [{"delay_seconds": True}]}, "delay_seconds must be a number of seconds"),
        ({"responses": [{"usage": {"input_tokens": 1.5}}]}, "usage.input_tokens must be a whole number"),
        ({"responses": [{"finish": "soon"}]}, "finish must be one of stop, length"),
        ({"responses": [{"fault": {"kind": "odd"}}]}, "fault.kind must be one of connect"),
        ({"responses": [{"text": "a"}], "repeat": "yes"}, "repeat must be true or false"),
        ({"responses": [{"text": "a"}], "loop": True}, "loop is not known"),
    ],
)
def test_a_bad_file_is_refused_by_name_and_place(tmp_path: Path, content: Any, place: str) -> None:
    path = script(tmp_path, content)
    with pytest.raises(ConfigurationError) as caught:
        ScriptModel.from_file(path)
    assert place in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.json"):
        ScriptModel.from_file(tmp_path / "none.json")
