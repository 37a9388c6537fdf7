"""What a front end may do with the engine, and what it is told: the one interface that `cli` is written against.

`engine.app.open_engine` gives an implementation that runs everything in this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from engine.broker.broker import Subscription
from engine.run import RunComplete, RunRecord, RunRequest, SessionRecord, StopReason


class Admission(StrEnum):
    """What became of a prompt that was handed in (behaviours, R-C1).

    ATTACHED: a run with this id and this prompt is in flight, maybe in another process; REPLAYED: it has settled.
    """

    ACTIVE = "active"
    QUEUED = "queued"
    CANCELLED_ON_ENTRY = "cancelled_on_entry"
    ATTACHED = "attached"
    REPLAYED = "replayed"


@dataclass(frozen=True, slots=True)
class Submitted:
    """A prompt that will be answered. `run_id` is None for a follow-up, which has nothing to wait for."""

    run_id: str | None
    session_id: str
    accept_seq: int
    admission: Admission


class CancelResult(StrEnum):
    """What a cancel of one run found (design, 9)."""

    CANCELLING = "cancelling"
    DROPPED = "dropped"
    ALREADY_ENDED = "already_ended"


@dataclass(frozen=True, slots=True)
class SessionCancelled:
    """What a cancel of a session hit: run ids, oldest first. All empty: it was idle and nothing happened."""

    active: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


class Client(Protocol):
    """The engine as front ends see it. Every method may raise `StoreError`."""

    async def submit(self, request: RunRequest) -> Submitted:
        """Validate, accept durably, dispatch. The run goes on whatever becomes of the caller.

        Raises:
            UsageError: nothing was accepted; the subclass and text say why.
            RunIdConflictError: the run id is taken by another prompt or session.
            EngineClosedError: too late.
        """
        ...

    async def wait(self, run_id: str) -> RunComplete:
        """The run's one completion, whenever it comes and whichever process owns it; late callers get it at once.

        Raises:
            UnknownRunError: no such run.
        """
        ...

    async def cancel_run(self, run_id: str, reason: StopReason = StopReason.CANCEL) -> CancelResult:
        """Stop this run alone; `wait` tells when it has wound up.

        Raises:
            UnknownRunError: no such run.
        """
        ...

    async def cancel(self, session_id: str, reason: StopReason = StopReason.CANCEL) -> SessionCancelled:
        """Stop the session: its active run, its accepted and its queued prompts. An idle one is left as it is.

        Raises:
            UnknownSessionError: no such session.
        """
        ...

    async def cancel_all(self, reason: StopReason) -> None:
        """Stop every run that this process owns; each still gets its completion."""
        ...

    async def clear_queue(self, session_id: str) -> tuple[str, ...]:
        """Drop what waits in this session, leaving its active run alone; returns the dropped run ids."""
        ...

    def subscribe(
        self, *, run_id: str | None = None, session_id: str | None = None
    ) -> AbstractContextManager[Subscription]:
        """Live events of a run, a session or (with neither) all; iterate asynchronously. Deltas may be lost.

        With a `run_id` its completion has a slot of its own and is never crowded out.
        """
        ...

    async def find_run(self, run_id: str) -> RunRecord | None:
        """What the store knows of a run."""
        ...

    async def list_runs(self, *, session_id: str | None = None, limit: int = 50) -> Sequence[RunRecord]:
        """Runs, newest first."""
        ...

    async def find_session(self, session_id: str) -> SessionRecord | None:
        """What the store knows of a session."""
        ...

    async def list_sessions(self, *, limit: int = 50) -> Sequence[SessionRecord]:
        """Sessions, latest activity first."""
        ...
