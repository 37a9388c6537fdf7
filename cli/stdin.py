"""Standard input as part of the prompt: never a silent hang, never an answer about input that was not read (design, 8).

What kind of thing standard input is decides what is done: a file is read, a pipe is read once something (or its end)
has come, a terminal is read only when there is no other prompt. All waiting is the event loop's, so that signals work.
"""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from enum import StrEnum

import anyio

from cli.streams import descriptor, say
from engine.codec import decode_text
from engine.errors import UsageError

SIZE_MAX = 64 * 1024 * 1024
"""Bytes of input in all: far over any model's context, low enough to bound memory."""

NAME_SECONDS = 1.0
"""Waiting for longer than this is told on standard error."""

WAIT_SECONDS = 10.0
"""How long a pipe may stay silent beside a prompt, unless `--stdin-wait` says otherwise."""

_CHUNK = 65_536


class StdinUse(StrEnum):
    """What the caller asked for: the default, `-` among the words, or `--no-stdin`."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class StdinKind(StrEnum):
    """What standard input is. `FILE` is all that is read without waiting; `OBJECT` has no descriptor."""

    FILE = "file"
    PIPE = "pipe"
    TERMINAL = "terminal"
    OBJECT = "object"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class StdinPlan:
    """How to read standard input. `has_prompt`: there are words or files beside it."""

    use: StdinUse = StdinUse.AUTO
    has_prompt: bool = False
    wait_seconds: float = WAIT_SECONDS
    is_quiet: bool = False


def choose_use(*, has_dash: bool, no_stdin: bool, setting: str) -> StdinUse:
    """What the words, the flag and `AGENT_STDIN` ask for; what is on the command line wins.

    Raises:
        UsageError: they contradict each other, or the variable holds something else.
    """
    if has_dash and no_stdin:
        raise UsageError("`-` asks for standard input and --no-stdin forbids it: leave one out")
    if has_dash:
        return StdinUse.ALWAYS
    if no_stdin or setting == "never":
        return StdinUse.NEVER
    if setting not in {"", "auto"}:
        raise UsageError(f"AGENT_STDIN is {setting!r}: set it to never, or not at all")
    return StdinUse.AUTO


def find_kind() -> tuple[StdinKind, int]:
    """What standard input is, and its descriptor (-1 if it has none)."""
    if sys.stdin is None:
        return StdinKind.CLOSED, -1
    source = descriptor(sys.stdin, 0)
    if source is None:
        return StdinKind.OBJECT, -1
    try:
        mode = os.fstat(source).st_mode
    except OSError:
        return StdinKind.CLOSED, -1
    if os.isatty(source):
        return StdinKind.TERMINAL, source
    return (StdinKind.PIPE if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else StdinKind.FILE), source


async def read_stdin(plan: StdinPlan) -> str:
    """All of standard input that belongs to the prompt, empty if none does.

    Raises:
        UsageError: a pipe stayed silent beside a prompt, or there is too much.
        OSError: it cannot be read.
    """
    kind, source = find_kind()
    if plan.use is StdinUse.NEVER or kind is StdinKind.CLOSED:
        return ""
    if kind is StdinKind.OBJECT:
        return _decode(read_object())
    if kind is StdinKind.FILE:
        return _decode(_read_file(source))
    if kind is StdinKind.TERMINAL:
        if plan.use is StdinUse.AUTO and plan.has_prompt:
            return ""
        if not plan.is_quiet:
            say("agent: type the prompt, then Ctrl-D on a line of its own (or give it as an argument)")
        return _decode(await _read_waiting(source))
    await _wait_first(plan, source)
    return _decode(await _read_waiting(source))


def read_object() -> bytes:
    """All of a standard input that is no file: an embedding program's, or a test runner's."""
    assert sys.stdin is not None
    buffer = getattr(sys.stdin, "buffer", None)
    raw: bytes = sys.stdin.read().encode("utf-8", "replace") if buffer is None else buffer.read()
    return raw


async def read_some(source: int) -> bytes:
    """The next bytes of a pipe, socket or terminal, as soon as there are any; none at its end."""
    while True:
        await anyio.wait_readable(source)
        try:
            return os.read(source, _CHUNK)
        except BlockingIOError:
            continue  # another reader of the same pipe was quicker


async def _wait_first(plan: StdinPlan, source: int) -> None:
    """Wait for the first byte or the end of a pipe, as long as the plan allows, and say so when it takes long."""
    is_bounded = plan.use is StdinUse.AUTO and plan.has_prompt
    name_seconds = min(NAME_SECONDS, plan.wait_seconds) if is_bounded else NAME_SECONDS
    with anyio.move_on_after(name_seconds):
        await anyio.wait_readable(source)
        return
    if not is_bounded:
        if not plan.is_quiet:
            say("agent: waiting for the prompt on standard input, a pipe on which nothing has come yet")
        await anyio.wait_readable(source)
        return
    if not plan.is_quiet:
        say(
            f"agent: standard input is a pipe on which nothing has come yet; waiting {plan.wait_seconds:g} s for it"
            " (--no-stdin ignores it)"
        )
    with anyio.move_on_after(plan.wait_seconds - name_seconds):
        await anyio.wait_readable(source)
        return
    raise UsageError(
        f"nothing came on standard input, a pipe, in {plan.wait_seconds:g} s: give `-` to wait for it as long as it"
        " takes, or --no-stdin (or AGENT_STDIN=never) to ignore it"
    )


async def _read_waiting(source: int) -> bytes:
    pieces = []
    size = 0
    while piece := await read_some(source):
        pieces.append(piece)
        size += len(piece)
        _check_size(size)
    return b"".join(pieces)


def _read_file(source: int) -> bytes:
    """A file from where it stands, or a device such as /dev/null: neither keeps anybody waiting."""
    pieces = []
    size = 0
    while piece := os.read(source, _CHUNK):
        pieces.append(piece)
        size += len(piece)
        _check_size(size)
    return b"".join(pieces)


def _check_size(size: int) -> None:
    if size > SIZE_MAX:
        raise UsageError(
            f"standard input is larger than {SIZE_MAX // 1024 // 1024} MiB: give less of it, or --no-stdin to ignore it"
        )


def _decode(raw: bytes) -> str:
    _check_size(len(raw))
    return decode_text(raw)
