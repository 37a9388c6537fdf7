"""The model protocol: a request goes in, typed events come out, and a fault is an exception that says what it is.

`stream` is an async generator: its consumer wraps it in `contextlib.aclosing`, so that a cancel or an early end closes
the HTTP stream at once. An adapter neither retries nor limits time: the turn does both, in one place. It opens no
cancel scope and no task group around a `yield`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from engine.errors import EngineError
from engine.message import Message
from engine.run import Usage


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it. `schema` is the JSON Schema of its arguments, an object."""

    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call. `messages` is a valid history: each tool call has one result, right behind it."""

    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class TextChunk:
    """A fragment of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningChunk:
    """A fragment of the model's thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallChunk:
    """Progress on a tool call that is still being written; the whole call comes in `ResponseEnd`."""

    index: int
    size: int


@dataclass(frozen=True, slots=True)
class RawToolCall:
    """A whole tool call as the model wrote it: nothing in it is checked yet."""

    call_id: str
    name: str
    arguments: str


class ModelFinish(StrEnum):
    """Why a response ended."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"


@dataclass(frozen=True, slots=True)
class ResponseEnd:
    """The response is whole. Always the last event; a stream that ends without it raised `ModelFault`."""

    finish: ModelFinish
    tool_calls: tuple[RawToolCall, ...] = ()
    usage: Usage | None = None


ModelEvent = TextChunk | ReasoningChunk | ToolCallChunk | ResponseEnd


class FaultKind(StrEnum):
    """What went wrong with a provider. Which kinds are tried again is the table `RETRYABLE`."""

    CONNECT = "connect"
    RATE_LIMIT = "rate_limit"
    SERVER = "server"
    CUT = "cut"
    STALL = "stall"
    MALFORMED = "malformed"
    AUTH = "auth"
    REFUSED = "refused"
    CONTEXT_OVERFLOW = "context_overflow"
    CONFIG = "config"


RETRYABLE = frozenset(
    {FaultKind.CONNECT, FaultKind.RATE_LIMIT, FaultKind.SERVER, FaultKind.CUT, FaultKind.STALL, FaultKind.MALFORMED}
)
"""Faults that may pass: connect, 408, 409, 425, 429, 5xx, a cut or stalled or garbled stream (design, 9)."""


class ModelFault(EngineError):  # noqa: N818 - the field says fault; an error is what the caller sees
    """A provider did not give a whole response; the text is one line that says what to do.

    `retry_after_seconds` is what the server asked for, None if it did not.
    """

    def __init__(self, kind: FaultKind, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after_seconds = retry_after_seconds

    @property
    def is_retryable(self) -> bool:
        """Whether another attempt may succeed."""
        return self.kind in RETRYABLE


class Model(Protocol):
    """A model that can be asked, chosen as `provider/model`."""

    @property
    def name(self) -> str:
        """The full name, `provider/model`."""
        ...

    @property
    def takes_tools(self) -> bool:
        """Whether tools are offered to it."""
        ...

    @property
    def media_types(self) -> frozenset[str]:
        """The binary attachments it takes, such as `image/png`."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Ask once. Cancellable at every await; the connection is closed when the generator is.

        Raises:
            ModelFault: there was no whole response.
        """
        ...

    async def aclose(self) -> None:
        """Release connections; bounded and safe to call twice."""
        ...
