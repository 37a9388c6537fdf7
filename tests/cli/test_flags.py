"""Flags: what is refused, in one line, before anything is stored; what reaches the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli import VERSION
from cli.app import COMMANDS
from tests.cli.commands import Agent

NUMBERS = ["--max-steps", "--timeout", "--idle-timeout", "--stdin-wait", "--concurrency", "--save-timeout"]
BAD_NUMBERS = ["0", "-1", "nan", "inf", "-inf", "abc", "", "1_000", "\u0661", "1e400", "0.0", "99999999999999999999"]


def refuses(agent: Agent, *args: str) -> str:
    result = agent(*args)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("agent: ")
    assert result.err.count("\n") == 1
    assert not agent.was_opened
    return result.err


@pytest.mark.parametrize("flag", NUMBERS)
@pytest.mark.parametrize("value", BAD_NUMBERS)
def test_numbers_that_are_no_limit_are_refused(agent: Agent, flag: str, value: str) -> None:
    assert flag in refuses(agent, "run", "ping", flag, value)


def test_limits_reach_the_engine(agent: Agent) -> None:
    agent("run", "ping", "--timeout", "2.5", "--idle-timeout", "7", "--max-steps", "9")
    limits = agent.client.requests[0].limits
    assert (limits.timeout_seconds, limits.idle_seconds, limits.max_steps) == (2.5, 7, 9)


@pytest.mark.parametrize(
    "args",
    [
        ["run", "--nonsense", "ping"],
        ["run", "ping", "--model"],
        ["run", "ping", "--output", "xml"],
        ["run", "ping", "--input", "csv"],
        ["run", "ping", "--run-id", "a b"],
        ["run", "ping", "--run-id", ""],
        ["run", "ping", "--run-id", "x" * 129],
        ["run", "ping", "--run-id", "-x"],
        ["run", "ping", "--session", "../etc"],
        ["run", "ping", "--session", "a", "--continue"],
        ["run", "ping", "--tools", "read", "--no-tools"],
        ["run", "ping", "--tools", "telepathy"],
        ["run", "ping", "--tools", ","],
        ["run", "ping", "--allow", "everything"],
        ["run", "ping", "-", "--no-stdin"],
        ["nonsense"],
        ["wait"],
        ["wait", "r1", "--timeout", "0"],
        ["show", "a b"],
        ["cancel"],
        ["cancel", "r1", "--session", "s1"],
        ["runs", "--limit", "0"],
        ["models", "uninstall", "smollm2"],
    ],
)
def test_misuse_is_told_in_one_line(agent: Agent, args: list[str]) -> None:
    refuses(agent, *args)


def test_an_unknown_option_says_how_to_end_options(agent: Agent) -> None:
    assert "--" in refuses(agent, "run", "-x")


def test_a_near_miss_of_a_command_is_named(agent: Agent) -> None:
    assert "'run'" in refuses(agent, "rnu", "ping")


@pytest.mark.parametrize(
    ("flags", "tools"),
    [
        ([], "read glob grep ls"),
        (["--no-tools"], ""),
        (["--allow", "write"], "read glob grep ls write edit"),
        (["--allow", "write,shell"], "read glob grep ls write edit shell"),
        (["--allow", "write", "--allow", "shell"], "read glob grep ls write edit shell"),
        (["--allow", "all"], "read glob grep ls write edit shell"),
        (["--tools", "read, grep,read"], "read grep"),
        (["--tools", "read,edit", "--allow", "write"], "read edit"),
    ],
)
def test_tools_are_those_that_are_named_and_allowed(agent: Agent, flags: list[str], tools: str) -> None:
    assert agent("run", "ping", *flags).code == 0
    assert " ".join(agent.client.requests[0].tools) == tools


@pytest.mark.parametrize(("tool", "permission"), [("write", "write"), ("edit", "write"), ("shell", "shell")])
def test_naming_a_tool_that_changes_things_does_not_allow_it(agent: Agent, tool: str, permission: str) -> None:
    assert f"--allow {permission}" in refuses(agent, "run", "ping", "--tools", f"read,{tool}")


def test_a_text_file_is_attached(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfcaf\xe9")
    agent("run", "look", "--file", "a.txt", "-f", str(tmp_path / "a.txt"))
    files = agent.client.requests[0].prompt.files
    assert [(part.name, part.media_type, part.text) for part in files] == [("a.txt", "text/plain", "caf\ufffd")] * 2


def test_a_file_alone_is_a_prompt(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "task.md").write_text("do it")
    assert agent("run", "--file", "task.md").code == 0


def test_an_image_is_attached_for_models_that_take_images(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    assert agent("run", "look", "-f", "a.png").code == 0
    part = agent.client.requests[0].prompt.files[0]
    assert (part.media_type, part.data, part.text) == ("image/png", "iVBORw0KGgoAAA==", "")
    assert "image/png" in agent("run", "look", "-f", "a.png", "--model", "local/smollm2").err


def test_files_that_cannot_be_attached_are_refused_by_name(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cli import prompt

    (tmp_path / "blob").write_bytes(b"MZ\0\0")
    (tmp_path / "big").write_bytes(b"x" * 101)
    monkeypatch.setattr(prompt, "FILE_SIZE_MAX", 100)
    for path in ("missing", ".", "blob", "big", "nul\0byte"):
        assert "--file" in refuses(agent, "run", "look", "--file", path)


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_explains_itself_with_an_example(agent: Agent, command: str) -> None:
    result = agent(command, "--help")
    assert result.code == 0
    assert f"agent {command}" in result.out.partition("Examples:")[2]


def test_the_overview_lists_every_command_with_examples(agent: Agent) -> None:
    result = agent("--help")
    assert result.code == 0
    assert all(f"  {command} " in result.out for command in COMMANDS)
    assert "Examples:" in result.out


def test_no_command_at_all_explains_on_standard_error(agent: Agent) -> None:
    result = agent()
    assert (result.code, result.out) == (2, "")
    assert "Commands:" in result.err


def test_the_version_is_that_of_the_project(agent: Agent) -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'version = "{VERSION}"' in project
    assert agent("--version").out == f"agent {VERSION}\n"


def test_completion_scripts_can_be_shown(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    result = agent("--show-completion", "bash")
    assert result.code == 0
    assert "COMPLETE" in result.out


def test_without_a_home_both_ways_out_are_named(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENT_HOME")
    monkeypatch.delenv("HOME")
    err = refuses(agent, "run", "ping")
    assert "--data-dir" in err
    assert "--ephemeral" in err
    assert agent("run", "ping", "--ephemeral").code == 0


def test_errors_cannot_steer_a_terminal(agent: Agent) -> None:
    err = refuses(agent, "run", "ping", "--output", "\x1b[31mred\x07\u202e")
    assert "\x1b" not in err
    assert "\u202e" not in err


def test_a_bug_of_ours_is_one_line_and_a_traceback_only_when_asked_for(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cli import wiring

    def explode(settings: object, name: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(wiring, "resolve_model", explode)
    result = agent("run", "ping")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "RuntimeError: boom" in result.err
    assert "Traceback" in agent("run", "-v", "ping").err
