"""Messages and their parts: what a conversation is made of, and their one JSON form."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from engine.lifecycle import FinishReason


class Role(StrEnum):
    """Who speaks. Tool results have a role of their own."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class TextPart:
    """Words."""

    text: str
    type: str = "text"


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """What the model thought aloud; kept for people, not sent back."""

    text: str
    type: str = "reasoning"


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A call that the model asked for. `arguments` is JSON text as it is stored: always a well-formed object."""

    call_id: str
    name: str
    arguments: str
    type: str = "tool_call"


@dataclass(frozen=True, slots=True)
class ToolResultPart:
    """What a call gave back. `text` may be cut; `size` is its true size in bytes (design, 7)."""

    call_id: str
    name: str
    text: str
    is_error: bool = False
    size: int = 0
    type: str = "tool_result"


@dataclass(frozen=True, slots=True)
class FilePart:
    """An attachment: `text` for a text file, else `data`, its bytes in base64."""

    name: str
    media_type: str
    text: str = ""
    data: str = ""
    type: str = "file"


@dataclass(frozen=True, slots=True)
class FinishPart:
    """Why an assistant message ended. `is_partial`: the model had not finished it; `detail` says more."""

    reason: FinishReason
    is_partial: bool = False
    detail: str = ""
    type: str = "finish"


Part = TextPart | ReasoningPart | ToolCallPart | ToolResultPart | FilePart | FinishPart
P = TypeVar("P", TextPart, ReasoningPart, ToolCallPart, ToolResultPart, FilePart, FinishPart)


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a session."""

    message_id: str
    role: Role
    parts: tuple[Part, ...]
    created_at: str

    @property
    def text(self) -> str:
        """The words of this message, its text parts joined."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    def parts_of(self, kind: type[P]) -> list[P]:
        """The parts of one kind, in order."""
        return [part for part in self.parts if isinstance(part, kind)]


def part_from_json(data: dict[str, Any]) -> Part:
    """The part that `data`, as `orjson` dumps a part, describes.

    Raises:
        ValueError: the type is unknown or a field is missing or foreign.
    """
    fields = {key: value for key, value in data.items() if key != "type"}
    try:
        if data["type"] == "finish":
            return FinishPart(**(fields | {"reason": FinishReason(fields["reason"])}))
        return _PART_TYPES[data["type"]](**fields)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a message part: {error}") from error


_PART_TYPES: dict[str, type[TextPart | ReasoningPart | ToolCallPart | ToolResultPart | FilePart]] = {
    "text": TextPart,
    "reasoning": ReasoningPart,
    "tool_call": ToolCallPart,
    "tool_result": ToolResultPart,
    "file": FilePart,
}
