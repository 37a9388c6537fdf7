"""One model call to a whole response: the stall watch, the attempts, and the live deltas (design, 6).

Nothing of a response is acted on before it is whole, so that every retryable fault may be tried again; a new attempt
starts from an empty draft, never from glued text.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import aclosing
from itertools import count

import anyio

from engine.broker.broker import Broker
from engine.codec import clean_text
from engine.event import ReasoningDelta, RetryScheduled, TextDelta
from engine.limits import RunLimits
from engine.model.base import (
    FaultKind,
    ModelEvent,
    ModelFault,
    ModelRequest,
    ReasoningChunk,
    ResponseEnd,
    TextChunk,
)
from engine.run import Usage
from engine.turn.guard import GuardedModel
from engine.turn.record import TurnRecord
from engine.turn.retry import wait_seconds

logger = logging.getLogger(__name__)


class Asker:
    """Asks the model for one turn."""

    def __init__(
        self,
        model: GuardedModel,
        broker: Broker,
        record: TurnRecord,
        limits: RunLimits,
        *,
        run_id: str | None,
        session_id: str,
        remaining: Callable[[], float | None],
    ) -> None:
        self._model = model
        self._broker = broker
        self._record = record
        self._limits = limits
        self._run_id = run_id
        self._session_id = session_id
        self._remaining = remaining

    async def ask(self, request: ModelRequest) -> ResponseEnd:
        """A whole response; its text is in the record's draft.

        Raises:
            ModelFault: no attempt gave one; the draft holds what the last one gave.
            TurnStoppedError: the turn was stopped.
        """
        for attempt in count(1):
            try:
                end = await self._attempt(request)
            except ModelFault as fault:
                wait = wait_seconds(
                    fault,
                    attempt,
                    retries_max=self._limits.retries_max,
                    remaining_seconds=self._remaining(),
                )
                await self._pause(fault, attempt, wait)
            else:
                self._record.usage += end.usage or Usage()
                return end
        raise AssertionError("count() does not end")

    def note_retry(self, problem: str) -> None:
        """Note one further attempt that is not owed to a provider fault, such as an empty answer."""
        self._record.retries += 1
        self._broker.publish(RetryScheduled(self._run_id, self._session_id, 1, 0.0, problem))

    async def _pause(self, fault: ModelFault, attempt: int, wait: float) -> None:
        self._record.retries += 1
        logger.info("attempt %d failed, next in %.1f s: %s", attempt, wait, fault)
        self._broker.publish(RetryScheduled(self._run_id, self._session_id, attempt, wait, str(fault)))
        await anyio.sleep(wait)

    async def _attempt(self, request: ModelRequest) -> ResponseEnd:
        self._record.open_draft()
        async with aclosing(self._model.stream(request)) as events:
            while True:
                event = None
                with anyio.move_on_after(self._limits.idle_seconds) as patience:
                    event = await anext(events, None)
                if patience.cancelled_caught:
                    raise ModelFault(
                        FaultKind.STALL,
                        f"{self._model.name} made no progress for {self._limits.idle_seconds:g} s (--idle-timeout)",
                    )
                if event is None:
                    raise ModelFault(FaultKind.CUT, f"{self._model.name} ended its answer in the middle")
                if isinstance(event, ResponseEnd):
                    return event
                self._note(event)

    def _note(self, event: ModelEvent) -> None:
        """Keep a fragment in the draft and announce it."""
        if isinstance(event, TextChunk):
            self._record.draft_text.append(event.text)
            self._broker.publish(TextDelta(self._run_id, self._session_id, clean_text(event.text)))
        elif isinstance(event, ReasoningChunk):
            self._record.draft_reasoning.append(event.text)
            self._broker.publish(ReasoningDelta(self._run_id, self._session_id, clean_text(event.text)))
