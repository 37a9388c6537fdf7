"""Standard input of every kind, as real descriptors, on both event loops."""

from __future__ import annotations

import io
import os
import pty
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from cli import stdin
from cli.line_reader import read_lines
from cli.stdin import StdinKind, StdinPlan, StdinUse, choose_use, find_kind, read_stdin
from engine.errors import UsageError

pytestmark = pytest.mark.anyio

BESIDE_PROMPT = StdinPlan(has_prompt=True, is_quiet=True)
ALONE = StdinPlan(is_quiet=True)


class Pipe:
    """A pipe whose reading end is this process's standard input."""

    def __init__(self) -> None:
        self.source, self.target = os.pipe()
        self.is_open = True

    def write(self, data: bytes) -> None:
        os.write(self.target, data)

    def end(self) -> None:
        if self.is_open:
            self.is_open = False
            os.close(self.target)


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    made = Pipe()
    file = os.fdopen(made.source)
    monkeypatch.setattr(sys, "stdin", file)
    yield made
    made.end()
    file.close()


async def test_a_pipe_is_read_to_its_end_once_its_first_byte_has_come(pipe: Pipe) -> None:
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:

            async def feed() -> None:
                pipe.write(b"one ")
                # Longer than the plan allows for the first byte: only that is bounded.
                await anyio.sleep(0.05)
                pipe.write(b"two")
                pipe.end()

            tasks.start_soon(feed)
            text = await read_stdin(StdinPlan(has_prompt=True, wait_seconds=0.02, is_quiet=True))
    assert text == "one two"


async def test_more_than_a_pipe_holds_arrives_whole(pipe: Pipe) -> None:
    data = b"0123456789abcdef" * 40_000
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:

            def feed() -> None:
                with os.fdopen(os.dup(pipe.target), "wb") as file:
                    file.write(data)

            async def feed_and_end() -> None:
                await anyio.to_thread.run_sync(feed)
                pipe.end()

            tasks.start_soon(feed_and_end)
            text = await read_stdin(BESIDE_PROMPT)
    assert text.encode() == data


async def test_an_empty_pipe_adds_nothing(pipe: Pipe) -> None:
    pipe.end()
    with anyio.fail_after(5):
        assert await read_stdin(BESIDE_PROMPT) == ""


async def test_a_silent_pipe_beside_a_prompt_ends_in_an_error_that_says_how_to_go_on(pipe: Pipe) -> None:
    with anyio.fail_after(5), pytest.raises(UsageError) as raised:
        await read_stdin(StdinPlan(has_prompt=True, wait_seconds=0.01, is_quiet=True))
    assert all(way in str(raised.value) for way in ("`-`", "--no-stdin", "AGENT_STDIN=never"))


async def test_a_silent_pipe_is_named_before_it_is_given_up(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stdin, "NAME_SECONDS", 0.01)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with anyio.fail_after(5), pytest.raises(UsageError):
        await read_stdin(StdinPlan(has_prompt=True, wait_seconds=0.02))
    assert "a pipe on which nothing has come" in sys.stderr.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("plan", [ALONE, StdinPlan(StdinUse.ALWAYS, has_prompt=True, wait_seconds=0.01, is_quiet=True)])
async def test_a_pipe_that_is_asked_for_or_all_there_is_is_waited_for(
    pipe: Pipe, plan: StdinPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdin, "NAME_SECONDS", 0.01)
    found: list[str] = []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                found.append(await read_stdin(plan))

            tasks.start_soon(read)
            await anyio.sleep(0.05)  # well beyond both bounds; the read must still be at it
            assert not found
            pipe.write(b"late")
            pipe.end()
    assert found == ["late"]


async def test_waiting_for_a_pipe_can_be_cancelled(pipe: Pipe) -> None:
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read_stdin, ALONE)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()


async def test_never_leaves_a_pipe_unread(pipe: Pipe) -> None:
    pipe.write(b"secret")
    assert await read_stdin(StdinPlan(StdinUse.NEVER)) == ""
    assert os.read(pipe.source, 100) == b"secret"


async def test_a_file_is_always_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"caf\xe9")
    with path.open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert await read_stdin(BESIDE_PROMPT) == "caf\ufffd"


async def test_the_null_device_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open() as file:  # noqa: ASYNC230 - a device that never waits
        monkeypatch.setattr(sys, "stdin", file)
        assert await read_stdin(BESIDE_PROMPT) == ""
        assert [line async for line in read_lines()] == []


async def test_a_closed_standard_input_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert find_kind() == (StdinKind.CLOSED, -1)
    assert await read_stdin(ALONE) == ""


async def test_a_terminal_is_read_only_when_there_is_no_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "wb", buffering=0) as keyboard, os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        keyboard.write(b"typed\n\x04")
        assert await read_stdin(BESIDE_PROMPT) == ""
        with anyio.fail_after(5):
            assert await read_stdin(ALONE) == "typed\n"


async def test_too_much_input_is_refused(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdin, "SIZE_MAX", 10)
    pipe.write(b"12345678901")
    with anyio.fail_after(5), pytest.raises(UsageError, match="larger than"):
        await read_stdin(ALONE)


async def test_lines_are_read_as_they_come(pipe: Pipe) -> None:
    with anyio.fail_after(5):
        lines = read_lines()
        pipe.write(b"one\n\ntw")
        assert await anext(lines) == (1, b"one")
        pipe.write(b"o\r\nthree")
        assert await anext(lines) == (3, b"two\r")
        pipe.end()
        assert [line async for line in lines] == [(4, b"three")]


@pytest.mark.parametrize(
    ("has_dash", "no_stdin", "setting", "use"),
    [
        (False, False, "", StdinUse.AUTO),
        (False, False, "auto", StdinUse.AUTO),
        (False, True, "", StdinUse.NEVER),
        (False, False, "never", StdinUse.NEVER),
        (True, False, "never", StdinUse.ALWAYS),
    ],
)
def test_the_command_line_wins_over_the_environment(
    *, has_dash: bool, no_stdin: bool, setting: str, use: StdinUse
) -> None:
    assert choose_use(has_dash=has_dash, no_stdin=no_stdin, setting=setting) is use


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(UsageError, match="AGENT_STDIN"):
        choose_use(has_dash=False, no_stdin=False, setting="sometimes")
