"""What the loopback provider is told to do with a request: a status, headers, and a list of actions for the body."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Ending(Enum):
    """How a connection is broken off."""

    RESET = "reset"
    CLOSE = "close"


RESET = Ending.RESET
"""Ends the connection with a TCP reset."""

CLOSE = Ending.CLOSE
"""Ends the connection without the end of the body."""


class Hold:
    """A place where the server stops until it is released, the client goes, or the provider is closed."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.released = threading.Event()

    def release(self) -> None:
        self.released.set()


_call_numbers = itertools.count(1)

Action = dict[str, Any] | str | bytes | Hold | Ending
"""A chunk (sent as a data event), raw text or bytes of the body, a stop, or the end of the connection."""


@dataclass(frozen=True)
class Reply:
    """One response. `before` acts before the status line is sent: a hold there is a stall before the first byte."""

    actions: Sequence[Action] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    before: Sequence[Hold | Ending] = ()


def chunk(delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A chunk of a streamed completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "loopback", "object": "chat.completion.chunk", "model": "loopback", "choices": [choice], **more}


def usage(input_tokens: int = 10, output_tokens: int = 5, *, cached: int = 0, reasoning: int = 0) -> dict[str, Any]:
    """A usage object."""
    return {
        "prompt_tokens": input_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def usage_chunk(*counts: int, **details: int) -> dict[str, Any]:
    """The chunk without choices in which OpenAI sends the usage."""
    return {**chunk({}), "choices": [], "usage": usage(*counts, **details)}


def tool_call(name: str, arguments: Any, call_id: str | None = None) -> dict[str, Any]:
    """A whole tool call; arguments that are text are sent as they are."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def answer(
    *texts: str,
    reasoning: str = "",
    tool_calls: Sequence[dict[str, Any]] = (),
    finish: str | None = None,
    usage_counts: tuple[int, int] | None = (10, 5),
    hold: Mapping[int, Hold] | None = None,
    before: Sequence[Hold | Ending] = (),
) -> Reply:
    """A streamed answer as OpenAI sends it; `hold[n]` stops it after n fragments of text."""
    actions: list[Action] = [chunk({"role": "assistant", "content": ""})]
    if reasoning:
        actions.append(chunk({"reasoning_content": reasoning}))
    stops = hold or {}
    for number, text in enumerate(texts):
        actions += [stops[number]] if number in stops else []
        actions.append(chunk({"content": text}))
    actions += [stops[len(texts)]] if len(texts) in stops else []
    for index, call in enumerate(tool_calls):
        actions += _streamed(index, call)
    actions.append(chunk({}, finish or ("tool_calls" if tool_calls else "stop")))
    actions += [usage_chunk(*usage_counts)] if usage_counts else []
    return Reply([*actions, "data: [DONE]\n\n"], before=before)


def refusal(status: int, message: str, *, code: str | None = None, headers: Mapping[str, str] | None = None) -> Reply:
    """An error response as OpenAI sends it."""
    body = json.dumps({"error": {"message": message, "type": "error", "code": code}})
    return Reply([body], status, {"content-type": "application/json", **(headers or {})})


def _streamed(index: int, call: dict[str, Any]) -> list[Action]:
    """A call in three fragments: id and name first, then its arguments in two."""
    text = call["function"]["arguments"]
    call_id = call["id"] or f"call_{next(_call_numbers)}"
    first = {"index": index, "id": call_id, "type": "function", "function": {"name": call["function"]["name"]}}
    pieces = [text[: len(text) // 2], text[len(text) // 2 :]]
    return [
        chunk({"tool_calls": [first]}),
        *(chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}) for piece in pieces),
    ]
