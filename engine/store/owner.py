"""Who owns a run: a process, named so that any other can tell whether it still lives (design, 7).

An owner is `host/pid/start/namespace`. The start time tells a process from a later one with the same pid; the pid
namespace tells containers apart that share a host name (`--network host`) but not their pids. Where a pid cannot be
looked up from here, the lease decides, which the owner renews.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from engine.clock import now_utc

LEASE_SECONDS = 30.0
"""How long an owner that cannot be looked up counts as living after its last sign of life."""


class _Owner(NamedTuple):
    host: str
    pid: int
    start: str
    namespace: str


def this_owner() -> str:
    """The name of this process."""
    return _name_of(os.getpid())


def lease_end() -> str:
    """When a lease that is taken now runs out, in the clock's form."""
    end = datetime.now(UTC) + timedelta(seconds=LEASE_SECONDS)
    return end.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def is_alive(owner: str, lease_until: str) -> bool:
    """Whether the process that calls itself `owner` still runs; by its lease where it cannot be looked up."""
    if owner == this_owner():
        return True
    known = _parse(owner)
    here = _parse(this_owner())
    has_lease = lease_until > now_utc()
    if known is None or here is None or (known.host, known.namespace) != (here.host, here.namespace):
        return has_lease
    start = _start_of(known.pid)
    if start is not None:
        return start == known.start
    try:
        os.kill(known.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return has_lease  # somebody else's process: it may be another one
    # It is there, but without /proc, or hidden in it, its start time is not known.
    return True if here.start == "0" else has_lease


def describe(owner: str) -> str:
    """The owner in words, for people: `pid 17 on build-3`."""
    known = _parse(owner)
    return owner if known is None else f"pid {known.pid} on {known.host}"


@lru_cache(maxsize=1)
def _name_of(pid: int) -> str:  # the pid is a parameter so that a forked child is not taken for its parent
    host = os.uname().nodename.replace("/", "-") or "localhost"
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
    except OSError:
        namespace = "0"
    return f"{host}/{pid}/{_start_of(pid) or '0'}/{namespace}"


def _parse(owner: str) -> _Owner | None:
    pieces = owner.split("/")
    if len(pieces) != 4 or not pieces[1].isdecimal():
        return None
    return _Owner(pieces[0], int(pieces[1]), pieces[2], pieces[3])


def _start_of(pid: int) -> str | None:
    """The start time of a process in clock ticks since boot, `ended` for a zombie, None if there is none to see."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    if len(fields) < 20:
        return None
    return "ended" if fields[0] in "ZX" else fields[19]
