"""One open transaction that reads: the store's questions as statements. Runs in the store's thread.

Core statements on the SQLModel tables: rows become records at once, an identity map would be for nothing.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, Select, func, or_, select
from sqlmodel import Session

from engine.errors import UnknownSessionError
from engine.lifecycle import RunState
from engine.message import Message, Role
from engine.run import RunRecord, SessionRecord
from engine.store.records import decode_completion, decode_parts, decode_prompt
from engine.store.tables import UNSETTLED, messages, runs, sessions

Found = Row[Any]


class Reading:
    """The questions, over the transaction of `session`."""

    def __init__(self, session: Session) -> None:
        self.connection = session.connection()

    def load_history(self, session_id: str) -> list[Message]:
        """See `Store.load_history`."""
        c = messages.c
        query = select(c.id, c.role, c.parts, c.created_at).where(c.session_id == session_id)
        rows = self.connection.execute(query.order_by(c.turn_seq, c.position)).all()
        return [Message(row.id, Role(row.role), decode_parts(row.parts), row.created_at) for row in rows]

    def find_run(self, run_id: str) -> RunRecord | None:
        """See `Store.find_run`."""
        row = self.connection.execute(select(runs).where(runs.c.run_id == run_id)).first()
        return None if row is None else record_of(row)

    def list_runs(self, session_id: str | None, limit: int) -> list[RunRecord]:
        """See `Store.list_runs`."""
        query = select(runs).where(runs.c.run_id.is_not(None))
        if session_id is not None:
            query = query.where(runs.c.session_id == session_id)
        rows = self.connection.execute(query.order_by(runs.c.accept_seq.desc()).limit(limit)).all()
        return [record_of(row) for row in rows]

    def find_session(self, session_id: str) -> SessionRecord | None:
        """See `Store.find_session`."""
        row = self.connection.execute(_select_sessions().where(sessions.c.id == session_id)).first()
        return None if row is None else _session_of(row)

    def list_sessions(self, limit: int) -> list[SessionRecord]:
        """See `Store.list_sessions`."""
        newest_first = (sessions.c.updated_at.desc(), sessions.c.id.desc())
        rows = self.connection.execute(_select_sessions().order_by(*newest_first).limit(limit)).all()
        return [_session_of(row) for row in rows]

    def cancelled_runs(self, owner: str) -> list[int]:
        """See `Store.cancelled_runs`."""
        query = (
            select(runs.c.accept_seq)
            .join(sessions, sessions.c.id == runs.c.session_id)
            .where(runs.c.owner == owner, UNSETTLED)
            .where(or_(runs.c.cancel_requested, runs.c.accept_seq <= sessions.c.cancel_mark))
            .order_by(runs.c.accept_seq)
        )
        return list(self.connection.scalars(query))

    def unsettled_owners(self) -> list[tuple[str, str]]:
        """Owners of unsettled runs, each with its latest lease."""
        query = select(runs.c.owner, func.max(runs.c.lease_until)).where(UNSETTLED).group_by(runs.c.owner)
        return [(owner, lease_until) for owner, lease_until in self.connection.execute(query)]

    def cancel_mark(self, session_id: str) -> int:
        """The session's cancel mark. Raises `UnknownSessionError`."""
        mark = self.connection.scalar(select(sessions.c.cancel_mark).where(sessions.c.id == session_id))
        if mark is None:
            raise UnknownSessionError(session_id)
        return int(mark)


def record_of(row: Found) -> RunRecord:
    """The record that a row of `run` holds."""
    return RunRecord(
        accept_seq=row.accept_seq,
        run_id=row.run_id,
        session_id=row.session_id,
        state=RunState(row.state),
        prompt=decode_prompt(row.prompt),
        prompt_hash=row.prompt_hash,
        model=row.model,
        owner=row.owner,
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        completion=decode_completion(row.completion),
    )


def _select_sessions() -> Select[Any]:
    counted = runs.c.session_id == sessions.c.id, runs.c.run_id.is_not(None)
    count = select(func.count()).select_from(runs).where(*counted).scalar_subquery()
    return select(sessions, count.label("runs"))


def _session_of(row: Found) -> SessionRecord:
    return SessionRecord(row.id, row.title, row.cwd, row.created_at, row.updated_at, row.runs)
