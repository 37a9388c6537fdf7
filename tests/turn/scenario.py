"""A run from beginning to end, for tests that look at what is left of it."""

from __future__ import annotations

from typing import Any

from engine.app import Engine
from engine.message import Message
from engine.model.base import TextChunk
from engine.run import RunComplete
from tests.fakes import Item, request


async def finish(engine: Engine, *tools: str, **limits: Any) -> tuple[RunComplete, list[Message]]:
    """Run `r1` to its completion; returns it and the session's history."""
    session_id = (await engine.submit(request(tools=tools, **limits))).session_id
    return await engine.wait("r1"), await engine.store.load_history(session_id)


def saying(text: str, answer: list[Item]) -> list[Item]:
    """The answer, with words before it."""
    return [TextChunk(text), *answer]
