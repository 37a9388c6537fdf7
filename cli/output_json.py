"""JSON for programs: one object, or one event a line. `agent schema` says what is in them.

A line holds no character that any reader could take for a line break: `str.splitlines` and its like split on NEL and
on U+2028 and U+2029 too, which JSON does not ask to escape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from engine.codec import to_json

if TYPE_CHECKING:
    from engine.client import Submitted
    from engine.event import Event
    from engine.run import RunComplete, RunRecord

SCHEMA_VERSION = 1
"""Raised when a key is taken away or changes its meaning; new keys and new event types come without notice."""

_BREAKS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))


def json_line(value: Any) -> bytes:
    """`value` as one line of JSON, whatever a reader takes for a line break."""
    line = to_json(value)
    for raw, escaped in _BREAKS:  # UTF-8 holds these bytes for these characters only, and only inside strings
        line = line.replace(raw, escaped)
    return line + b"\n"


def accepted_line(submitted: Submitted) -> bytes:
    """The first line of a run: who it is, and what became of the prompt."""
    return json_line(
        {
            "type": "run_accepted",
            "run_id": submitted.run_id,
            "session_id": submitted.session_id,
            "accept_seq": submitted.accept_seq,
            "admission": submitted.admission.value,
            "schema_version": SCHEMA_VERSION,
        }
    )


def event_line(event: Event) -> bytes:
    """One event that is neither the first nor the last."""
    return json_line(event)


def complete_line(completion: RunComplete, *, line: int | None = None) -> bytes:
    """The last line of a run; `line` is the number of the request line that it answers."""
    numbered = {} if line is None else {"line": line}
    return json_line({"type": "run_complete", **numbered, **_fields(completion)})


def error_line(line: int, text: str) -> bytes:
    """The answer to a request line that was not taken."""
    return json_line({"type": "error", "line": line, "error": text})


def record_fields(record: RunRecord) -> dict[str, Any]:
    """A run's record; attachments are named, not repeated."""
    return {
        "run_id": record.run_id,
        "session_id": record.session_id,
        "accept_seq": record.accept_seq,
        "state": record.state.value,
        "model": record.model,
        "prompt": record.prompt.text,
        "prompt_hash": record.prompt_hash,
        "files": [part.name for part in record.prompt.files],
        "owner": record.owner,
        "created_at": record.created_at,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "completion": record.completion,
    }


def listing(items: Sequence[Any], form: str) -> bytes:
    """Several things: one array for `json`, one a line for `jsonl`."""
    return b"".join(json_line(item) for item in items) if form == "jsonl" else json_line(items)


def _fields(completion: RunComplete) -> dict[str, Any]:
    return asdict(completion)
