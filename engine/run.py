"""A run from outside: what is asked (`RunRequest`), what is answered (`RunComplete`), what is on record."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from engine.lifecycle import FinishReason, RunState
from engine.limits import RunLimits
from engine.message import FilePart


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the user says: words, and files to go with them."""

    text: str
    files: tuple[FilePart, ...] = ()

    def is_empty(self) -> bool:
        """Whether there is nothing to answer: no text and no text attachment (design, 3.1)."""
        return not self.text.strip() and not any(part.text.strip() for part in self.files)

    def digest(self) -> str:
        """A SHA-256 over words and files, in hex: two prompts are the same when it is (design, 8)."""
        sha = hashlib.sha256(self.text.encode("utf-8", "surrogatepass"))
        for part in self.files:
            for piece in (part.name, part.media_type, part.text, part.data):
                raw = piece.encode("utf-8", "surrogatepass")
                sha.update(b"\0%d\0" % len(raw) + raw)
        return sha.hexdigest()


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One prompt handed in.

    `run_id` None makes it a follow-up: folded into the active turn or run when the session is idle, with no
    completion of its own (design, 1). `session_id` None starts a session. `tools` are names of tools offered.
    """

    prompt: Prompt
    run_id: str | None = None
    session_id: str | None = None
    model: str = ""
    system: str = ""
    tools: tuple[str, ...] = ()
    limits: RunLimits = field(default_factory=RunLimits)
    cwd: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one run, each model response counted once (design, 4)."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


class StopReason(StrEnum):
    """Who or what stopped a run, recorded at the moment of the cancel (style, 6)."""

    CANCEL = "cancel"
    SIGINT = "sigint"
    SIGTERM = "sigterm"
    SIGHUP = "sighup"
    DEADLINE = "deadline"
    SHUTDOWN = "shutdown"
    STDOUT_CLOSED = "stdout_closed"
    LEASE_LOST = "lease_lost"


@dataclass(frozen=True, slots=True)
class RunComplete:
    """The terminal event of a run: the same keys in every outcome (design, 4).

    `status` is completed, failed, cancelled or needs_input; `text` the answer, or what there was of it; `cost` in US
    dollars, None when no price is known; times are UTC in ISO 8601.
    """

    run_id: str
    session_id: str
    message_id: str | None = None
    text: str = ""
    status: RunState = RunState.COMPLETED
    finish_reason: FinishReason = FinishReason.END_TURN
    error: str | None = None
    cancelled: bool = False
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    steps: int = 0
    retries: int = 0
    files_changed: tuple[str, ...] = ()
    denials: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    exit_code: int = 0
    started_at: str | None = None
    ended_at: str = ""


def run_complete_from_json(data: dict[str, Any]) -> RunComplete:
    """The completion that `orjson.dumps` wrote, back again; keys of a newer version are ignored."""
    known = {key: data[key] for key in RunComplete.__dataclass_fields__ if key in data}
    known["status"] = RunState(known["status"])
    known["finish_reason"] = FinishReason(known["finish_reason"])
    usage = known.get("usage") or {}
    known["usage"] = Usage(**{key: usage[key] for key in Usage.__dataclass_fields__ if key in usage})
    for key in ("files_changed", "denials", "unfinished"):
        known[key] = tuple(known.get(key) or ())
    return RunComplete(**known)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What the store knows of a run. `completion` is there once the run has settled."""

    accept_seq: int
    run_id: str | None
    session_id: str
    state: RunState
    prompt: Prompt
    prompt_hash: str
    model: str
    owner: str
    created_at: str
    started_at: str | None
    ended_at: str | None
    completion: RunComplete | None


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """What the store knows of a session. `title` is the start of its first prompt."""

    session_id: str
    title: str
    cwd: str
    created_at: str
    updated_at: str
    runs: int
