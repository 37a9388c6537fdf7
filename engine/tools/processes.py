"""Finding and signalling what a command started, also what left its process group.

A process group is not enough: `setsid` and daemons leave it. So each command carries a mark in its environment, which
everything it starts inherits, and on Linux `/proc` tells who carries it. (Making ourselves the subreaper of orphans
was the alternative: it changes the whole process, cannot tell whose child an orphan was, and leaves us its zombies.)
What cleans its environment, leaves the group and loses its parent, all three, escapes. Elsewhere the group is all.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MARK_VARIABLE = "AGENT_TOOL_MARKS"
"""Names the marks of all commands that a process descends from, colons between: tools may run agents that run tools."""

HAS_PROC = Path("/proc/self/stat").exists()
"""Whether processes can be looked up one by one."""


class Member(NamedTuple):
    """One process that a command started. The start time tells it from a later owner of the same pid."""

    pid: int
    start_ticks: int
    parent: int
    group: int
    is_zombie: bool = False

    @property
    def identity(self) -> tuple[int, int, int]:
        """The process while it stays in its group."""
        return self.pid, self.start_ticks, self.group


def add_mark(env: dict[str, str], mark: str) -> None:
    """Put `mark` into an environment, behind those that we carry ourselves."""
    ours = os.environ.get(MARK_VARIABLE)
    env[MARK_VARIABLE] = f"{ours}:{mark}" if ours else mark


def read_member(pid: int) -> Member | None:
    """The process `pid`; None when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()  # behind the name, which may hold anything
    return Member(pid, int(fields[19]), int(fields[1]), int(fields[2]), fields[0] in (b"Z", b"X"))


def find_members(marks: frozenset[str], groups: frozenset[int], known: Iterable[Member] = ()) -> list[Member]:
    """All live processes that carry a mark, are in a group, were known before, or descend from one that is so.

    `groups` must be pinned by a leader that nobody reaped yet: a group id alone may have a new owner.
    """
    everyone = _everyone()
    wanted = {mark.encode() for mark in marks}
    known_before = {member[:2] for member in known}
    found = {
        member.pid
        for member in everyone
        if member.group in groups or member[:2] in known_before or wanted & _marks_of(member.pid)
    }
    is_growing = bool(found)
    while is_growing:
        heirs = {member.pid for member in everyone if member.parent in found} - found
        found |= heirs
        is_growing = bool(heirs)
    members = [member for member in everyone if member.pid in found]
    for member in members:
        if member.is_zombie and member.pid not in groups:  # a leader is left to who started it
            _reap_orphan(member)
    return [member for member in members if not member.is_zombie]


def send_signal(member: Member, number: signal.Signals) -> None:
    """Signal `member` and never a later owner of its pid."""
    try:
        handle = os.pidfd_open(member.pid)
    except OSError:
        return
    try:
        now = read_member(member.pid)
        if now is not None and now.start_ticks == member.start_ticks:
            with suppress(OSError):  # it ended, or is another user's now
                signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


def send_group_signal(group: int, number: int) -> bool:
    """Signal a group; whether it has members. Number 0 only asks."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # all that is left of it is another user's, or on some systems a zombie
        return number != 0
    return True


def command_line(member: Member) -> str:
    """What `member` runs, for a person; empty when it is gone."""
    try:
        raw = Path(f"/proc/{member.pid}/cmdline").read_bytes()[:4096]
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode("utf-8", "replace").strip()


def _reap_orphan(member: Member) -> None:
    """Take away the zombie of an orphan that fell to us, because we are process 1 or a subreaper."""
    if member.parent == os.getpid():
        with suppress(OSError):
            os.waitpid(member.pid, os.WNOHANG)


def _everyone() -> list[Member]:
    """All processes but ourselves."""
    ourselves = os.getpid()
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208  hot
    return [member for pid in pids if pid != ourselves and (member := read_member(pid)) is not None]


def _marks_of(pid: int) -> set[bytes]:
    """The marks in the environment that `pid` was started with; none when it is not ours to read."""
    try:
        environment = b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return set()
    _, found, rest = environment.partition(b"\0" + MARK_VARIABLE.encode() + b"=")
    return set(rest.partition(b"\0")[0].split(b":")) if found else set()
