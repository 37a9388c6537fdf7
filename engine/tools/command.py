"""Running one command to its end, its limit of time or a cancel, with its output bounded.

No wait depends on the end of the pipe: a process in the background may hold it for ever. When the command itself has
ended, what it wrote is read, and a short grace later nobody is waited for. The pipe of a command that left something
in the background is drained by a thread until the run ends, because a closed pipe would kill a server at its next log
line, and a full one would stop it.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread

from engine.tools.base import ToolContext, ToolError
from engine.tools.children import KILL_SECONDS, TERM_SECONDS, Child, RunChildren, end_children
from engine.tools.output import OutputSink
from engine.tools.processes import Member

GRACE_SECONDS = 0.25
"""How long we read on after a command ended when something in the background still holds its output."""

_PIECE_BYTES = 64 * 1024  # what a pipe holds
_END_SECONDS = TERM_SECONDS + KILL_SECONDS + 1  # `end_children` keeps its own bounds, this is the belt
_REST_PIECES_MAX = 32  # pieces read of a pipe whose command was killed


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. `title` is how a person is told of it."""

    title: str
    argv: list[str]
    cwd: Path
    env: dict[str, str]


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How it went. `exit_code` is negative for a signal, None when the limit of time ended it."""

    exit_code: int | None
    output: OutputSink
    background: list[Member]


async def run_command(command: Command, context: ToolContext, *, timeout_seconds: float) -> CommandResult:
    """Run `command`. On a cancel, all that it started is ended before this returns, in bounded time.

    Raises:
        ToolError: it could not be started.
    """
    sink = OutputSink(context.output_dir, command.title.split()[0])
    await anyio.lowlevel.checkpoint_if_cancelled()  # after a cancel no command starts (design, 6)
    child, pipe_fd = _start(command)
    pending: list[bytes] = []
    is_whole = False
    try:
        with anyio.move_on_after(timeout_seconds):
            await _follow(child, pipe_fd, sink, pending)
        has_exited = child.has_exited
        if has_exited:
            await child.settle()
        else:
            await end_children([child])
        _read_rest(pipe_fd, sink, pending)
        is_whole = True
    finally:
        if not is_whole:
            context.unfinished.append(f"{command.title} (pid {child.pid})")
            with anyio.move_on_after(_END_SECONDS, shield=True):
                await end_children([child])
        sink.close()
        if child.is_live:
            RunChildren.of(context).adopt(child)
            threading.Thread(target=_drain, args=(pipe_fd,), name="agent-drain", daemon=True).start()
        else:
            os.close(pipe_fd)
    return CommandResult(child.exit_code if has_exited else None, sink, child.background)


def _start(command: Command) -> tuple[Child, int]:
    """The running child and the end of the pipe to read its output from."""
    read_fd, write_fd = os.pipe()
    try:
        os.set_blocking(read_fd, False)
        child = Child(command.argv, title=command.title, cwd=command.cwd, env=command.env, output_fd=write_fd)
    except (OSError, ValueError) as error:
        os.close(read_fd)
        raise ToolError(f"cannot start {command.title}: {error}") from error
    finally:
        os.close(write_fd)
    return child, read_fd


async def _follow(child: Child, pipe_fd: int, sink: OutputSink, pending: list[bytes]) -> None:
    """Read the output until the command has ended, and a little longer. `pending` keeps what a cancel left unfed."""
    is_read = anyio.Event()

    async def pump() -> None:
        while piece := await _read_piece(pipe_fd):
            if sink.is_blocking(len(piece)):
                pending.append(piece)
                await anyio.to_thread.run_sync(sink.feed, piece)
                pending.clear()
            else:
                sink.feed(piece)
        is_read.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pump, name=f"output of {child.pid}")
        await child.wait_exit()
        with anyio.move_on_after(GRACE_SECONDS):
            await is_read.wait()
        tasks.cancel_scope.cancel()


async def _read_piece(fd: int) -> bytes:
    """The next bytes, empty at the end."""
    while True:
        await anyio.wait_readable(fd)
        try:
            return os.read(fd, _PIECE_BYTES)
        except BlockingIOError:
            continue


def _read_rest(fd: int, sink: OutputSink, pending: list[bytes]) -> None:
    """Feed what was read last and what lies in the pipe now, without waiting."""
    for piece in pending:
        sink.feed(piece)
    for _ in range(_REST_PIECES_MAX):
        try:
            piece = os.read(fd, _PIECE_BYTES)
        except OSError:
            return
        if not piece:
            return
        sink.feed(piece)


def _drain(fd: int) -> None:
    """Read and forget until the last writer is gone, then close."""
    os.set_blocking(fd, True)
    try:
        while os.read(fd, _PIECE_BYTES):
            pass
    finally:
        os.close(fd)
