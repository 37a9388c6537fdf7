"""A provider's own look at a history: what it would refuse. Written apart from the code that makes histories valid."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from engine.message import FilePart, FinishPart, Message, Role, TextPart, ToolCallPart, ToolResultPart

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

_KINDS = {
    Role.USER: (TextPart, FilePart, FinishPart),
    Role.ASSISTANT: (TextPart, ToolCallPart, FinishPart),
    Role.TOOL: (ToolResultPart,),
}
"""What a message of each role may hold; a finish says nothing to a provider, adapters leave it out."""


def refusals(messages: Sequence[Message]) -> list[str]:
    """Every reason to answer this history with HTTP 400."""
    return list(_refusals(messages))


def _refusals(messages: Sequence[Message]) -> Iterator[str]:
    open_calls: list[tuple[str, str]] = []
    for place, message in enumerate(messages):
        yield from (f"message {place}: {fault}" for fault in _faults_of(message))
        if message.role is Role.TOOL:
            results = [(part.call_id, part.name) for part in message.parts_of(ToolResultPart)]
            if results != open_calls:
                yield f"message {place}: results {results} for the calls {open_calls}"
            open_calls = []
        elif open_calls:
            yield f"message {place}: the calls {open_calls} have no result right behind them"
        if message.role is Role.ASSISTANT:
            open_calls = [(call.call_id, call.name) for call in message.parts_of(ToolCallPart)]
    if open_calls:
        yield f"the calls {open_calls} at the end have no result"


def _faults_of(message: Message) -> Iterator[str]:
    spoken = [part for part in message.parts if not isinstance(part, FinishPart)]
    if not spoken:
        yield "it is empty"
    for part in message.parts:
        if not isinstance(part, _KINDS[message.role]):
            yield f"a {part.type} in a message of the {message.role}"
        yield from (f"{text!r} is not clean" for text in _words(part) if not _is_sendable(text))
        if isinstance(part, (TextPart, ToolResultPart)) and not part.text.strip():
            yield "a blank text"
    calls = message.parts_of(ToolCallPart)
    ids = [call.call_id for call in calls]
    if len(set(ids)) != len(ids) or not all(ids):
        yield f"call ids {ids} are empty or not unique"
    for call in calls:
        if not _NAME.fullmatch(call.name):
            yield f"the name {call.name!r} is not legal"
        if not _is_object(call.arguments):
            yield f"the arguments {call.arguments!r} are no JSON object"


def _words(part: object) -> Iterator[str]:
    for name in ("text", "call_id", "name", "arguments", "media_type", "data"):
        yield getattr(part, name, "")


def _is_sendable(text: str) -> bool:
    try:
        return b"\0" not in text.encode("utf-8")
    except UnicodeEncodeError:
        return False


def _is_object(text: str) -> bool:
    try:
        value = json.loads(text, parse_constant=_refuse)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except ValueError:
        return False
    return isinstance(value, dict)


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")
