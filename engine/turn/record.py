"""What one turn has done so far: kept outside the scope that a cancel strikes, so that it can still be saved.

Whatever happens to the turn, `closing` turns this into messages that leave a valid history: what was finished but not
yet saved, one result for each call, and an assistant message that says how the turn ended, with the text that the
model had not finished (design, 6).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.clock import now_utc
from engine.codec import clean_text
from engine.ids import new_message_id
from engine.lifecycle import FinishReason
from engine.message import (
    FinishPart,
    Message,
    Part,
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from engine.run import Usage
from engine.turn.context import Earlier

NOT_STARTED = "not run: the run ended before this call was started"
"""The result of a call that never began."""

INTERRUPTED = "interrupted: the run ended while this call was going on; it may have had an effect"
"""The result of a call that began and has no result of its own."""


@dataclass(slots=True)
class CheckedCall:
    """A tool call of a whole response, with the arguments it will be run with, or the `problem` that forbids it."""

    part: ToolCallPart
    arguments: dict[str, object] = field(default_factory=dict)
    problem: str | None = None
    has_begun: bool = False
    result: ToolResultPart | None = None


@dataclass(slots=True)
class TurnRecord:
    """The ledger of one turn: `earlier` is what came before it, `history` its own messages, the prompt first."""

    earlier: Earlier = field(default_factory=Earlier)
    history: list[Message] = field(default_factory=list)
    unsaved: list[Message] = field(default_factory=list)
    calls: list[CheckedCall] = field(default_factory=list)
    calls_told: int = 0
    draft_text: list[str] = field(default_factory=list)
    draft_reasoning: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    steps: int = 0
    retries: int = 0

    def add(self, message: Message) -> None:
        """A message is finished: it is history from here on, and waits to be saved."""
        self.history.append(message)
        self.unsaved.append(message)

    def open_draft(self) -> None:
        """A response begins; what an earlier attempt left of it is dropped."""
        self.draft_text.clear()
        self.draft_reasoning.clear()

    def close_draft(self, calls: list[CheckedCall], finish: FinishReason | None, detail: str = "") -> Message:
        """The response is whole: make it a finished assistant message; `finish` None if the turn goes on from it."""
        message = self._assistant(finish, detail, is_partial=False, calls=calls)
        self.calls = calls
        self.calls_told = 0
        self.add(message)
        return message

    def tell_results(self) -> None:
        """Make tool messages of the results that are there, in call order, up to the first gap."""
        while self.calls_told < len(self.calls) and self.calls[self.calls_told].result is not None:
            self._tell(self.calls[self.calls_told])

    def closing(self, finish: FinishReason, detail: str) -> Message:
        """End the turn that did not end by itself; returns its last assistant message."""
        for call in self.calls[self.calls_told :]:
            if call.result is None:
                text = INTERRUPTED if call.has_begun else NOT_STARTED
                call.result = ToolResultPart(call.part.call_id, call.part.name, text, is_error=True, size=len(text))
            self._tell(call)
        message = self._assistant(finish, detail, is_partial=bool(self.draft_text), calls=[])
        self.add(message)
        return message

    def _tell(self, call: CheckedCall) -> None:
        assert call.result is not None
        self.calls_told += 1
        self.add(Message(new_message_id(), Role.TOOL, (call.result,), now_utc()))

    def _assistant(
        self, finish: FinishReason | None, detail: str, *, is_partial: bool, calls: list[CheckedCall]
    ) -> Message:
        parts: list[Part] = []
        if reasoning := clean_text("".join(self.draft_reasoning)):
            parts.append(ReasoningPart(reasoning))
        if text := clean_text("".join(self.draft_text)):
            parts.append(TextPart(text))
        parts += [call.part for call in calls]
        if finish is not None:
            parts.append(FinishPart(finish, is_partial=is_partial, detail=detail))
        self.open_draft()
        return Message(new_message_id(), Role.ASSISTANT, tuple(parts), now_utc())
