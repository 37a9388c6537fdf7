"""What the model is shown: any history, however broken, made valid for any provider (design, 6; behaviours, E8).

The store keeps what happened; this is a view of it, made anew before every request. Each tool call gets exactly one
result, paired within the group of tool messages right behind it (providers reuse ids across turns); calls without one
get a synthetic error and are never run again; results without a call, and messages with nothing to say, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engine.codec import clean_text, from_json, is_clean
from engine.ids import new_id
from engine.message import FilePart, FinishPart, Message, Part, Role, TextPart, ToolCallPart, ToolResultPart

INTERRUPTED = "interrupted: this call did not finish, and whether it had an effect is not known"
"""The synthetic result of a call that has none of its own."""

_LEGAL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(slots=True)
class Earlier:
    """What the turns before this one left: messages that are valid to send, and the call ids used in them.

    It can be kept from turn to turn: a turn leaves each of its calls answered, so what it adds stays valid as it is,
    and a session of 10,000 turns is not looked through anew before each. `saved` is the store's count of messages that
    this view accounts for.
    """

    messages: list[Message] = field(default_factory=list)
    call_ids: set[str] = field(default_factory=set)
    saved: int = 0

    def add(self, messages: Sequence[Message], *, saved: int) -> None:
        """Take the messages of a turn, or of a loaded history, in; the store counted `saved` of them."""
        valid = valid_history(messages)
        self.messages += valid
        self.call_ids.update(call.call_id for message in valid for call in message.parts_of(ToolCallPart))
        self.saved += saved


def valid_history(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages that may be sent, in order."""
    valid: list[Message] = []
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if _is_plain(message):
            # The common case, told apart first: a session of 10,000 turns is looked through before every request.
            valid.append(message)
        elif message.role is Role.ASSISTANT:
            results: list[ToolResultPart] = []
            while position < len(messages) and messages[position].role is Role.TOOL:
                results += messages[position].parts_of(ToolResultPart)
                position += 1
            valid += _assistant_group(message, results)
        elif message.role is Role.USER and (parts := _spoken(message.parts)):
            valid.append(Message(message.message_id, message.role, parts, message.created_at))
    return tuple(valid)


def legal_tool_name(name: str) -> str:
    """`name` if a provider would take it in a history, else a stand-in."""
    return name if _LEGAL_NAME.fullmatch(name) else "unknown_tool"


def is_json_object(text: str) -> bool:
    """Whether `text` is a JSON object, as tool arguments must be."""
    try:
        return isinstance(from_json(text), dict)
    except ValueError:
        return False


def _is_plain(message: Message) -> bool:
    """Whether a message is words alone, not blank and sendable as they stand."""
    if message.role is Role.TOOL:
        return False
    has_words = False
    for part in message.parts:
        if isinstance(part, TextPart):
            if not part.text.strip() or not is_clean(part.text):
                return False
            has_words = True
        elif not isinstance(part, FinishPart):
            return False
    return has_words


def _assistant_group(message: Message, results: Sequence[ToolResultPart]) -> Iterable[Message]:
    """An assistant message and its results, one for each call, in call order."""
    first_by_id: dict[str, ToolResultPart] = {}
    for each in results:
        first_by_id.setdefault(each.call_id, each)
    parts: list[Part] = [part for part in _spoken(message.parts) if isinstance(part, TextPart)]
    answers: list[Part] = []
    seen: set[str] = set()
    for call in message.parts_of(ToolCallPart):
        call_id = clean_text(call.call_id)
        result: ToolResultPart | None = first_by_id.get(call.call_id)
        if not call_id or call_id in seen:
            call_id, result = new_id("call"), None
        seen.add(call_id)
        name = legal_tool_name(call.name)
        arguments = clean_text(call.arguments)
        parts.append(ToolCallPart(call_id, name, arguments if is_json_object(arguments) else "{}"))
        if result is None:
            result = ToolResultPart(call_id, name, INTERRUPTED, is_error=True)
        text = clean_text(result.text) if result.text.strip() else "(no output)"
        answers.append(ToolResultPart(call_id, name, text, result.is_error))
    if parts:
        yield Message(message.message_id, Role.ASSISTANT, tuple(parts), message.created_at)
    if answers:
        yield Message(f"{message.message_id}-results", Role.TOOL, tuple(answers), message.created_at)


def _spoken(parts: Sequence[Part]) -> tuple[TextPart | FilePart, ...]:
    """The text and file parts that say something, made sendable."""
    kept: list[TextPart | FilePart] = []
    for part in parts:
        if isinstance(part, TextPart) and part.text.strip():
            kept.append(TextPart(clean_text(part.text)))
        elif isinstance(part, FilePart):
            name, media_type = clean_text(part.name), clean_text(part.media_type)
            kept.append(FilePart(name, media_type, clean_text(part.text), part.data))
    return tuple(kept)
