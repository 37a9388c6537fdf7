"""A chat-completions response put together: text, reasoning, tool calls and usage, out of chunks in many dialects.

Servers differ: some send no index or no id with a tool call, or every call whole and under index 0; usage comes on the
last chunk, after it, or on each; `finish_reason` may be an empty string until the end. Pure code: no I/O, no waiting.
"""

from __future__ import annotations

import re
from typing import Any

from engine.codec import clean_text, to_json
from engine.ids import new_id
from engine.model.base import (
    ModelEvent,
    ModelFinish,
    RawToolCall,
    ReasoningChunk,
    ResponseEnd,
    TextChunk,
    ToolCallChunk,
)
from engine.run import Usage

RESPONSE_MAX = 64 * 1024 * 1024
"""Characters of one response, arguments included: over any model's output limit, and a bound for memory."""

TOOL_CALLS_MAX = 1000
"""Tool calls in one response: far over any real one."""

_FINISHES: dict[str, ModelFinish] = {
    "stop": ModelFinish.STOP,
    "eos": ModelFinish.STOP,
    "end_turn": ModelFinish.STOP,
    "stop_sequence": ModelFinish.STOP,
    "length": ModelFinish.LENGTH,
    "max_tokens": ModelFinish.LENGTH,
    "model_length": ModelFinish.LENGTH,
    "tool_calls": ModelFinish.TOOL_CALLS,
    "tool_use": ModelFinish.TOOL_CALLS,
    "function_call": ModelFinish.TOOL_CALLS,
    "content_filter": ModelFinish.CONTENT_FILTER,
    "sensitive": ModelFinish.CONTENT_FILTER,
}
_BROKEN_FINISHES = frozenset({"error", "network_error", "insufficient_system_resource", "abort", "cancelled"})
"""Words by which a server says that it gave up: no end of a response."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_SPLIT_PAIR = re.compile("[\ud800-\udbff]\\Z")


class MalformedResponseError(ValueError):
    """What came is no chat completion, or too much of one."""


class BrokenOffError(Exception):
    """The server says that it gave up in the middle."""


class _Call:
    """A tool call that is being written."""

    __slots__ = ("call_id", "name", "pieces", "size")

    def __init__(self) -> None:
        self.call_id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.size = 0


class _Text:
    """Fragments made clean. Half of a surrogate pair is held until its other half comes with the next fragment."""

    def __init__(self) -> None:
        self._half = ""

    def take(self, fragment: str) -> str:
        text = self._half + fragment
        self._half = text[-1] if _SPLIT_PAIR.search(text) else ""
        return mend_text(text[:-1] if self._half else text)


class ChatResponse:
    """One response so far. `is_finished` once its finish reason has come: only then it is whole."""

    def __init__(self, response_max: int = RESPONSE_MAX) -> None:
        self._response_max = response_max
        self._size = 0
        self._text = _Text()
        self._reasoning = _Text()
        self._calls: list[_Call] = []
        self._by_index: dict[int, int] = {}  # the server's index -> the place in `_calls`, the last one if reused
        self._finish = ""
        self._usage: Usage | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the finish reason has come."""
        return bool(self._finish)

    def take(self, chunk: Any) -> list[ModelEvent]:
        """The events of one chunk, or of a whole completion that was not streamed.

        Raises:
            MalformedResponseError: it is no chunk, or over a bound.
            BrokenOffError: its finish reason says that the server gave up.
        """
        if not isinstance(chunk, dict):
            raise MalformedResponseError("a chunk of the stream is no JSON object")
        self._take_usage(chunk)
        events: list[ModelEvent] = []
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if isinstance(choice, dict) and not choice.get("index"):
                self._take_choice(choice, events)
        return events

    def end(self) -> ResponseEnd:
        """The last event of a finished response.

        Raises:
            MalformedResponseError: calls came with a finish reason that nobody knows.
        """
        assert self._finish, "a response without its finish reason is not whole"
        calls = tuple(
            RawToolCall(call.call_id or new_id("call"), call.name, mend_text("".join(call.pieces)))
            for call in self._calls
        )
        finish = _FINISHES.get(self._finish)
        if finish is None and calls:
            raise MalformedResponseError(f"tool calls with the unknown finish reason {self._finish[:40]!r}")
        if finish in {None, ModelFinish.STOP, ModelFinish.TOOL_CALLS}:
            finish = ModelFinish.TOOL_CALLS if calls else ModelFinish.STOP
        assert finish is not None
        return ResponseEnd(finish, calls, self._usage)

    def _take_choice(self, choice: dict[str, Any], events: list[ModelEvent]) -> None:
        delta = choice.get("delta", choice.get("message"))
        if isinstance(delta, dict):
            self._take_delta(delta, events)
        finish = choice.get("finish_reason")
        if isinstance(finish, str) and finish not in {"", "null"}:
            if finish in _BROKEN_FINISHES:
                raise BrokenOffError(f"the server gave up (finish reason {finish!r})")
            self._finish = finish

    def _take_delta(self, delta: dict[str, Any], events: list[ModelEvent]) -> None:
        thought = _words(delta.get("reasoning_content")) or _words(delta.get("reasoning"))
        content = delta.get("content")
        if isinstance(content, list):  # Mistral: typed parts, thoughts among them
            thought += "".join(_words(part.get("thinking")) for part in content if isinstance(part, dict))
        said = _words(content) + _words(delta.get("refusal"))
        self._count(len(thought) + len(said))
        if thought and (text := self._reasoning.take(thought)):
            events.append(ReasoningChunk(text))
        if said and (text := self._text.take(said)):
            events.append(TextChunk(text))
        fragments = delta.get("tool_calls")
        if not isinstance(fragments, list):
            fragments = []
        if isinstance(legacy := delta.get("function_call"), dict):
            fragments = [*fragments, {"index": 0, "function": legacy}]
        for fragment in fragments:
            if isinstance(fragment, dict):
                place = self._take_call(fragment)
                events.append(ToolCallChunk(place, self._calls[place].size))

    def _take_call(self, fragment: dict[str, Any]) -> int:
        """Add a fragment to the call it belongs to; gives that call's place."""
        function = fragment.get("function")
        if not isinstance(function, dict):
            function = {}
        call_id, name = clean_text(_words(fragment.get("id"))), clean_text(_words(function.get("name")))
        index = fragment.get("index")
        place = self._place_of(index if isinstance(index, int) else None, call_id, name)
        call = self._calls[place]
        call.call_id = call.call_id or call_id
        if name != call.name:  # some servers repeat the name with every fragment
            call.name += name
        arguments = function.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            arguments = to_json(arguments).decode()
        if arguments:
            self._count(len(arguments))
            call.size += len(arguments)
            call.pieces.append(arguments)
        return place

    def _place_of(self, index: int | None, call_id: str, name: str) -> int:
        """The call a fragment goes on with, or a new one: index first, then id, then the last call."""
        place = self._by_index.get(index) if index is not None else self._place_without_index(call_id, name)
        if place is not None:
            known = self._calls[place].call_id
            if not (call_id and known and call_id != known):
                return place
        # Another id under a used index is another call: some servers send every call whole, as index 0.
        if len(self._calls) >= TOOL_CALLS_MAX:
            raise MalformedResponseError(f"more than {TOOL_CALLS_MAX} tool calls in one response")
        self._calls.append(_Call())
        if index is not None:
            self._by_index[index] = len(self._calls) - 1
        return len(self._calls) - 1

    def _place_without_index(self, call_id: str, name: str) -> int | None:
        if call_id:
            return next((at for at, call in enumerate(self._calls) if call.call_id == call_id), None)
        if name or not self._calls:
            return None
        return len(self._calls) - 1

    def _take_usage(self, chunk: dict[str, Any]) -> None:
        """The last usage holds: servers that send it more than once send running totals."""
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._usage = Usage(
                input_tokens=_count_in(usage, "prompt_tokens"),
                output_tokens=_count_in(usage, "completion_tokens"),
                cached_tokens=_count_in(usage, "prompt_tokens_details", "cached_tokens")
                or _count_in(usage, "prompt_cache_hit_tokens"),
                reasoning_tokens=_count_in(usage, "completion_tokens_details", "reasoning_tokens"),
            )

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self._response_max:
            raise MalformedResponseError(f"the response is longer than {self._response_max} characters")


def mend_text(text: str) -> str:
    """`text` with surrogate pairs that came in halves joined, and what then is not valid replaced."""
    if _SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return clean_text(text)


def _words(value: Any) -> str:
    """Text, or the text of a list of typed parts; anything else says nothing."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_words(part.get("text")) for part in value if isinstance(part, dict))
    return ""


def _count_in(usage: dict[str, Any], *path: str) -> int:
    """A token count, 0 where the server does not tell."""
    value: Any = usage
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, int) and value > 0 else 0
