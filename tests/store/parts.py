"""What the store's tests build with: prompts, messages, completions."""

from __future__ import annotations

from engine.clock import now_utc
from engine.ids import new_message_id
from engine.lifecycle import FinishReason, RunState
from engine.message import FinishPart, Message, Part, Role, TextPart
from engine.run import Prompt, RunComplete
from engine.store.base import Accepted, NewRun, StartOutcome, Store
from engine.store.owner import this_owner

OURS = this_owner()
OTHER = "elsewhere/17/1/1"
"""A process of another host: its lease tells whether it lives, and new leases do."""


def new_run(run_id: str | None, session_id: str = "s1", **changes) -> NewRun:
    fields = {"session_is_new": True, "prompt": Prompt("do it"), "model": "m", "cwd": "/w", "owner": OURS}
    return NewRun(run_id=run_id, session_id=session_id, **(fields | changes))


def message(role: Role, *parts: Part, message_id: str | None = None) -> Message:
    return Message(message_id or new_message_id(), role, parts, now_utc())


def said(text: str, *, message_id: str | None = None) -> Message:
    return message(Role.USER, TextPart(text), message_id=message_id)


def answered(text: str) -> Message:
    return message(Role.ASSISTANT, TextPart(text), FinishPart(FinishReason.END_TURN))


def completed(run_id: str, session_id: str = "s1", **changes) -> RunComplete:
    return RunComplete(run_id=run_id, session_id=session_id, **({"text": "done", "ended_at": now_utc()} | changes))


async def accept(store: Store, run_id: str | None, session_id: str = "s1", **changes) -> int:
    accepted = await store.create_run(new_run(run_id, session_id, **changes))
    assert isinstance(accepted, Accepted)
    return accepted.accept_seq


async def start(store: Store, run_id: str | None, session_id: str = "s1", **changes) -> int:
    seq = await accept(store, run_id, session_id, **changes)
    started = await store.start_run(seq, session_id, said(f"prompt of {run_id}"))
    assert started.outcome is StartOutcome.STARTED
    return seq


async def state_of(store: Store, run_id: str) -> RunState:
    record = await store.find_run(run_id)
    assert record is not None
    return record.state
