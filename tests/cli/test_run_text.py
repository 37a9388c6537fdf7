"""`agent run` in its default form: the answer on standard output, everything else on standard error."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from engine.lifecycle import FinishReason, RunState
from tests.cli.commands import Agent


def test_standard_output_carries_the_answer_and_nothing_else(agent: Agent) -> None:
    result = agent("run", "ping", "--run-id", "r1")
    assert (result.code, result.out) == (0, "pong\n")
    assert result.err == "run: r1\n"


def test_quiet_leaves_standard_error_empty(agent: Agent) -> None:
    assert agent("run", "-q", "ping").err == ""


def test_words_are_joined_and_options_may_stand_between_them(agent: Agent) -> None:
    agent("run", "-q", "fix", "--max-steps", "3", "this")
    request = agent.client.requests[0]
    assert (request.prompt.text, request.limits.max_steps) == ("fix this", 3)


@pytest.mark.parametrize("word", ["- fix this", "-x foo", "--not an option", "-m a=b c", "-\tx"])
def test_a_prompt_may_begin_with_a_dash_when_it_has_white_space(agent: Agent, word: str) -> None:
    assert agent("run", word).code == 0
    assert agent.client.requests[0].prompt.text == word


def test_two_dashes_end_the_options(agent: Agent) -> None:
    agent("run", "-q", "--", "--model", "-x foo")
    assert agent.client.requests[0].prompt.text == "--model -x foo"


def test_values_of_options_may_look_like_options(agent: Agent) -> None:
    agent("run", "ping", "--system", "-be terse now", "--model=openai/a b")
    request = agent.client.requests[0]
    assert (request.system, request.model) == ("-be terse now", "openai/a b")


def test_standard_input_follows_the_words(agent: Agent) -> None:
    agent("run", "summarise", stdin="line 1\nline 2\n")
    assert agent.client.requests[0].prompt.text == "summarise\n\nline 1\nline 2"


def test_invalid_utf_8_in_standard_input_is_replaced(agent: Agent) -> None:
    assert agent("run", stdin=b"caf\xe9 \x00!").code == 0
    assert agent.client.requests[0].prompt.text == "caf\ufffd \ufffd!"


def test_invalid_utf_8_in_an_argument_is_replaced(agent: Agent) -> None:
    agent("run", os.fsdecode(b"caf\xe9"))
    assert agent.client.requests[0].prompt.text == "caf\ufffd"


@pytest.mark.parametrize("args", [[], [""], ["  ", "\n"]])
def test_an_empty_prompt_is_refused_and_nothing_is_stored(agent: Agent, args: list[str]) -> None:
    result = agent("run", *args, stdin="\n \n")
    assert result.code == 2
    assert result.err.startswith("agent: the prompt is empty")
    assert not agent.was_opened
    assert not (agent.home / "home").exists()


def test_a_failed_run_says_why_in_one_line_and_exits_as_the_engine_decided(agent: Agent) -> None:
    agent.answers(
        "ping",
        text="half",
        changes={
            "status": RunState.FAILED,
            "finish_reason": FinishReason.ERROR,
            "error": "bad\nkey",
            "exit_code": 1,
        },
    )
    result = agent("run", "-q", "ping")
    assert (result.code, result.out) == (1, "half\n")
    assert result.err == "agent: bad key; what there was of the answer is on standard output\n"


def test_a_failed_run_without_text_prints_nothing_at_all(agent: Agent) -> None:
    agent.answers("ping", text="", changes={"status": RunState.FAILED, "error": "no route", "exit_code": 124})
    assert agent("run", "ping").out == ""


def test_a_used_run_id_replays_its_result_and_exit_code(agent: Agent) -> None:
    agent.client.add_run("r1", "ping", status=RunState.FAILED, exit_code=5, error="limit met")
    result = agent("run", "--run-id", "r1", "ping")
    assert (result.code, result.out) == (5, "old\n")
    assert "replayed" in result.err


def test_another_prompt_with_a_used_run_id_is_refused(agent: Agent) -> None:
    agent.client.add_run("r1", "ping")
    result = agent("run", "-q", "--run-id", "r1", "other")
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1


def test_continue_takes_the_session_that_was_used_last(agent: Agent) -> None:
    agent.client.add_run("r1", "ping")
    assert agent("run", "--continue", "and now?").code == 0
    assert agent.client.requests[0].session_id == "ses-old"


def test_continue_without_a_session_is_refused(agent: Agent) -> None:
    result = agent("run", "-c", "ping")
    assert result.code == 2
    assert not agent.client.requests


def test_an_unknown_session_is_refused_by_name(agent: Agent) -> None:
    result = agent("run", "--session", "nope", "ping")
    assert result.code == 2
    assert "'nope'" in result.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_cancels_the_run_and_waits_for_its_completion(agent: Agent, number: signal.Signals, code: int) -> None:
    before = signal.getsignal(number)
    agent.answers("ping", hangs=True, hook=lambda: os.kill(os.getpid(), number))
    result = agent("run", "--run-id", "r1", "ping")
    assert result.code == code
    assert [(run_id, reason.name) for run_id, reason in agent.client.cancels] == [("r1", number.name)]
    assert agent.client.runs["r1"].state is RunState.CANCELLED
    assert signal.getsignal(number) is before


def test_an_ignored_signal_stays_ignored(agent: Agent) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        agent.answers("ping", hook=lambda: os.kill(os.getpid(), signal.SIGHUP))
        assert agent("run", "ping").code == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_while_the_run_is_being_accepted_cancels_it_once_it_is(agent: Agent) -> None:
    async def strike() -> None:
        import anyio

        os.kill(os.getpid(), signal.SIGTERM)
        await anyio.lowlevel.checkpoint()

    agent.client.on_submit = strike
    agent.answers("ping", hangs=True)
    result = agent("run", "--run-id", "r1", "ping")
    assert result.code == 143
    assert agent.client.runs["r1"].completion is not None


def test_interrupting_an_attached_run_cancels_it_and_exits_as_interrupted(agent: Agent) -> None:
    agent.client.add_live_run("far", "ping")

    async def strike() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    agent.client.on_submit = strike
    result = agent("run", "--run-id", "far", "ping")
    assert result.code == 130
    assert agent.client.runs["far"].completion is not None


def test_output_file_holds_the_answer_whatever_the_outcome(agent: Agent, tmp_path: Path) -> None:
    target = tmp_path / "answer.md"
    target.write_text("before")
    target.chmod(0o640)
    agent.answers("ping", text="half", changes={"status": RunState.FAILED, "error": "x", "exit_code": 1})
    assert agent("run", "ping", "--output-file", str(target)).code == 1
    assert target.read_text() == "half\n"
    assert target.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def test_an_output_file_that_cannot_be_written_is_found_before_the_run(agent: Agent, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "such"):
        result = agent("run", "ping", "--output-file", str(path))
        assert (result.code, result.err.count("\n")) == (2, 1)
    assert not agent.was_opened
