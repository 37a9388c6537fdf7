"""The SQLite connection: how it is opened, how a transaction begins, and how long a locked file is waited for.

Everything here runs in the store's thread and nowhere else. Python's driver is kept from opening transactions by
itself (`isolation_level=None`): it would begin them deferred, and a deferred one that writes late fails at once when
another process wrote in between. Writers begin IMMEDIATE instead, so waiting for the lock is all that can happen.

SQLite's own wait for a lock is kept short, because nothing can interrupt it; the long, jittered wait around it is ours
and ends when the caller gives up.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import StaticPool
from sqlmodel import Session

from engine.store.faults import FOREIGN_ERRORS, is_busy, translate
from engine.store.migrate import is_current, migrate
from engine.store.worker import Patience

logger = logging.getLogger(__name__)

T = TypeVar("T")

BUSY_SECONDS = 0.25
"""SQLite's own wait for a lock, which nobody can interrupt: short beside the grace of a cancelled call."""

PAUSE_SECONDS = 0.02
"""The longest pause between two attempts; its length is random, so that waiting processes spread out."""


class Mode(Enum):
    """A kind of transaction: how it begins, and how sure its commit is when the power fails."""

    READ = ("BEGIN", None)
    WRITE = ("BEGIN IMMEDIATE", "NORMAL")
    DURABLE = ("BEGIN IMMEDIATE", "FULL")


class SqliteBackend:
    """One connection to one file, or with `path` None to a database in memory."""

    def __init__(self, path: Path | None, location: str) -> None:
        self._path = path
        self._location = location
        self._raw: sqlite3.Connection | None = None
        self._synchronous: str | None = None
        self._mode = Mode.READ
        self._engine: Engine = create_engine("sqlite://", creator=self._connect, poolclass=StaticPool)
        event.listen(self._engine, "begin", self._begin)

    def open(self, patience: Patience) -> None:
        """Make the directory and the file where they are missing, then create or migrate the schema."""
        try:
            self._make_file()
        except OSError as error:
            raise translate(error, self._location, patience.wait_seconds) from error
        if self.transact(lambda session: is_current(session.connection(), self._location), patience, Mode.READ):
            return
        self._persist(patience, self._use_wal)
        self.transact(lambda session: migrate(session.connection(), self._location), patience, Mode.DURABLE)

    def transact(self, work: Callable[[Session], T], patience: Patience, mode: Mode) -> T:
        """Run `work` in one transaction and commit; again from its start while the file is locked.

        Raises:
            StoreTimeoutError: it stayed locked for as long as `patience` lasts.
            StoreError: anything else that is wrong with the store; nothing was written.
        """
        return self._persist(patience, lambda: self._attempt(work, mode))

    def close(self) -> None:
        """Let go of the file."""
        self._engine.dispose()
        self._raw = None

    def _attempt(self, work: Callable[[Session], T], mode: Mode) -> T:
        self._mode = mode
        self._set_synchronous(mode.value[1])
        with Session(self._engine, autoflush=False, expire_on_commit=False) as session:
            value = work(session)
            session.commit()
            return value

    def _persist(self, patience: Patience, attempt: Callable[[], T]) -> T:
        while True:
            try:
                return attempt()
            except FOREIGN_ERRORS as error:
                if not is_busy(error) or patience.is_over():
                    raise translate(error, self._location, patience.wait_seconds) from error
                logger.debug("the store %s is locked, trying again", self._location)
            patience.pause(PAUSE_SECONDS * os.urandom(1)[0] / 255)

    def _begin(self, connection: Connection) -> None:
        connection.exec_driver_sql(self._mode.value[0])

    def _connect(self) -> sqlite3.Connection:
        target = ":memory:" if self._path is None else str(self._path)
        raw = sqlite3.connect(target, timeout=BUSY_SECONDS, isolation_level=None)
        raw.execute("PRAGMA foreign_keys = ON")
        self._raw, self._synchronous = raw, None
        return raw

    def _set_synchronous(self, level: str | None) -> None:
        """Change what a commit waits for, which SQLite allows between transactions only."""
        if level is None or level == self._synchronous or self._raw is None:
            return
        self._raw.execute(f"PRAGMA synchronous = {level}")
        self._synchronous = level

    def _use_wal(self) -> None:
        """Readers and one writer side by side; kept in the file. Its switch reports a lock at once, without waiting."""
        assert self._raw is not None
        self._raw.execute("PRAGMA journal_mode = WAL")

    def _make_file(self) -> None:
        """Create the file for its owner alone (SQLite gives its companions the same mode)."""
        if self._path is None:
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            # Only a file that is not there: closing a database that this process has open would drop its locks.
            descriptor = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return
        os.close(descriptor)
