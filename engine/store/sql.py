"""The store on SQLite: each method is one transaction in the store's thread.

Making a `SqliteStore` costs nothing: SQLModel is imported in the thread by the first call, while the caller's loop
goes on with other things.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from engine.errors import StoreError
from engine.limits import STORE_WAIT_SECONDS
from engine.message import Message
from engine.run import RunComplete, RunRecord, SessionRecord
from engine.store import owner as owners
from engine.store.base import Accepted, CancelRequest, NewRun, RunIdTaken, Start
from engine.store.worker import Patience, StoreThread

if TYPE_CHECKING:
    from engine.store.backend import SqliteBackend
    from engine.store.reading import Reading
    from engine.store.writing import Writing

T = TypeVar("T")

SETTLE_SECONDS = 0.5
"""How long after a write to the file its commit may still become visible: far over a sync of a healthy disk."""


class SqliteStore:
    """A store in one SQLite file, which any number of processes share. Implements `Store`.

    `wait_seconds` bounds every call; `is_alive` tells whether the owner of a run lives, by its name and lease.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        wait_seconds: float = STORE_WAIT_SECONDS,
        is_alive: Callable[[str, str], bool] = owners.is_alive,
    ) -> None:
        self._path = None if path is None else path.absolute()  # the process may change its directory
        self._thread = StoreThread(self.location, wait_seconds=wait_seconds)
        self._is_alive = is_alive
        self._backend: SqliteBackend | None = None  # only the store's thread touches it
        self._commits = 0  # only the store's thread writes it

    @classmethod
    def ephemeral(cls) -> Self:
        """A store in memory: nothing is kept, no other process sees it."""
        return cls(None)

    @property
    def location(self) -> str:
        """See `Store.location`."""
        return "(in memory)" if self._path is None else str(self._path)

    async def open(self) -> None:
        """See `Store.open`."""
        await self._thread.call(self._open_backend)

    async def close(self) -> None:
        """See `Store.close`."""
        await self._thread.close(self._close_backend)

    async def create_run(self, new: NewRun) -> Accepted | RunIdTaken:
        """See `Store.create_run`."""
        return await self._write(lambda tables: tables.create_run(new), is_durable=True)

    async def queue_run(self, accept_seq: int) -> None:
        """See `Store.queue_run`."""
        await self._write(lambda tables: tables.queue_run(accept_seq))

    async def start_run(self, accept_seq: int, session_id: str, user_message: Message) -> Start:
        """See `Store.start_run`."""
        return await self._write(
            lambda tables: tables.start_run(accept_seq, session_id, user_message, self._is_alive), is_durable=True
        )

    async def load_history(self, session_id: str) -> list[Message]:
        """See `Store.load_history`."""
        return await self._read(lambda tables: tables.load_history(session_id))

    async def add_messages(
        self, accept_seq: int, session_id: str, messages: Sequence[Message], *, folded: Sequence[int] = ()
    ) -> None:
        """See `Store.add_messages`."""
        await self._write(lambda tables: tables.add_messages(accept_seq, session_id, messages, folded))

    async def finish_run(
        self, accept_seq: int, session_id: str, completion: RunComplete, messages: Sequence[Message] = ()
    ) -> None:
        """See `Store.finish_run`."""
        await self._write(
            lambda tables: tables.finish_run(accept_seq, session_id, completion, messages), is_durable=True
        )

    async def request_cancel(self, run_id: str) -> CancelRequest:
        """See `Store.request_cancel`."""
        return await self._write(lambda tables: tables.request_cancel(run_id), is_durable=True)

    async def request_session_cancel(self, session_id: str) -> list[RunRecord]:
        """See `Store.request_session_cancel`."""
        return await self._write(lambda tables: tables.request_session_cancel(session_id), is_durable=True)

    async def cancelled_runs(self, owner: str) -> list[int]:
        """See `Store.cancelled_runs`."""
        return await self._read(lambda tables: tables.cancelled_runs(owner))

    async def renew_lease(self, owner: str) -> None:
        """See `Store.renew_lease`."""
        await self._write(lambda tables: tables.renew_lease(owner))

    async def recover_orphans(self) -> list[RunComplete]:
        """See `Store.recover_orphans`. It takes the write lock only if an owner is dead."""
        owners = await self._read(lambda tables: tables.unsettled_owners())
        dead = [name for name, lease_until in owners if not self._is_alive(name, lease_until)]
        if not dead:
            return []
        return await self._write(lambda tables: tables.recover(dead, self._is_alive), is_durable=True)

    async def find_run(self, run_id: str) -> RunRecord | None:
        """See `Store.find_run`."""
        return await self._read(lambda tables: tables.find_run(run_id))

    async def list_runs(self, *, session_id: str | None = None, limit: int = 50) -> list[RunRecord]:
        """See `Store.list_runs`."""
        return await self._read(lambda tables: tables.list_runs(session_id, limit))

    async def find_session(self, session_id: str) -> SessionRecord | None:
        """See `Store.find_session`."""
        return await self._read(lambda tables: tables.find_session(session_id))

    async def list_sessions(self, *, limit: int = 50) -> list[SessionRecord]:
        """See `Store.list_sessions`."""
        return await self._read(lambda tables: tables.list_sessions(limit))

    def change_stamp(self) -> object:
        """See `Store.change_stamp`: size and time of the files.

        A commit is written before it can be seen, a sync apart, and two of them within a clock tick look like one: so
        while the last change is fresh the stamp goes on changing, and whoever polls looks once more.

        Only `stat`: opening and closing the files would drop the locks that this process has on them.
        """
        if self._path is None:
            return self._commits
        stamps = [_stamp(Path(f"{self._path}{suffix}")) for suffix in ("-wal", "")]
        now = time.time()
        is_fresh = any(stamp is not None and abs(now - stamp[2] / 1e9) < SETTLE_SECONDS for stamp in stamps)
        return (*stamps, now if is_fresh else None)

    async def _read(self, work: Callable[[Reading], T]) -> T:
        def job(patience: Patience) -> T:
            from engine.store.backend import Mode
            from engine.store.reading import Reading

            return self._opened().transact(lambda session: work(Reading(session)), patience, Mode.READ)

        return await self._thread.call(job)

    async def _write(self, work: Callable[[Writing], T], *, is_durable: bool = False) -> T:
        def job(patience: Patience) -> T:
            from engine.store.backend import Mode
            from engine.store.writing import Writing

            mode = Mode.DURABLE if is_durable else Mode.WRITE
            value = self._opened().transact(lambda session: work(Writing(session)), patience, mode)
            self._commits += 1
            return value

        return await self._thread.call(job)

    def _opened(self) -> SqliteBackend:
        if self._backend is None:
            raise StoreError(f"the store {self.location} is not open")
        return self._backend

    def _open_backend(self, patience: Patience) -> None:
        from engine.store.backend import SqliteBackend

        if self._backend is not None:
            return
        backend = SqliteBackend(self._path, self.location)
        try:
            backend.open(patience)
        except BaseException:
            backend.close()
            raise
        self._backend = backend

    def _close_backend(self, patience: Patience) -> None:
        if self._backend is not None:
            self._backend.close()


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
