"""Progress on standard error: lines for what happens, and a spinner where a person watches."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cli.streams import one_line, say, say_raw

if TYPE_CHECKING:
    from engine.event import Event

_FRAMES = "|/-\\"
_FRAME_SECONDS = 0.1
_ARGUMENTS_MAX = 200


def wants_spinner(environ: Mapping[str, str], *, is_quiet: bool, is_verbose: bool) -> bool:
    """Whether a person watches who would like to see that something goes on (design, 8)."""
    if is_quiet or is_verbose or environ.get("NO_COLOR") or environ.get("CI"):
        return False
    if environ.get("TERM", "dumb") == "dumb":
        return False
    return sys.stderr is not None and sys.stderr.isatty()


class Progress:
    """What is told while a run goes on; silent with `--quiet`."""

    def __init__(self, *, is_quiet: bool = False, is_verbose: bool = False) -> None:
        self._is_quiet = is_quiet
        self._is_verbose = is_verbose
        self._has_spinner = wants_spinner(os.environ, is_quiet=is_quiet, is_verbose=is_verbose)
        self._is_drawn = False

    def note(self, line: str) -> None:
        """One line, unless all is to be quiet."""
        if not self._is_quiet:
            self.clear()
            say(line)

    def show(self, event: Event) -> None:
        """What a person should know of an event, if anything."""
        line = describe(event, is_verbose=self._is_verbose)
        if line:
            self.note(line)

    async def spin(self) -> None:
        """Turn until cancelled, where there is someone to see it."""
        import anyio

        if not self._has_spinner:
            return
        started = anyio.current_time()
        turn = 0
        while True:
            await anyio.sleep(_FRAME_SECONDS)
            turn += 1
            seconds = int(anyio.current_time() - started)
            say_raw(f"\r{_FRAMES[turn % len(_FRAMES)]} {seconds} s ")
            self._is_drawn = True

    def clear(self) -> None:
        """Take the spinner off its line."""
        if self._is_drawn:
            say_raw("\r\x1b[K")
            self._is_drawn = False


def describe(event: Event, *, is_verbose: bool) -> str:
    """An event as a line, empty for one that is not worth it."""
    from engine import event as events

    match event:
        case events.RunQueued():
            return f"queued: {event.behind or 'the session is busy'}"
        case events.ToolStarted():
            return f"tool: {event.name} {_shorten(event.arguments, is_verbose=is_verbose)}"
        case events.ToolEnded():
            if event.is_error:
                return f"tool failed: {event.name}: {_shorten(event.summary, is_verbose=is_verbose)}"
            return f"tool done: {event.name}: {event.summary}" if is_verbose else ""
        case events.RetryScheduled():
            return f"retry {event.attempt} in {event.wait_seconds:.1f} s: {event.error}"
        case events.Notice():
            return f"notice: {event.text}"
        case events.RunStarted():
            return f"model: {event.model}" if is_verbose else ""
        case _:
            return ""


def _shorten(text: str, *, is_verbose: bool) -> str:
    line = one_line(text[:20_000])
    return line if is_verbose or len(line) <= _ARGUMENTS_MAX else line[: _ARGUMENTS_MAX - 3] + "..."
