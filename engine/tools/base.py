"""The tool protocol: what a tool declares, what it is given, what it gives back.

A failed tool is data for the model, no exception: raise `ToolError` with a text the model can act on, or let any
exception fly; the turn makes an error result of it. A tool is cancelled by its scope and winds up in bounded time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from engine.errors import EngineError


class ToolError(EngineError):
    """The call failed; the text goes back to the model."""


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a call gave back: `text` is bounded and clean, `size` the true size in bytes before it was cut."""

    text: str
    size: int
    is_error: bool = False


@dataclass(slots=True)
class ToolContext:
    """What a tool call may touch, shared by the calls of one run.

    `output_dir` is where outputs too large to show are kept whole; it is made on first use. `files_changed` collects
    the paths written, relative to `cwd` where below it, each once. `unfinished` collects what had to be ended at the
    end of the run (design, 8). `at_end` holds cleanups that the turn awaits, shielded and bounded, when the run ends.
    """

    cwd: Path
    output_dir: Path
    files_changed: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    at_end: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)

    def note_change(self, path: Path) -> None:
        """Record that `path` was written."""
        shown = str(path.relative_to(self.cwd)) if path.is_relative_to(self.cwd) else str(path)
        if shown not in self.files_changed:
            self.files_changed.append(shown)


class Tool(Protocol):
    """One tool. `is_read_only` tools run concurrently; the others one at a time, in call order."""

    @property
    def name(self) -> str:
        """The name the model calls it by."""
        ...

    @property
    def description(self) -> str:
        """What it does, for the model."""
        ...

    @property
    def is_read_only(self) -> bool:
        """Whether it changes nothing."""
        ...

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments."""
        ...

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Validate `arguments` and do the work.

        Raises:
            ToolError: the arguments do not fit the schema, or the work failed.
        """
        ...
