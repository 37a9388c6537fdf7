"""A line of `--input jsonl`: a prompt, or one of three orders; anything else is refused with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.codec import clean_text, decode_text, from_json
from engine.errors import EmptyPromptError, IllegalIdError, UsageError
from engine.ids import is_legal_id

LINE_MAX = 16 * 1024 * 1024
"""Bytes of one line."""

_PROMPT_KEYS = {"prompt", "run_id", "session"}
_ORDER_KEYS = {"cancel": "run", "cancel_session": "session", "clear_queue": "session"}


@dataclass(frozen=True, slots=True)
class PromptLine:
    """A prompt to run."""

    text: str
    run_id: str | None
    session_id: str | None


@dataclass(frozen=True, slots=True)
class OrderLine:
    """`cancel`, `cancel_session` or `clear_queue`, and the id it is about."""

    order: str
    target: str


def parse_line(raw: bytes) -> PromptLine | OrderLine:
    """What a line asks for.

    Raises:
        UsageError: nothing that can be done; the text says why.
    """
    request = _object(raw)
    orders = [key for key in _ORDER_KEYS if key in request]
    if orders:
        order = orders[0]
        _check_keys(request, {order})
        return OrderLine(order, _id(request, order, _ORDER_KEYS[order]))
    if "prompt" not in request:
        raise UsageError(f"a request has the key prompt or one of {', '.join(_ORDER_KEYS)}")
    _check_keys(request, _PROMPT_KEYS)
    text = clean_text(_text(request, "prompt"))
    if not text.strip():
        raise EmptyPromptError
    run_id = None if request.get("run_id") is None else _id(request, "run_id", "run")
    session_id = None if request.get("session") is None else _id(request, "session", "session")
    return PromptLine(text, run_id, session_id)


def _object(raw: bytes) -> dict[str, Any]:
    if len(raw) > LINE_MAX:
        raise UsageError(f"the line is longer than {LINE_MAX // 1024 // 1024} MiB")
    try:
        request = from_json(decode_text(raw).removeprefix("\ufeff"))
    except ValueError as error:
        raise UsageError(f"not JSON: {error}") from error
    if not isinstance(request, dict):
        raise UsageError("a request is a JSON object")
    return request


def _check_keys(request: dict[str, Any], known: set[str]) -> None:
    foreign = sorted(request.keys() - known)
    if foreign:
        raise UsageError(f"unknown key {foreign[0]!r}: this request takes {', '.join(sorted(known))}")


def _text(request: dict[str, Any], key: str) -> str:
    value = request[key]
    if not isinstance(value, str):
        raise UsageError(f"{key} is a string")
    return value


def _id(request: dict[str, Any], key: str, kind: str) -> str:
    value = _text(request, key)
    if not is_legal_id(value):
        raise IllegalIdError(kind, value)
    return value
