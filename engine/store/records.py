"""What every store derives in the same way: the stored form of prompts and parts, titles, interrupted completions.

Text passes `clean_text` here, at the boundary, so that no database and no reader ever meets a NUL or a lone surrogate.
"""

from __future__ import annotations

from typing import Any

from engine.clock import now_utc
from engine.codec import clean_text, from_json, to_json
from engine.lifecycle import FinishReason, RunState
from engine.message import FilePart, Message, Part, part_from_json
from engine.run import Prompt, RunComplete, RunRecord, run_complete_from_json
from engine.store.owner import describe

TITLE_MAX = 80
"""Characters of a session's title: one line of a list."""


def encode(value: Any) -> str:
    """`value`, dataclasses included, as JSON text that is clean throughout."""
    return to_json(_cleaned(value)).decode()


def encode_parts(message: Message) -> str:
    """The parts of a message as they are stored."""
    return encode(message.parts)


def decode_parts(raw: str) -> tuple[Part, ...]:
    """The parts that `encode_parts` wrote."""
    return tuple(part_from_json(part) for part in from_json(raw))


def decode_prompt(raw: str) -> Prompt:
    """The prompt that `encode` wrote."""
    data = from_json(raw)
    files = [part_from_json(part) for part in data["files"]]
    return Prompt(text=data["text"], files=tuple(part for part in files if isinstance(part, FilePart)))


def decode_completion(raw: str | None) -> RunComplete | None:
    """The completion that `encode` wrote, if there is one."""
    return None if raw is None else run_complete_from_json(from_json(raw))


def title_of(prompt: Prompt) -> str:
    """The start of the prompt's first line, or the name of its first file."""
    lines = clean_text(prompt.text).strip().splitlines()
    if lines:
        return lines[0][:TITLE_MAX]
    return clean_text(prompt.files[0].name)[:TITLE_MAX] if prompt.files else ""


def interrupted(record: RunRecord) -> RunComplete:
    """The completion of a run whose owner died."""
    return RunComplete(
        run_id=record.run_id or "",
        session_id=record.session_id,
        status=RunState.FAILED,
        finish_reason=FinishReason.ERROR,
        error=f"interrupted: its process ({describe(record.owner)}) ended without finishing the run",
        exit_code=1,
        started_at=record.started_at,
        ended_at=now_utc(),
    )


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, (list, tuple)):
        return [_cleaned(item) for item in value]
    fields = getattr(value, "__dataclass_fields__", None)
    return value if fields is None else {name: _cleaned(getattr(value, name)) for name in fields}
