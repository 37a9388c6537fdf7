"""The store protocol: each method is one short transaction, and its outcome is always known (design, 7).

Every method is uninterruptible: in a cancelled scope a call that has begun is finished and its result returned (the
cancel strikes at the caller's next checkpoint); one that has not begun raises the cancellation and did nothing.
Calls take effect in the order in which they are made, also when they are made by different tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from engine.message import Message
from engine.run import Prompt, RunComplete, RunRecord, SessionRecord


@dataclass(frozen=True, slots=True)
class NewRun:
    """A prompt on its way into the store. `session_is_new`: the session is made with it, in one transaction."""

    run_id: str | None
    session_id: str
    session_is_new: bool
    prompt: Prompt
    model: str
    cwd: str
    owner: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """The run is in; `accept_seq` is its row id."""

    accept_seq: int


@dataclass(frozen=True, slots=True)
class RunIdTaken:
    """A run with this id is there already; nothing was written."""

    record: RunRecord


class StartOutcome(StrEnum):
    """What became of an attempt to take the session for a turn."""

    STARTED = "started"
    COVERED = "covered"
    BUSY = "busy"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class Start:
    """The outcome of `start_run`; `holder` is the live run of another process that is in the way when BUSY.

    `messages_before`: how many messages the session had when STARTED, counting each save; whoever kept the history
    from the turn before knows by it whether anybody else has written since.

    COVERED: a cancel of the session or of the run, from another process, came first. SETTLED: somebody else has
    completed the run (it was taken for orphaned).
    """

    outcome: StartOutcome
    holder: RunRecord | None = None
    messages_before: int = 0


class CancelRequest(StrEnum):
    """What a cancel from another process found."""

    UNKNOWN = "unknown"
    ENDED = "ended"
    REQUESTED = "requested"


class Store(Protocol):
    """Sessions, messages and runs. Raises `StoreError` subclasses, naming the path, from every method."""

    @property
    def location(self) -> str:
        """Where it is, for people: a path, or `(in memory)`."""
        ...

    async def open(self) -> None:
        """Open, create or migrate; a newer schema raises `StoreSchemaError`."""
        ...

    async def close(self) -> None:
        """Finish what was begun and let go; bounded, safe to call twice."""
        ...

    async def create_run(self, new: NewRun) -> Accepted | RunIdTaken:
        """Insert the run, state accepted. Raises `UnknownSessionError` for a session that is not there."""
        ...

    async def queue_run(self, accept_seq: int) -> None:
        """Note that the run waits: accepted becomes queued, any other state stays."""
        ...

    async def start_run(self, accept_seq: int, session_id: str, user_message: Message) -> Start:
        """Take the session and save the user's message, in one transaction (design, 3 and 6).

        STARTED only if no run of the session is active and no older one of another, living owner waits; else nothing
        is written.
        """
        ...

    async def load_history(self, session_id: str) -> list[Message]:
        """All messages of the session, ordered by the accept sequence of their turn, then by position."""
        ...

    async def add_messages(
        self, accept_seq: int, session_id: str, messages: Sequence[Message], *, folded: Sequence[int] = ()
    ) -> None:
        """Append finished messages to the turn of `accept_seq`; the follow-ups `folded` are settled with them."""
        ...

    async def finish_run(
        self,
        accept_seq: int,
        session_id: str,
        completion: RunComplete,
        messages: Sequence[Message] = (),
    ) -> None:
        """Save the last messages and the terminal state in one transaction; a settled run is left as it is."""
        ...

    async def request_cancel(self, run_id: str) -> CancelRequest:
        """Ask the owner of a run to cancel it."""
        ...

    async def request_session_cancel(self, session_id: str) -> list[RunRecord]:
        """Raise the session's cancel mark to its latest accepted, unsettled run; returns the runs it covers.

        Nothing in flight: nothing is written, the list is empty (design, 3.3). Raises `UnknownSessionError`.
        """
        ...

    async def cancelled_runs(self, owner: str) -> list[int]:
        """Accept sequences of this owner's unsettled runs that another process has asked to cancel."""
        ...

    async def renew_lease(self, owner: str) -> None:
        """Say that this owner lives: its unsettled runs' leases are extended."""
        ...

    async def recover_orphans(self) -> list[RunComplete]:
        """Complete, as failed `interrupted`, the unsettled runs whose owner is dead; returns their completions."""
        ...

    async def find_run(self, run_id: str) -> RunRecord | None:
        """The run with this id."""
        ...

    async def list_runs(self, *, session_id: str | None = None, limit: int = 50) -> list[RunRecord]:
        """Runs, newest first; follow-ups left out."""
        ...

    async def find_session(self, session_id: str) -> SessionRecord | None:
        """The session with this id."""
        ...

    async def list_sessions(self, *, limit: int = 50) -> list[SessionRecord]:
        """Sessions, latest activity first."""
        ...

    def change_stamp(self) -> object:
        """A cheap value that changes when any process has committed; no thread is needed to read it."""
        ...
