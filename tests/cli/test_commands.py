"""`cancel`, `wait`, `show`, `runs`, `sessions`, `doctor`."""

from __future__ import annotations

import orjson
import pytest

from cli import exit_code, wiring
from engine.errors import ConfigurationError
from engine.lifecycle import RunState
from engine.message import FilePart
from engine.run import Prompt
from tests.cli.commands import Agent


def test_cancel_gives_three_distinct_answers(agent: Agent) -> None:
    agent.client.add_run("done", "ping")
    agent.client.add_live_run("far", "ping")
    unknown, ended, running = (agent("cancel", run_id) for run_id in ("nope", "done", "far"))
    assert (unknown.code, unknown.out) == (2, "")
    assert "'nope'" in unknown.err
    assert (ended.code, ended.out) == (0, "run done: already ended (completed)\n")
    assert (running.code, running.out) == (0, "run far: cancelled\n")


def test_cancel_of_a_session_tells_what_it_hit(agent: Agent) -> None:
    agent.client.add_live_run("far", "ping")
    assert agent("cancel", "--session", "ses-far").out == "run far: cancelled\n"
    assert agent("cancel", "--session", "ses-far").out == "session ses-far: nothing to cancel\n"
    assert agent("cancel", "--session", "nope").code == 2


def test_cancel_says_when_a_run_is_still_stopping(agent: Agent) -> None:
    run = agent.client.add_live_run("far", "ping")
    run.session_id = "ses-stubborn"
    result = agent("cancel", "far", "--timeout", "0.01")
    assert (result.code, result.out) == (124, "")
    assert "run far is still stopping" in result.err


def test_wait_prints_the_result_and_exits_as_the_run_did(agent: Agent) -> None:
    agent.client.add_run("r1", "ping", status=RunState.FAILED, exit_code=5, error="limit met")
    result = agent("wait", "r1")
    assert (result.code, result.out) == (5, "old\n")
    assert result.err.startswith("agent: limit met")
    assert orjson.loads(agent("wait", "r1", "--output", "json").out)["exit_code"] == 5


def test_wait_gives_up_after_its_timeout_naming_the_run(agent: Agent) -> None:
    run = agent.client.add_live_run("far", "ping")
    result = agent("wait", "far", "--timeout", "0.01")
    assert (result.code, result.out) == (124, "")
    assert "far" in result.err
    assert run.completion is None


def test_wait_for_an_unknown_run_is_refused(agent: Agent) -> None:
    assert agent("wait", "nope").code == 2


def test_show_tells_all_that_is_on_record(agent: Agent) -> None:
    agent.client.add_run("r1", "the prompt", error="it broke", text="partial")
    result = agent("show", "r1")
    assert result.code == 0
    for piece in ("r1", "ses-old", "completed", "the prompt", "it broke", "partial", "tokens"):
        assert piece in result.out
    assert agent("show", "nope").code == 2


def test_show_as_json_names_attachments_without_repeating_them(agent: Agent) -> None:
    agent.client.add_run("r1", "x")
    request = agent.client.runs["r1"].request
    object.__setattr__(request, "prompt", Prompt("look", (FilePart("a.png", "image/png", data="AAAA"),)))
    record = orjson.loads(agent("show", "r1", "--output", "json").out)
    assert (record["prompt"], record["files"]) == ("look", ["a.png"])
    assert record["completion"]["run_id"] == "r1"


def test_runs_are_listed_newest_first(agent: Agent) -> None:
    for run_id in ("r1", "r2", "r3"):
        agent.client.add_run(run_id, f"prompt of {run_id}\nwith lines")
    lines = agent("runs", "--limit", "2").out.splitlines()
    assert [line.split()[0] for line in lines] == ["RUN", "r3", "r2"]
    assert [each["run_id"] for each in orjson.loads(agent("runs", "--output", "json").out)] == ["r3", "r2", "r1"]
    assert [line["run_id"] for line in agent("runs", "--output", "jsonl").lines] == ["r3", "r2", "r1"]
    assert agent("runs", "--session", "nope").code == 2


def test_sessions_are_listed(agent: Agent) -> None:
    agent.client.add_run("r1", "x")
    assert "ses-old" in agent("sessions").out
    assert [line["session_id"] for line in agent("sessions", "--output", "jsonl").lines] == ["ses-old"]


def test_an_empty_list_is_a_heading_or_nothing(agent: Agent) -> None:
    assert agent("runs").out.startswith("RUN")
    assert agent("runs", "--output", "json").out == "[]\n"
    assert agent("runs", "--output", "jsonl").out == ""


def test_doctor_finds_what_is_broken(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "find_embedded", lambda settings: "installed")
    assert agent("doctor").code == 0

    def no_model(settings: object, name: object) -> None:
        raise ConfigurationError("no model is configured")

    monkeypatch.setattr(wiring, "resolve_model", no_model)
    result = agent("doctor")
    assert result.code == 1
    assert "BROKEN  model:          no model is configured" in result.out
    findings = {each["name"]: each["is_ok"] for each in orjson.loads(agent("doctor", "--output", "json").out)}
    assert findings["store"] is True
    assert findings["model"] is False


@pytest.mark.parametrize(
    ("codes", "worst"),
    [([], 0), ([0, 0], 0), ([0, 4], 4), ([5, 4], 5), ([124, 5], 124), ([1, 124], 1), ([130, 1], 130), ([77, 1], 77)],
)
def test_the_worst_of_some_codes(codes: list[int], worst: int) -> None:
    assert exit_code.worst(codes) == worst
