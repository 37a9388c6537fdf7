"""The model as a turn sees it: once the turn is stopped, a call fails instead of being issued (design, 6)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from anyio.lowlevel import checkpoint_if_cancelled

from engine.model.base import Model, ModelEvent, ModelRequest
from engine.turn.stop import StopSignal


class GuardedModel:
    """A model behind a stop signal."""

    def __init__(self, model: Model, stop: StopSignal) -> None:
        self._model = model
        self._stop = stop
        self.name = model.name
        self.takes_tools = model.takes_tools

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Ask, unless stopped; there is no wait between the checks and the call they guard.

        Raises:
            TurnStoppedError: the turn was stopped before the call, or between two events.
        """
        # Also a cancel of something around the turn, which no signal tells of: after a swallowed one, code runs on
        # to its next checkpoint, and the model would be entered before it (K4).
        await checkpoint_if_cancelled()
        self._stop.check()
        async with aclosing(self._model.stream(request)) as events:
            async for event in events:
                self._stop.check()
                yield event
