"""`--input jsonl`: many requests in one process, one answer for each."""

from __future__ import annotations

import os
import signal

import orjson
import pytest

from engine.lifecycle import RunState
from engine.run import StopReason
from tests.cli.commands import Agent, Result

FAILED = {"status": RunState.FAILED, "error": "no route", "exit_code": 1}


def requests(*items: object) -> bytes:
    return b"".join(orjson.dumps(item) + b"\n" for item in items)


def run_lines(agent: Agent, *items: object) -> Result:
    return agent("run", "--input", "jsonl", stdin=requests(*items))


def test_each_prompt_is_answered_with_one_run_complete_line(agent: Agent) -> None:
    result = run_lines(agent, {"prompt": "a", "run_id": "r1"}, {"prompt": "b"})
    assert result.code == 0
    assert {line["type"] for line in result.lines} == {"run_complete"}
    assert sorted(line["line"] for line in result.lines) == [1, 2]
    assert "r1" in {line["run_id"] for line in result.lines}


def test_prompts_of_one_session_are_submitted_in_input_order(agent: Agent) -> None:
    agent.client.add_run("r0", "first")
    run_lines(agent, *({"prompt": f"p{number}", "session": "ses-old"} for number in range(20)))
    assert [request.prompt.text for request in agent.client.requests] == [f"p{each}" for each in range(20)]


def test_a_session_that_hangs_keeps_no_other_waiting(agent: Agent) -> None:
    agent.answers("hang", hangs=True)
    result = run_lines(
        agent, {"prompt": "hang", "run_id": "slow"}, {"prompt": "ping", "run_id": "fast"}, {"cancel": "slow"}
    )
    by_id = {line["run_id"]: line["status"] for line in result.lines}
    assert by_id == {"slow": "cancelled", "fast": "completed"}
    assert result.code == 4


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"not json", "not JSON"),
        (b"[1]", "a JSON object"),
        (b'"text"', "a JSON object"),
        (b'{"prompt": 1}', "prompt is a string"),
        (b'{"prompt": "x", "colour": 1}', "unknown key 'colour'"),
        (b'{"prompt": " "}', "the prompt is empty"),
        (b'{"prompt": "x", "run_id": "a b"}', "illegal run id"),
        (b'{"prompt": "x", "run_id": 7}', "run_id is a string"),
        (b'{"prompt": "x", "session": "nope"}', "no session 'nope'"),
        (b'{"cancel": "nope"}', "no run 'nope'"),
        (b'{"cancel": "r1", "prompt": "x"}', "unknown key 'prompt'"),
        (b'{"cancel_session": "nope"}', "no session 'nope'"),
        (b'{"clear_queue": "nope"}', "no session 'nope'"),
        (b"{}", "the key prompt"),
    ],
)
def test_a_bad_line_gets_an_error_line_with_its_number_and_the_rest_go_on(
    agent: Agent, bad: bytes, reason: str
) -> None:
    stdin = b'{"prompt": "a"}\n\n' + bad + b'\n{"prompt": "b"}'
    result = agent("run", "--input", "jsonl", stdin=stdin)
    errors = [line for line in result.lines if line["type"] == "error"]
    assert [error["line"] for error in errors] == [3]
    assert reason in errors[0]["error"]
    assert [line["type"] for line in result.lines].count("run_complete") == 2
    assert result.code == 2


def test_the_exit_code_is_that_of_the_worst_run(agent: Agent) -> None:
    agent.answers("bad", changes=FAILED)
    agent.answers("limit", changes={"status": RunState.FAILED, "exit_code": 5})
    assert run_lines(agent, {"prompt": "limit"}, {"prompt": "bad"}, {"prompt": "good"}).code == 1


def test_ctrl_c_cancels_the_active_drops_the_queued_and_answers_them_all(agent: Agent) -> None:
    agent.client.add_run("r0", "first")
    agent.answers("hang", hangs=True, hook=lambda: os.kill(os.getpid(), signal.SIGINT))
    result = run_lines(agent, *({"prompt": "hang", "run_id": f"r{each}", "session": "ses-old"} for each in range(1, 5)))
    assert result.code == 130
    assert sorted(line["run_id"] for line in result.lines) == ["r1", "r2", "r3", "r4"]
    assert {line["status"] for line in result.lines} == {"cancelled"}


def test_a_request_being_accepted_when_the_signal_comes_gets_its_line(agent: Agent) -> None:
    async def strike() -> None:
        agent.client.on_submit = None
        os.kill(os.getpid(), signal.SIGTERM)

    agent.client.on_submit = strike
    agent.answers("hang", hangs=True)
    result = run_lines(agent, {"prompt": "hang", "run_id": "r1"}, {"prompt": "hang", "run_id": "r2"})
    assert result.code == 143
    assert {line["run_id"] for line in result.lines} == set(agent.client.runs)
    assert all(run.reason is StopReason.SIGTERM for run in agent.client.runs.values())


def test_clear_queue_drops_what_waits_and_leaves_the_active_run(agent: Agent) -> None:
    agent.client.add_run("r0", "first")
    agent.answers("hang", hangs=True)
    session = {"session": "ses-old"}
    result = run_lines(
        agent,
        {"prompt": "hang", "run_id": "active"} | session,
        {"prompt": "x", "run_id": "waiting"} | session,
        {"clear_queue": "ses-old"},
        {"cancel_session": "ses-old"},
    )
    assert [line["run_id"] for line in result.lines] == ["waiting", "active"]


@pytest.mark.parametrize(
    "flags",
    [
        ["ping"],
        ["--run-id", "r1"],
        ["--session", "s"],
        ["--continue"],
        ["--output-file", "x"],
        ["--file", "x"],
        ["--output", "text"],
        ["--no-stdin"],
    ],
)
def test_flags_for_one_run_are_refused(agent: Agent, flags: list[str]) -> None:
    result = agent("run", "--input", "jsonl", *flags)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert not agent.was_opened


def test_a_line_that_is_far_too_long_is_refused_and_the_rest_go_on(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cli import line_reader, request_line

    monkeypatch.setattr(request_line, "LINE_MAX", 100)
    monkeypatch.setattr(line_reader, "LINE_MAX", 100)
    result = run_lines(agent, {"prompt": "x" * 100_000}, {"prompt": "ping"})
    assert [line["type"] for line in result.lines] == ["error", "run_complete"]
