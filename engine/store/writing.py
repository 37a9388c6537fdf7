"""One open transaction that writes: the store's changes as statements. Runs in the store's thread.

The transaction holds the write lock from its beginning, so what it reads stays true until it commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sqlalchemy import and_, func, select, update
from sqlalchemy.dialects.sqlite import insert

from engine.clock import now_utc
from engine.lifecycle import SETTLED, RunState, Trigger, next_state
from engine.message import Message
from engine.run import RunComplete, RunRecord
from engine.store.base import Accepted, CancelRequest, NewRun, RunIdTaken, Start, StartOutcome
from engine.store.owner import lease_end
from engine.store.reading import Found, Reading, record_of
from engine.store.records import encode, encode_parts, interrupted, title_of
from engine.store.tables import IS_ACTIVE, UNSETTLED, messages, runs, sessions

IsAlive = Callable[[str, str], bool]


class Writing(Reading):
    """The changes, over the transaction of a session."""

    def create_run(self, new: NewRun) -> Accepted | RunIdTaken:
        """See `Store.create_run`."""
        if new.run_id is not None and (taken := self.find_run(new.run_id)) is not None:
            return RunIdTaken(taken)
        now = now_utc()
        if new.session_is_new:
            row = {"id": new.session_id, "title": title_of(new.prompt), "cwd": new.cwd, "created_at": now}
            values = row | {"updated_at": now, "cancel_mark": 0, "messages_saved": 0}
            self.connection.execute(insert(sessions).values(values).on_conflict_do_nothing())
        else:
            self.cancel_mark(new.session_id)  # raises for a session that is not there
            self._touch(new.session_id, now)
        statement = insert(runs).values(
            run_id=new.run_id,
            session_id=new.session_id,
            state=RunState.ACCEPTED.value,
            prompt=encode(new.prompt),
            prompt_hash=new.prompt.digest(),
            model=new.model,
            cwd=new.cwd,
            owner=new.owner,
            lease_until=lease_end(),
            cancel_requested=False,
            created_at=now,
        )
        key = self.connection.execute(statement).inserted_primary_key
        assert key is not None
        return Accepted(key[0])

    def queue_run(self, accept_seq: int) -> None:
        """See `Store.queue_run`."""
        is_accepted = and_(runs.c.accept_seq == accept_seq, runs.c.state == RunState.ACCEPTED.value)
        self.connection.execute(update(runs).where(is_accepted).values(state=RunState.QUEUED.value))

    def start_run(self, accept_seq: int, session_id: str, user_message: Message, is_alive: IsAlive) -> Start:
        """See `Store.start_run`: dead runs in the way are recovered in the same transaction."""
        row = self._run(accept_seq)
        if row is None or row.state not in (RunState.ACCEPTED, RunState.QUEUED):
            return Start(StartOutcome.SETTLED)
        if row.cancel_requested or accept_seq <= self.cancel_mark(session_id):
            return Start(StartOutcome.COVERED)
        in_the_way = self._runs_in_the_way(row)
        for other in in_the_way:
            if is_alive(other.owner, other.lease_until):
                return Start(StartOutcome.BUSY, record_of(other))
        for other in in_the_way:
            self._settle(other.accept_seq, interrupted(record_of(other)))
        now = now_utc()
        state = next_state(RunState(row.state), Trigger.START)
        values = {"state": state.value, "started_at": now, "lease_until": lease_end()}
        self.connection.execute(update(runs).where(runs.c.accept_seq == accept_seq).values(values))
        before = self.connection.scalar(select(sessions.c.messages_saved).where(sessions.c.id == session_id))
        self._append(accept_seq, session_id, [user_message])
        self._touch(session_id, now, added=1)
        return Start(StartOutcome.STARTED, messages_before=before or 0)

    def add_messages(self, accept_seq: int, session_id: str, new: Sequence[Message], folded: Sequence[int]) -> None:
        """See `Store.add_messages`."""
        now = now_utc()
        self._append(accept_seq, session_id, new)
        if folded:
            values = {"state": RunState.COMPLETED.value, "folded_into": accept_seq, "ended_at": now}
            is_waiting = and_(runs.c.accept_seq.in_(folded), UNSETTLED)
            self.connection.execute(update(runs).where(is_waiting).values(values))
        self._touch(session_id, now, added=len(new))

    def finish_run(self, accept_seq: int, session_id: str, completion: RunComplete, last: Sequence[Message]) -> None:
        """See `Store.finish_run`."""
        row = self._run(accept_seq)
        if row is None or RunState(row.state) in SETTLED:
            return
        self._append(accept_seq, session_id, last)
        self._settle(accept_seq, completion)
        self._touch(session_id, now_utc(), added=len(last))

    def request_cancel(self, run_id: str) -> CancelRequest:
        """See `Store.request_cancel`."""
        state = self.connection.scalar(select(runs.c.state).where(runs.c.run_id == run_id))
        if state is None:
            return CancelRequest.UNKNOWN
        if RunState(state) in SETTLED:
            return CancelRequest.ENDED
        self.connection.execute(update(runs).where(runs.c.run_id == run_id).values(cancel_requested=True))
        return CancelRequest.REQUESTED

    def request_session_cancel(self, session_id: str) -> list[RunRecord]:
        """See `Store.request_session_cancel`."""
        old_mark = self.cancel_mark(session_id)
        query = select(runs).where(runs.c.session_id == session_id, UNSETTLED).order_by(runs.c.accept_seq)
        covered = [record_of(row) for row in self.connection.execute(query)]
        if covered:
            mark = max(old_mark, covered[-1].accept_seq)
            self.connection.execute(update(sessions).where(sessions.c.id == session_id).values(cancel_mark=mark))
        return covered

    def renew_lease(self, owner: str) -> None:
        """See `Store.renew_lease`."""
        is_ours = and_(runs.c.owner == owner, UNSETTLED)
        self.connection.execute(update(runs).where(is_ours).values(lease_until=lease_end()))

    def recover(self, owners: Iterable[str], is_alive: IsAlive) -> list[RunComplete]:
        """Complete the unsettled runs of those `owners` that are dead, as `Store.recover_orphans` says."""
        query = select(runs).where(runs.c.owner.in_(list(owners)), UNSETTLED).order_by(runs.c.accept_seq)
        completions = []
        for row in self.connection.execute(query).all():
            if is_alive(row.owner, row.lease_until):
                continue
            completion = interrupted(record_of(row))
            self._settle(row.accept_seq, completion)
            if row.run_id is not None:
                completions.append(completion)
        return completions

    def _run(self, accept_seq: int) -> Found | None:
        return self.connection.execute(select(runs).where(runs.c.accept_seq == accept_seq)).first()

    def _runs_in_the_way(self, row: Found) -> Sequence[Found]:
        """The session's active run, and older ones of other owners: a process orders its own (style, 4)."""
        of_session = select(runs).where(runs.c.session_id == row.session_id).order_by(runs.c.accept_seq)
        # Two queries, each over the one index that fits it: a session may have 100,000 younger runs queued.
        active = self.connection.execute(of_session.where(IS_ACTIVE)).all()
        is_older = runs.c.accept_seq < row.accept_seq, runs.c.owner != row.owner
        older = self.connection.execute(of_session.where(UNSETTLED, *is_older)).all()
        return [*active, *(other for other in older if other.state != RunState.ACTIVE)]

    def _settle(self, accept_seq: int, completion: RunComplete) -> None:
        values = {
            "state": completion.status.value,
            "completion": encode(completion),
            "ended_at": completion.ended_at or now_utc(),
        }
        self.connection.execute(update(runs).where(runs.c.accept_seq == accept_seq).values(values))

    def _append(self, accept_seq: int, session_id: str, new: Sequence[Message]) -> None:
        """Add messages at the next positions; one that is there already is left, so a save may be repeated."""
        if not new:
            return
        last = self.connection.scalar(select(func.max(messages.c.position)).where(messages.c.turn_seq == accept_seq))
        rows = [
            {
                "id": message.message_id,
                "session_id": session_id,
                "turn_seq": accept_seq,
                "position": position,
                "role": message.role.value,
                "parts": encode_parts(message),
                "created_at": message.created_at,
            }
            for position, message in enumerate(new, start=0 if last is None else last + 1)
        ]
        self.connection.execute(insert(messages).on_conflict_do_nothing(index_elements=["id"]), rows)

    def _touch(self, session_id: str, now: str, *, added: int = 0) -> None:
        values = {"updated_at": now, "messages_saved": sessions.c.messages_saved + added}
        self.connection.execute(update(sessions).where(sessions.c.id == session_id).values(values))
