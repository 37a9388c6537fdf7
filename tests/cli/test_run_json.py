"""`--output json` and `jsonl`: what programs read."""

from __future__ import annotations

import dataclasses

import jsonschema
import orjson
import pytest

from cli import output_json
from cli.schema import event_schema
from engine.event import (
    Event,
    MessageSaved,
    Notice,
    ReasoningDelta,
    RetryScheduled,
    RunQueued,
    RunStarted,
    TextDelta,
    ToolEnded,
    ToolStarted,
)
from engine.lifecycle import FinishReason, RunState
from engine.message import (
    FilePart,
    FinishPart,
    Message,
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from engine.run import RunComplete, Usage
from tests.cli.commands import Agent

BREAKS = "a\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\r\nb"
MESSAGE = Message(
    "m1",
    Role.ASSISTANT,
    (
        TextPart(BREAKS),
        ReasoningPart("hm"),
        ToolCallPart("c1", "read", "{}"),
        ToolResultPart("c1", "read", "x", is_error=True, size=1),
        FilePart("a.txt", "text/plain", text="x"),
        FinishPart(FinishReason.END_TURN),
    ),
    "2026-11-30T10:00:00.000000Z",
)
EVENTS: tuple[Event, ...] = (
    RunQueued("r", "s", "another run"),
    MessageSaved("r", "s", MESSAGE),
    ToolStarted("r", "s", "c1", "read", '{"path": "x"}'),
    ToolEnded("r", "s", "c1", "read", False, "1 line"),
    RetryScheduled("r", "s", 1, 0.5, "429"),
    Notice("r", "s", "look"),
)


def validate(line: object) -> None:
    jsonschema.Draft202012Validator(event_schema()).validate(line)


def test_json_is_one_object_with_the_keys_of_run_complete(agent: Agent) -> None:
    agent.answers("ping", changes={"usage": Usage(3, 4)})
    result = agent("run", "--output", "json", "--run-id", "r1", "ping")
    assert result.out.count("\n") == 1
    completion = orjson.loads(result.out)
    assert list(completion) == [each.name for each in dataclasses.fields(RunComplete)]
    assert (completion["text"], completion["usage"]["output_tokens"]) == ("pong", 4)


def test_jsonl_begins_with_the_run_id_and_ends_with_the_completion(agent: Agent) -> None:
    agent.answers("ping", events=EVENTS)
    result = agent("run", "--output", "jsonl", "--run-id", "r1", "ping")
    types = [line["type"] for line in result.lines]
    assert types == [
        "run_accepted",
        "run_started",
        "run_queued",
        "message",
        "tool_started",
        "tool_ended",
        "retry",
        "notice",
        "run_complete",
    ]
    assert result.lines[0]["run_id"] == "r1"
    assert result.lines[-1]["text"] == "pong"


def test_every_line_fits_the_published_schema(agent: Agent) -> None:
    agent.answers("ping", events=EVENTS)
    for line in agent("run", "--output", "jsonl", "ping").lines:
        validate(line)
    for line in agent("run", "--input", "jsonl", stdin='{"prompt": "ping"}\nnot json\n').lines:
        validate(line)


def test_the_schema_refuses_a_line_that_lacks_a_key() -> None:
    line = orjson.loads(output_json.complete_line(RunComplete("r", "s")))
    validate(line)
    del line["usage"]
    with pytest.raises(jsonschema.ValidationError):
        validate(line)


def test_the_schema_covers_every_event_type_but_the_deltas() -> None:
    lines = [output_json.event_line(event) for event in (*EVENTS, RunStarted("r", "s", "m"))]
    known = {each["$ref"].rpartition("/")[2] for each in event_schema()["oneOf"]}
    seen = {orjson.loads(line)["type"] for line in lines}
    assert known == seen | {"run_accepted", "run_complete", "error"}


def test_agent_schema_prints_the_schema(agent: Agent) -> None:
    result = agent("schema")
    assert orjson.loads(result.out) == event_schema()
    jsonschema.Draft202012Validator.check_schema(event_schema())


def test_deltas_are_left_out(agent: Agent) -> None:
    agent.answers("ping", events=(TextDelta("r", "s", "po"), ReasoningDelta("r", "s", "hm")))
    result = agent("run", "--output", "jsonl", "ping")
    assert {line["type"] for line in result.lines} == {"run_accepted", "run_started", "run_complete"}


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_no_line_holds_a_line_break_of_any_kind(agent: Agent, output: str) -> None:
    agent.answers("ping", text=BREAKS, events=EVENTS)
    result = agent("run", "--output", output, "ping")
    lines = result.out.splitlines()
    assert len(lines) == result.out.count("\n")
    assert orjson.loads(lines[-1])["text"] == BREAKS


def test_a_cancelled_run_has_the_same_keys(agent: Agent) -> None:
    agent.answers(
        "ping",
        changes={
            "status": RunState.CANCELLED,
            "finish_reason": FinishReason.CANCELLED,
            "cancelled": True,
            "exit_code": 4,
        },
    )
    result = agent("run", "--output", "jsonl", "ping")
    assert result.code == 4
    validate(result.lines[-1])
    assert set(result.lines[-1]) == {"type", *(each.name for each in dataclasses.fields(RunComplete))}


def test_progress_goes_to_standard_error_in_every_form(agent: Agent) -> None:
    agent.answers("ping", events=EVENTS)
    for output in ("text", "json", "jsonl"):
        err = agent("run", "--output", output, "--run-id", f"r-{output}", "ping").err
        assert 'tool: read {"path": "x"}' in err
        assert "retry 1 in 0.5 s: 429" in err
        assert "notice: look" in err
