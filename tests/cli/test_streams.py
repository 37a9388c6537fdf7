"""Writing to standard output and error: whole, to any kind of reader."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

import anyio
import pytest

from cli import streams

pytestmark = pytest.mark.anyio

ANSWER = b"".join(b"%07d\n" % number for number in range(100_000))


def make_pipe(*, blocking: bool) -> tuple[int, int]:
    source, target = os.pipe()
    if not blocking:
        os.set_blocking(target, False)
    fcntl.fcntl(target, fcntl.F_SETPIPE_SZ, 4096)
    return source, target


@pytest.mark.parametrize("blocking", [True, False])
async def test_a_slow_reader_gets_a_large_answer_whole(monkeypatch: pytest.MonkeyPatch, *, blocking: bool) -> None:
    source, target = make_pipe(blocking=blocking)
    got = bytearray()

    async def read() -> None:
        while piece := await anyio.to_thread.run_sync(os.read, source, 65_536):
            got.extend(piece)

    with anyio.fail_after(5), os.fdopen(target, "w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await streams.write(ANSWER)
            file.close()
    os.close(source)
    assert bytes(got) == ANSWER


async def test_other_tasks_go_on_while_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = make_pipe(blocking=True)
    with anyio.fail_after(5), os.fdopen(target, "w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(streams.write, ANSWER)
            await anyio.wait_readable(source)
            tasks.cancel_scope.cancel()
        os.close(source)  # lets the thread that was left behind end


async def test_a_reader_that_has_gone_is_a_broken_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = make_pipe(blocking=True)
    os.close(source)
    with os.fdopen(target, "w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        with pytest.raises(BrokenPipeError):
            await streams.write(b"x")


async def test_a_full_device_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as file:  # noqa: ASYNC230 - a device that never waits
        monkeypatch.setattr(sys, "stdout", file)
        with pytest.raises(streams.StdoutError, match="No space left"):
            await streams.write(b"x")


def test_a_standard_error_that_cannot_be_written_is_nobodys_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as file:
        monkeypatch.setattr(sys, "stderr", file)
        streams.say("anything")


def test_one_line_is_one_line_of_printable_characters() -> None:
    assert streams.one_line("a\n b\t\x1b[1mc\u2028d\u202e\udc80é\xa0ü") == "a b \ufffd[1mc d\ufffd\ufffdé ü"
