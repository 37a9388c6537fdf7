"""Tools for tests of the turn that need the context of their run, and what a store holds of their calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from engine.app import Engine
from engine.message import ToolResultPart
from engine.tools.base import ToolContext, ToolOutput


@dataclass
class ContextTool:
    """A tool made of a function that is given the context too."""

    name: str
    function: Callable[[dict[str, Any], ToolContext], Awaitable[str]]
    is_read_only: bool = True
    description: str = "a fake"
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "object"})

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        text = await self.function(arguments, context)
        return ToolOutput(text, len(text))


async def stored_results(engine: Engine, session_id: str) -> list[ToolResultPart]:
    """The results of all calls of a session, in order."""
    history = await engine.store.load_history(session_id)
    return [part for message in history for part in message.parts_of(ToolResultPart)]
