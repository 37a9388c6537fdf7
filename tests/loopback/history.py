"""What real providers answer with HTTP 400: the reasons to refuse a request body."""

from __future__ import annotations

import json
import re
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def faults_of(raw: bytes) -> tuple[dict[str, Any], list[str]]:
    """The parsed body, and everything that is wrong with it."""
    try:
        body = json.loads(raw.decode("utf-8"))
    except ValueError as error:
        return {}, [f"the body is no valid JSON: {error}"]
    if not isinstance(body, dict):
        return {}, ["the body is no object"]
    faults = list(_text_faults(body))
    if not isinstance(body.get("model"), str) or not body["model"]:
        faults.append("'model' is missing")
    if body.get("stream") is not True:
        faults.append("'stream' is not true")
    for tool in body.get("tools", []):
        function = tool.get("function", {})
        if not _NAME.fullmatch(str(function.get("name", ""))):
            faults.append(f"tool name {function.get('name')!r} is not legal")
        if not isinstance(function.get("parameters"), dict):
            faults.append(f"tool {function.get('name')!r} has no schema")
    if "tools" in body and not body["tools"]:
        faults.append("'tools' is empty")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return body, [*faults, "'messages' is missing or empty"]
    return body, faults + _history_faults(messages)


def _history_faults(messages: list[dict[str, Any]]) -> list[str]:
    faults: list[str] = []
    open_calls: list[str] = []  # calls of the last assistant message that have no result yet
    for at, message in enumerate(messages):
        role = message.get("role")
        place = f"messages[{at}] ({role})"
        if role == "tool":
            call_id = message.get("tool_call_id")
            if call_id in open_calls:
                open_calls.remove(call_id)
            else:
                faults.append(f"{place}: no call {call_id!r} right before it waits for a result")
        elif open_calls:
            faults.append(f"{place}: the calls {open_calls} have no result")
            open_calls = []
        if role not in {"system", "user", "assistant", "tool"}:
            faults.append(f"{place}: unknown role")
        calls = message.get("tool_calls")
        if _is_empty(message.get("content")) and not (role == "assistant" and calls):
            faults.append(f"{place}: empty content")
        if calls is not None:
            faults += [f"{place}: {fault}" for fault in _call_faults(role, calls)]
            open_calls = [call.get("id") for call in calls]
    return faults + ([f"the calls {open_calls} at the end have no result"] if open_calls else [])


def _call_faults(role: str | None, calls: list[dict[str, Any]]) -> list[str]:
    faults = [] if role == "assistant" else ["tool_calls outside an assistant message"]
    if not calls:
        faults.append("tool_calls is empty")
    ids = [call.get("id") for call in calls]
    if len(set(ids)) != len(ids) or not all(isinstance(call_id, str) and call_id for call_id in ids):
        faults.append(f"call ids {ids} are missing or not unique")
    for call in calls:
        function = call.get("function", {})
        if not _NAME.fullmatch(str(function.get("name", ""))):
            faults.append(f"tool name {function.get('name')!r} is not legal")
        try:
            is_object = isinstance(json.loads(function.get("arguments", "")), dict)
        except (TypeError, ValueError):
            is_object = False
        if not is_object:
            faults.append(f"the arguments of {function.get('name')!r} are no JSON object")
    return faults


def _is_empty(content: Any) -> bool:
    if isinstance(content, list):
        return not content or any(part.get("type") == "text" and not part.get("text") for part in content)
    return not (isinstance(content, str) and content.strip())


def _text_faults(value: Any, place: str = "body") -> list[str]:
    """NUL and lone surrogates, wherever they stand."""
    if isinstance(value, str):
        is_bad = "\x00" in value or any("\ud800" <= character <= "\udfff" for character in value)
        return [f"{place} holds NUL or a lone surrogate"] if is_bad else []
    if isinstance(value, dict):
        return [fault for key, item in value.items() for fault in _text_faults(item, f"{place}.{key}")]
    if isinstance(value, list):
        return [fault for at, item in enumerate(value) for fault in _text_faults(item, f"{place}[{at}]")]
    return []
