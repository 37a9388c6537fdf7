"""The store in plain dicts, without a thread: the same promises, deterministic, for tests and schedule exploration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from anyio.lowlevel import cancel_shielded_checkpoint, checkpoint_if_cancelled

from engine.clock import now_utc
from engine.errors import UnknownSessionError
from engine.lifecycle import SETTLED, RunState, Trigger, next_state
from engine.message import Message
from engine.run import RunComplete, RunRecord, SessionRecord
from engine.store import owner as owners
from engine.store.base import Accepted, CancelRequest, NewRun, RunIdTaken, Start, StartOutcome
from engine.store.records import (
    decode_completion,
    decode_parts,
    decode_prompt,
    encode,
    encode_parts,
    interrupted,
    title_of,
)

T = TypeVar("T")


@dataclass(slots=True)
class _Run:
    """A row of runs."""

    record: RunRecord
    lease_until: str
    cancel_requested: bool = False


@dataclass(slots=True)
class _Session:
    """A row of sessions, with its messages by turn."""

    record: SessionRecord
    cancel_mark: int = 0
    messages_saved: int = 0
    active: _Run | None = None
    unsettled: dict[int, _Run] = field(default_factory=dict)  # oldest first
    turns: dict[int, list[Message]] = field(default_factory=dict)


class MemoryStore:
    """A store that lasts as long as the object. Implements `Store`.

    Each method does its work in one stretch, then lets other tasks run once, as the wait for a thread would.
    """

    def __init__(self, *, is_alive: Callable[[str, str], bool] = owners.is_alive) -> None:
        self._is_alive = is_alive
        self._runs: dict[int, _Run] = {}
        self._seq_by_id: dict[str, int] = {}
        self._sessions: dict[str, _Session] = {}
        self._message_ids: set[str] = set()
        self._last_seq = 0
        self._commits = 0

    @property
    def location(self) -> str:
        """See `Store.location`."""
        return "(in memory)"

    async def open(self) -> None:
        """See `Store.open`."""
        await _call(lambda: None)

    async def close(self) -> None:
        """See `Store.close`."""
        await cancel_shielded_checkpoint()

    async def create_run(self, new: NewRun) -> Accepted | RunIdTaken:
        """See `Store.create_run`."""
        return await _call(lambda: self._create_run(new))

    async def queue_run(self, accept_seq: int) -> None:
        """See `Store.queue_run`."""
        await _call(lambda: self._queue_run(accept_seq))

    async def start_run(self, accept_seq: int, session_id: str, user_message: Message) -> Start:
        """See `Store.start_run`."""
        return await _call(lambda: self._start_run(accept_seq, session_id, user_message))

    async def load_history(self, session_id: str) -> list[Message]:
        """See `Store.load_history`."""
        return await _call(lambda: self._load_history(session_id))

    async def add_messages(
        self, accept_seq: int, session_id: str, messages: Sequence[Message], *, folded: Sequence[int] = ()
    ) -> None:
        """See `Store.add_messages`."""
        await _call(lambda: self._add_messages(accept_seq, session_id, messages, folded))

    async def finish_run(
        self, accept_seq: int, session_id: str, completion: RunComplete, messages: Sequence[Message] = ()
    ) -> None:
        """See `Store.finish_run`."""
        await _call(lambda: self._finish_run(accept_seq, session_id, completion, messages))

    async def request_cancel(self, run_id: str) -> CancelRequest:
        """See `Store.request_cancel`."""
        return await _call(lambda: self._request_cancel(run_id))

    async def request_session_cancel(self, session_id: str) -> list[RunRecord]:
        """See `Store.request_session_cancel`."""
        return await _call(lambda: self._request_session_cancel(session_id))

    async def cancelled_runs(self, owner: str) -> list[int]:
        """See `Store.cancelled_runs`."""
        return await _call(
            lambda: [
                run.record.accept_seq
                for run in self._unsettled()
                if run.record.owner == owner and self._is_covered(run)
            ]
        )

    async def renew_lease(self, owner: str) -> None:
        """See `Store.renew_lease`."""
        await _call(lambda: self._renew_lease(owner))

    async def recover_orphans(self) -> list[RunComplete]:
        """See `Store.recover_orphans`."""
        return await _call(self._recover_orphans)

    async def find_run(self, run_id: str) -> RunRecord | None:
        """See `Store.find_run`."""
        return await _call(lambda: self._find_run(run_id))

    async def list_runs(self, *, session_id: str | None = None, limit: int = 50) -> list[RunRecord]:
        """See `Store.list_runs`."""
        return await _call(lambda: self._list_runs(session_id)[:limit])

    async def find_session(self, session_id: str) -> SessionRecord | None:
        """See `Store.find_session`."""
        return await _call(lambda: self._session_record(session_id) if session_id in self._sessions else None)

    async def list_sessions(self, *, limit: int = 50) -> list[SessionRecord]:
        """See `Store.list_sessions`."""
        return await _call(lambda: self._list_sessions()[:limit])

    def change_stamp(self) -> object:
        """See `Store.change_stamp`."""
        return self._commits

    def _create_run(self, new: NewRun) -> Accepted | RunIdTaken:
        if new.run_id is not None and (taken := self._find_run(new.run_id)) is not None:
            return RunIdTaken(taken)
        now = now_utc()
        if new.session_is_new:
            fresh = SessionRecord(new.session_id, title_of(new.prompt), new.cwd, now, now, 0)
            self._sessions.setdefault(new.session_id, _Session(fresh))
        self._touch(new.session_id, now)
        self._last_seq += 1
        if new.run_id is not None:
            self._seq_by_id[new.run_id] = self._last_seq
        record = RunRecord(
            accept_seq=self._last_seq,
            run_id=new.run_id,
            session_id=new.session_id,
            state=RunState.ACCEPTED,
            prompt=decode_prompt(encode(new.prompt)),
            prompt_hash=new.prompt.digest(),
            model=new.model,
            owner=new.owner,
            created_at=now,
            started_at=None,
            ended_at=None,
            completion=None,
        )
        run = _Run(record, owners.lease_end())
        self._runs[self._last_seq] = self._session(new.session_id).unsettled[self._last_seq] = run
        return Accepted(self._last_seq)

    def _queue_run(self, accept_seq: int) -> None:
        run = self._runs[accept_seq]
        if run.record.state is RunState.ACCEPTED:
            run.record = replace(run.record, state=RunState.QUEUED)
            self._commits += 1

    def _start_run(self, accept_seq: int, session_id: str, user_message: Message) -> Start:
        run = self._runs.get(accept_seq)
        if run is None or run.record.state not in (RunState.ACCEPTED, RunState.QUEUED):
            return Start(StartOutcome.SETTLED)
        if self._is_covered(run):
            return Start(StartOutcome.COVERED)
        in_the_way = self._runs_in_the_way(run)
        for other in in_the_way:
            if self._is_alive(other.record.owner, other.lease_until):
                return Start(StartOutcome.BUSY, other.record)
        for other in in_the_way:
            self._settle(other, interrupted(other.record))
        now = now_utc()
        run.lease_until = owners.lease_end()
        run.record = replace(run.record, state=next_state(run.record.state, Trigger.START), started_at=now)
        self._sessions[session_id].active = run
        before = self._sessions[session_id].messages_saved
        self._append(accept_seq, session_id, [user_message])
        self._touch(session_id, now)
        return Start(StartOutcome.STARTED, messages_before=before)

    def _load_history(self, session_id: str) -> list[Message]:
        session = self._sessions.get(session_id)
        turns = {} if session is None else session.turns
        return [message for turn_seq in sorted(turns) for message in turns[turn_seq]]

    def _add_messages(
        self, accept_seq: int, session_id: str, messages: Sequence[Message], folded: Sequence[int]
    ) -> None:
        now = now_utc()
        self._append(accept_seq, session_id, messages)
        for seq in folded:
            run = self._runs.get(seq)
            if run is not None and run.record.state not in SETTLED:
                run.record = replace(run.record, state=RunState.COMPLETED, ended_at=now)
                self._sessions[run.record.session_id].unsettled.pop(seq)
        self._touch(session_id, now)

    def _finish_run(
        self, accept_seq: int, session_id: str, completion: RunComplete, messages: Sequence[Message]
    ) -> None:
        run = self._runs.get(accept_seq)
        if run is None or run.record.state in SETTLED:
            return
        self._append(accept_seq, session_id, messages)
        self._settle(run, completion)
        self._touch(session_id, now_utc())

    def _request_cancel(self, run_id: str) -> CancelRequest:
        seq = self._seq_by_id.get(run_id)
        if seq is None:
            return CancelRequest.UNKNOWN
        if self._runs[seq].record.state in SETTLED:
            return CancelRequest.ENDED
        self._runs[seq].cancel_requested = True
        self._commits += 1
        return CancelRequest.REQUESTED

    def _request_session_cancel(self, session_id: str) -> list[RunRecord]:
        session = self._session(session_id)
        covered = [run.record for run in session.unsettled.values()]
        if covered:
            session.cancel_mark = max(session.cancel_mark, covered[-1].accept_seq)
            self._commits += 1
        return covered

    def _renew_lease(self, owner: str) -> None:
        for run in self._unsettled():
            if run.record.owner == owner:
                run.lease_until = owners.lease_end()
                self._commits += 1

    def _recover_orphans(self) -> list[RunComplete]:
        completions = []
        for run in self._unsettled():
            if self._is_alive(run.record.owner, run.lease_until):
                continue
            completion = interrupted(run.record)
            self._settle(run, completion)
            self._commits += 1
            if run.record.run_id is not None:
                completions.append(completion)
        return completions

    def _find_run(self, run_id: str) -> RunRecord | None:
        seq = self._seq_by_id.get(run_id)
        return None if seq is None else self._runs[seq].record

    def _list_runs(self, session_id: str | None) -> list[RunRecord]:
        records = [run.record for run in reversed(self._runs.values()) if run.record.run_id is not None]
        return [record for record in records if session_id is None or record.session_id == session_id]

    def _session_record(self, session_id: str) -> SessionRecord:
        return replace(self._sessions[session_id].record, runs=len(self._list_runs(session_id)))

    def _list_sessions(self) -> list[SessionRecord]:
        records = [self._session_record(session_id) for session_id in self._sessions]
        return sorted(records, key=lambda record: (record.updated_at, record.session_id), reverse=True)

    def _session(self, session_id: str) -> _Session:
        if session_id not in self._sessions:
            raise UnknownSessionError(session_id)
        return self._sessions[session_id]

    def _unsettled(self) -> list[_Run]:
        """Unsettled runs, oldest first."""
        found = [run for session in self._sessions.values() for run in session.unsettled.values()]
        return sorted(found, key=lambda run: run.record.accept_seq)

    def _runs_in_the_way(self, run: _Run) -> list[_Run]:
        """The session's active run, and older ones of other owners: a process orders its own (style, 4)."""
        session = self._sessions[run.record.session_id]
        found = [] if session.active is None else [session.active]
        for seq, other in session.unsettled.items():
            if seq >= run.record.accept_seq:
                break  # there may be 100,000 younger ones
            if other is not session.active and other.record.owner != run.record.owner:
                found.append(other)
        return found

    def _is_covered(self, run: _Run) -> bool:
        mark = self._sessions[run.record.session_id].cancel_mark
        return run.cancel_requested or run.record.accept_seq <= mark

    def _append(self, accept_seq: int, session_id: str, messages: Sequence[Message]) -> None:
        self._session(session_id).messages_saved += len(messages)
        turn = self._session(session_id).turns.setdefault(accept_seq, [])
        for message in messages:
            if message.message_id not in self._message_ids:
                self._message_ids.add(message.message_id)
                turn.append(replace(message, parts=decode_parts(encode_parts(message))))

    def _settle(self, run: _Run, completion: RunComplete) -> None:
        session = self._sessions[run.record.session_id]
        session.unsettled.pop(run.record.accept_seq)
        if session.active is run:
            session.active = None
        run.record = replace(
            run.record,
            state=completion.status,
            completion=decode_completion(encode(completion)),
            ended_at=completion.ended_at or now_utc(),
        )

    def _touch(self, session_id: str, now: str) -> None:
        session = self._session(session_id)
        session.record = replace(session.record, updated_at=now)
        self._commits += 1


async def _call(work: Callable[[], T]) -> T:
    await checkpoint_if_cancelled()
    value = work()
    await cancel_shielded_checkpoint()
    return value
