"""Processes that tools start: none is lost, each is ended with all that it started, in bounded time.

A `Child` is one command. It is started in a session and process group of its own and stays in the registry of this
file until it and its descendants are gone, so that a second Ctrl-C can kill them all without waiting. A command may
end and leave processes in the background: those live on until the run ends, then `RunChildren` ends them.

The leader is reaped by us alone and late: as long as it is a zombie its process group cannot get a new owner.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread

from engine.ids import new_id
from engine.tools.base import ToolContext
from engine.tools.processes import (
    HAS_PROC,
    Member,
    add_mark,
    command_line,
    find_members,
    send_group_signal,
    send_signal,
)

TERM_SECONDS = 2.0
"""How long processes may take to end after SIGTERM (design, 8: the whole run ends within a second or so more)."""

KILL_SECONDS = 1.0
"""How long we wait for SIGKILL to be carried out; a process stuck in the kernel is given up then."""

_live: dict[str, Child] = {}  # by mark; changed by synchronous code of the loop's thread only


class Child:
    """One command and all that it started. Made running, and registered in the same breath."""

    def __init__(self, argv: Sequence[str], *, title: str, cwd: Path, env: Mapping[str, str], output_fd: int) -> None:
        """Start `argv`, its input empty, its output and errors going to `output_fd`.

        Raises:
            OSError: it could not be started.
            ValueError: an argument has a NUL character.
        """
        self.title = title
        self.mark = new_id("cmd")
        self.background: list[Member] = []
        marked = dict(env)
        add_mark(marked, self.mark)
        self._process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=marked,
            stdin=subprocess.DEVNULL,
            stdout=output_fd,
            stderr=output_fd,
            start_new_session=True,
        )
        _live[self.mark] = self

    @property
    def pid(self) -> int:
        """The leader's process id, which is its group's id too."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The leader's exit code, negative for a signal; None until it was reaped."""
        return self._process.returncode

    @property
    def has_exited(self) -> bool:
        """Whether the leader ended, reaped or not."""
        if self._process.returncode is not None:
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # SIGCHLD is ignored in this process: the kernel reaped it
            return True

    async def wait_exit(self) -> None:
        """Wait for the leader to end. It is not reaped, and what it started may run on."""
        try:
            handle = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, or no descriptors left
            while not self.has_exited:  # noqa: ASYNC110  no event tells it
                await anyio.sleep(0.02)
            return
        try:
            await anyio.wait_readable(handle)
        finally:
            os.close(handle)

    async def settle(self) -> None:
        """Reap the leader, which has ended, and see what it left in `background`. Bounded, also after a cancel."""
        is_known = False
        with anyio.move_on_after(KILL_SECONDS, shield=True):
            self.background = await _look([self], ())
            is_known = True
        self.reap()
        if not HAS_PROC and send_group_signal(self.pid, 0):
            self.background = [Member(self.pid, 0, 0, self.pid)]
        if is_known and not self.background:
            self.forget()

    def reap(self) -> None:
        """Reap the leader, if it has ended. Its group id may get a new owner from here on."""
        self._process.poll()

    def forget(self) -> None:
        """Out of the registry: nothing of it lives."""
        _live.pop(self.mark, None)

    @property
    def is_live(self) -> bool:
        """Whether something of it may still run."""
        return self.mark in _live


async def end_children(children: Sequence[Child]) -> None:
    """End commands and all they started: SIGTERM, then SIGKILL. Bounded by `TERM_SECONDS` and `KILL_SECONDS`.

    Shielded: a cancel is the very reason to be here.
    """
    is_gone = False
    for number, seconds in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
        if not is_gone:
            with anyio.move_on_after(seconds, shield=True):
                await _signal_until_gone(children, number)
                is_gone = True
    for child in children:
        child.reap()
        if is_gone:
            child.background = []
            child.forget()


def kill_all_nowait() -> None:
    """Kill every command that lives, with all it started; for a second Ctrl-C. Waits for nothing."""
    children = list(_live.values())
    for _ in range(2 if children else 0):  # once more for what was being forked
        with suppress(OSError):
            _send(children, signal.SIGKILL, _members(children, ()))


def is_any_live() -> bool:
    """Whether a command, or something that one started, may still run."""
    return bool(_live)


async def _signal_until_gone(children: Sequence[Child], number: signal.Signals) -> None:
    """Signal and look again until all are gone. SIGTERM goes to each process once, SIGKILL until it works."""
    seen: set[Member] = {member for child in children for member in child.background}
    told: set[tuple[int, int, int]] = set()
    pause_seconds = 0.01
    while True:
        members = await _look(children, seen)
        if not members and all(map(_is_gone, children)):
            return
        if not told or number == signal.SIGKILL:
            _send(children, number, members)
        else:
            # Whoever was just being forked, or left its group between our look and the signal to the group.
            for member in members:
                if member.identity not in told:
                    send_signal(member, number)
        seen.update(members)
        told.update(member.identity for member in members)
        await anyio.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * 1.5, 0.1)
        if not HAS_PROC:  # else the leaders stay zombies until the others are gone: that keeps their groups ours
            for child in children:
                child.reap()


def _is_gone(child: Child) -> bool:
    return child.has_exited and (HAS_PROC or not send_group_signal(child.pid, 0))


def _members(children: Iterable[Child], known: Iterable[Member]) -> list[Member]:
    """All live processes of these commands. Blocks for some milliseconds."""
    if not HAS_PROC:
        return []
    pinned = frozenset(child.pid for child in children if child.exit_code is None)
    return find_members(frozenset(child.mark for child in children), pinned, known)


async def _look(children: Iterable[Child], known: Iterable[Member]) -> list[Member]:
    """`_members`, by a thread of its own: looking at a stuck process may hang, and tools may hold all other threads."""
    alone = anyio.CapacityLimiter(1)
    return await anyio.to_thread.run_sync(_members, children, known, abandon_on_cancel=True, limiter=alone)


def _send(children: Iterable[Child], number: signal.Signals, members: Iterable[Member]) -> None:
    """Signal each process once: a group as one, so that nothing forks away, and who left it one by one."""
    pinned = {child.pid for child in children if child.exit_code is None or not HAS_PROC}
    for group in pinned:
        send_group_signal(group, number)
    for member in members:
        if member.group not in pinned:
            send_signal(member, number)


class RunChildren:
    """What the commands of one run left in the background; the run's `at_end` calls it."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._children: list[Child] = []

    @staticmethod
    def of(context: ToolContext) -> RunChildren:
        """The one of this run, made and hung into `at_end` on first use."""
        for cleanup in context.at_end:
            if isinstance(cleanup, RunChildren):
                return cleanup
        made = RunChildren(context)
        context.at_end.append(made)
        return made

    def adopt(self, child: Child) -> None:
        """Take over a command that ended and left something behind."""
        self._children.append(child)

    async def __call__(self) -> None:
        """End what is left and list it in `unfinished`. Bounded; safe to call twice."""
        children, self._children = self._children, []
        if not children:
            return
        for child in children:
            with anyio.move_on_after(KILL_SECONDS, shield=True):
                for member in await _look([child], child.background):
                    shown = " ".join((command_line(member) or child.title).split())[:200]
                    self._context.unfinished.append(f"shell: {shown} (pid {member.pid})")
        await end_children(children)
