"""The tables. Imported in the store's thread alone: SQLModel costs half a second, which no other command pays for.

Times are UTC in ISO 8601, `prompt`, `parts` and `completion` are JSON text. A message belongs to the turn of the run
whose accept sequence is its `turn_seq`: a history is ordered by turn, then by position.
"""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import Index, MetaData, Table, UniqueConstraint, text
from sqlmodel import Field, SQLModel

UNSETTLED = text("state IN ('accepted', 'queued', 'active')")
"""Indexes and queries share these very words: SQLite uses a partial index only where its condition is repeated."""

IS_ACTIVE = text("state = 'active'")
HAS_ID = text("run_id IS NOT NULL")


class StoreTable(SQLModel):
    """The base of the store's tables, with a registry of their own."""

    metadata: ClassVar[MetaData] = MetaData()


class SessionRow(StoreTable, table=True):
    """A session. `cancel_mark` is the highest accept sequence that a cancel covers (design, 3).

    `messages_saved` counts the messages handed in, so that a history kept in memory is known to be current.
    """

    __tablename__ = "session"

    id: str = Field(primary_key=True)
    title: str
    cwd: str
    created_at: str
    updated_at: str
    cancel_mark: int = 0
    messages_saved: int = 0


class RunRow(StoreTable, table=True):
    """A run or a follow-up (`run_id` NULL); `folded_into` is the turn that took a follow-up in."""

    __tablename__ = "run"
    __table_args__ = (
        Index("run_one_active", "session_id", unique=True, sqlite_where=IS_ACTIVE, postgresql_where=IS_ACTIVE),
        Index("run_unsettled", "session_id", "accept_seq", sqlite_where=UNSETTLED, postgresql_where=UNSETTLED),
        Index("run_of_owner", "owner", sqlite_where=UNSETTLED, postgresql_where=UNSETTLED),
        # Partial, so that no query for unsettled runs is tempted to walk all the settled ones by it.
        Index("run_of_session", "session_id", "accept_seq", sqlite_where=HAS_ID, postgresql_where=HAS_ID),
        {"sqlite_autoincrement": True},  # a sequence is never given twice, not even after a deletion
    )

    accept_seq: int | None = Field(default=None, primary_key=True)
    run_id: str | None = Field(default=None, unique=True)
    session_id: str = Field(foreign_key="session.id")
    state: str
    prompt: str
    prompt_hash: str
    model: str
    cwd: str
    owner: str
    lease_until: str
    cancel_requested: bool = False
    completion: str | None = None
    created_at: str
    started_at: str | None = None
    ended_at: str | None = None
    folded_into: int | None = None


class MessageRow(StoreTable, table=True):
    """A message."""

    __tablename__ = "message"
    __table_args__ = (
        UniqueConstraint("turn_seq", "position"),
        Index("message_of_session", "session_id", "turn_seq", "position"),
    )

    id: str = Field(primary_key=True)
    session_id: str = Field(foreign_key="session.id")
    turn_seq: int = Field(foreign_key="run.accept_seq")
    position: int
    role: str
    parts: str
    created_at: str


sessions: Table = StoreTable.metadata.tables["session"]
runs: Table = StoreTable.metadata.tables["run"]
messages: Table = StoreTable.metadata.tables["message"]
