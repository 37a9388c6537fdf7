"""Events: what is announced while runs go on. The store is the truth, these are the news (design, 4 and 5)."""

from __future__ import annotations

from dataclasses import dataclass

from engine.message import Message
from engine.run import RunComplete


@dataclass(frozen=True, slots=True)
class RunAccepted:
    """A prompt is in the store and will be answered."""

    run_id: str | None
    session_id: str
    accept_seq: int
    type: str = "run_accepted"


@dataclass(frozen=True, slots=True)
class RunQueued:
    """The run waits for its turn; `behind` says for whom, in words."""

    run_id: str | None
    session_id: str
    behind: str = ""
    type: str = "run_queued"


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The run's turn begins."""

    run_id: str | None
    session_id: str
    model: str
    type: str = "run_started"


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A fragment of the answer, live; may be lost."""

    run_id: str | None
    session_id: str
    text: str
    type: str = "text_delta"


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A fragment of the model's thinking, live; may be lost."""

    run_id: str | None
    session_id: str
    text: str
    type: str = "reasoning_delta"


@dataclass(frozen=True, slots=True)
class MessageSaved:
    """A finished message is in the store."""

    run_id: str | None
    session_id: str
    message: Message
    type: str = "message"


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool call begins; `arguments` is JSON text."""

    run_id: str | None
    session_id: str
    call_id: str
    name: str
    arguments: str
    type: str = "tool_started"


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """A tool call has its result."""

    run_id: str | None
    session_id: str
    call_id: str
    name: str
    is_error: bool
    summary: str
    type: str = "tool_ended"


@dataclass(frozen=True, slots=True)
class RetryScheduled:
    """A provider fault is tried again after `wait_seconds`."""

    run_id: str | None
    session_id: str
    attempt: int
    wait_seconds: float
    error: str
    type: str = "retry"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a person should know that changes nothing."""

    run_id: str | None
    session_id: str
    text: str
    type: str = "notice"


@dataclass(frozen=True, slots=True)
class RunCompleted:
    """The one that may not be lost: the run has settled (design, 4)."""

    completion: RunComplete
    type: str = "run_complete"

    @property
    def run_id(self) -> str:
        """The run that settled."""
        return self.completion.run_id

    @property
    def session_id(self) -> str:
        """Its session."""
        return self.completion.session_id


Event = (
    RunAccepted
    | RunQueued
    | RunStarted
    | TextDelta
    | ReasoningDelta
    | MessageSaved
    | ToolStarted
    | ToolEnded
    | RetryScheduled
    | Notice
    | RunCompleted
)
