"""`agent schema`: the JSON Schema of the lines of `--output jsonl` and `--input jsonl`, by hand, checked by tests."""

from __future__ import annotations

from typing import Any

from cli.output_json import SCHEMA_VERSION
from engine.lifecycle import FinishReason

_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_COUNT = {"type": "integer", "minimum": 0}
_FLAG = {"type": "boolean"}
_TEXTS = {"type": "array", "items": _TEXT}
_RUN = {"run_id": _TEXT_OR_NULL, "session_id": _TEXT}
_CALL = {**_RUN, "call_id": _TEXT, "name": _TEXT}


def schema() -> int:
    """Print the JSON Schema (2020-12) of the lines that `agent run` writes with --output jsonl or --input jsonl.

    \b
    Examples:
      agent schema > events.schema.json
      agent run --output jsonl "Say hello." | jq -r 'select(.type == "run_complete") | .text'
    """
    from cli import streams
    from cli.output_json import json_line

    streams.write_all(json_line(event_schema()))
    return 0


def event_schema() -> dict[str, Any]:
    """The schema of one line. Keys may be added without notice; one that goes or changes raises the version."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A line of `agent run --output jsonl`, version {SCHEMA_VERSION}",
        "description": "The first line is run_accepted, the last run_complete; readers skip types they do not know.",
        "version": SCHEMA_VERSION,
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in _events()],
        "$defs": {**_events(), "usage": _usage(), "saved_message": _message(), "part": _part()},
    }


def _events() -> dict[str, Any]:
    return {
        "run_accepted": _event(
            "run_accepted",
            _RUN | {"accept_seq": _COUNT, "admission": _admission(), "schema_version": {"const": SCHEMA_VERSION}},
        ),
        "run_queued": _event("run_queued", _RUN | {"behind": _TEXT}),
        "run_started": _event("run_started", _RUN | {"model": _TEXT}),
        "message": _event("message", _RUN | {"message": {"$ref": "#/$defs/saved_message"}}),
        "tool_started": _event("tool_started", _CALL | {"arguments": _TEXT}),
        "tool_ended": _event("tool_ended", _CALL | {"is_error": _FLAG, "summary": _TEXT}),
        "retry": _event("retry", _RUN | {"attempt": _COUNT, "wait_seconds": {"type": "number"}, "error": _TEXT}),
        "notice": _event("notice", _RUN | {"text": _TEXT}),
        "run_complete": _event("run_complete", _completion(), optional={"line": _COUNT}),
        "error": _event("error", {"line": _COUNT, "error": _TEXT}),
    }


def _event(type_name: str, keys: dict[str, Any], *, optional: dict[str, Any] | None = None) -> dict[str, Any]:
    event = _object(keys | {"type": {"const": type_name}})
    event["properties"] |= optional or {}
    return event


def _object(keys: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": keys, "required": sorted(keys)}


def _completion() -> dict[str, Any]:
    return {
        "run_id": _TEXT,
        "session_id": _TEXT,
        "message_id": _TEXT_OR_NULL,
        "text": _TEXT,
        "status": {"enum": ["completed", "failed", "cancelled", "needs_input"]},
        "finish_reason": {"enum": [each.value for each in FinishReason]},
        "error": _TEXT_OR_NULL,
        "cancelled": _FLAG,
        "usage": {"$ref": "#/$defs/usage"},
        "cost": {"type": ["number", "null"]},
        "steps": _COUNT,
        "retries": _COUNT,
        "files_changed": _TEXTS,
        "denials": _TEXTS,
        "unfinished": _TEXTS,
        "exit_code": {"type": "integer", "minimum": 0, "maximum": 255},
        "started_at": _TEXT_OR_NULL,
        "ended_at": _TEXT,
    }


def _admission() -> dict[str, Any]:
    return {"enum": ["active", "queued", "cancelled_on_entry", "attached", "replayed"]}


def _usage() -> dict[str, Any]:
    return _object({f"{kind}_tokens": _COUNT for kind in ("input", "output", "cached", "reasoning")})


def _message() -> dict[str, Any]:
    return _object(
        {
            "message_id": _TEXT,
            "role": {"enum": ["user", "assistant", "tool"]},
            "parts": {"type": "array", "items": {"$ref": "#/$defs/part"}},
            "created_at": _TEXT,
        }
    )


def _part() -> dict[str, Any]:
    kinds: dict[str, dict[str, Any]] = {
        "text": {"text": _TEXT},
        "reasoning": {"text": _TEXT},
        "tool_call": {"call_id": _TEXT, "name": _TEXT, "arguments": _TEXT},
        "tool_result": {"call_id": _TEXT, "name": _TEXT, "text": _TEXT, "is_error": _FLAG, "size": _COUNT},
        "file": {"name": _TEXT, "media_type": _TEXT, "text": _TEXT, "data": _TEXT},
        "finish": {
            "reason": {"enum": [each.value for each in FinishReason]},
            "is_partial": _FLAG,
            "detail": _TEXT,
        },
    }
    return {"oneOf": [_object(keys | {"type": {"const": kind}}) for kind, keys in kinds.items()]}
