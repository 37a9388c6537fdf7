"""Exit codes (design, 8), and which of several is the worst."""

from __future__ import annotations

import signal
from collections.abc import Iterable

OK = 0
FAILED = 1
USAGE = 2
NEEDS_INPUT = 3
CANCELLED = 4
LIMIT = 5
DENIED = 6
MISFIT = 7
TIMED_OUT = 124
SIGHUP = 129
SIGINT = 130
STDOUT_CLOSED = 141
SIGTERM = 143

_BY_SEVERITY = (
    OK,
    NEEDS_INPUT,
    DENIED,
    MISFIT,
    CANCELLED,
    LIMIT,
    TIMED_OUT,
    USAGE,
    FAILED,
    STDOUT_CLOSED,
    SIGHUP,
    SIGINT,
    SIGTERM,
)
"""From good to bad. What a person or a caller may still repair stands before what broke."""


def of_signal(number: int) -> int:
    """The code of a process that a signal ended, as shells count: 128 and its number."""
    return 128 + signal.Signals(number)


def worst(codes: Iterable[int]) -> int:
    """The worst of some exit codes, `OK` of none; a code that is not in the table counts as worst of all."""
    return max(codes, key=_severity, default=OK)


def _severity(code: int) -> int:
    return _BY_SEVERITY.index(code) if code in _BY_SEVERITY else len(_BY_SEVERITY)
