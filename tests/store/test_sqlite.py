"""The SQLite store beside the contract: locks, faults of the disk, damaged and foreign files, cancelled calls."""

from __future__ import annotations

import logging
import os
import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from engine.errors import StoreError, StoreSchemaError, StoreTimeoutError
from engine.run import Prompt
from engine.store.sql import SqliteStore
from tests.store.parts import accept, said, start

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "agent.db"


@pytest.fixture
async def store(path: Path, anyio_backend: str) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(path)
    await made.open()
    yield made
    await made.close()


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    yield other
    other.close()


class Retried(logging.Handler):
    """Tells when the store has found its file locked."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._seen = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self._seen.set()

    async def wait_seen(self) -> None:
        assert await to_thread.run_sync(self._seen.wait, 5)


@pytest.fixture
def retried(caplog: pytest.LogCaptureFixture) -> Iterator[Retried]:
    handler = Retried()
    caplog.set_level(logging.DEBUG, logger="engine.store.backend")
    logging.getLogger("engine.store.backend").addHandler(handler)
    yield handler
    logging.getLogger("engine.store.backend").removeHandler(handler)


async def pragma(store: SqliteStore, statement: str) -> object:
    def job(patience: object) -> object:
        assert store._backend is not None
        assert store._backend._raw is not None
        row = store._backend._raw.execute(f"PRAGMA {statement}").fetchone()
        return None if row is None else row[0]

    return await store._thread.call(job)


async def test_a_call_waits_for_another_process_that_writes(store: SqliteStore, path: Path, retried: Retried):
    with anyio.fail_after(5), locked(path) as other:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept, store, "r1")
            await retried.wait_seen()
            other.execute("ROLLBACK")
    assert await store.find_run("r1") is not None


async def test_the_first_start_waits_for_another_process_that_makes_the_store(path: Path, retried: Retried):
    path.parent.mkdir()
    store = SqliteStore(path)
    with anyio.fail_after(5), locked(path) as other:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.open)
            await retried.wait_seen()
            other.execute("ROLLBACK")
    await accept(store, "r1")
    await store.close()


async def test_a_lock_that_stays_ends_the_call_with_an_error_that_names_the_path(path: Path):
    store = SqliteStore(path, wait_seconds=0.3)
    await store.open()
    with anyio.fail_after(5), locked(path) as other:
        with pytest.raises(StoreTimeoutError, match=r"stayed locked by another process for 0\.3 s") as caught:
            await accept(store, "r1")
        assert str(path) in str(caught.value)
        assert await store.list_runs() == [], "readers are not kept out"
        other.execute("ROLLBACK")
        await accept(store, "r2")
    assert [run.run_id for run in await store.list_runs()] == ["r2"]
    await store.close()


async def test_a_cancel_ends_the_wait_for_a_lock_and_nothing_is_written(
    store: SqliteStore, path: Path, retried: Retried
):
    with anyio.fail_after(5), locked(path) as other:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept, store, "r1")
            await retried.wait_seen()
            tasks.cancel_scope.cancel()
        other.execute("ROLLBACK")
    assert await store.find_run("r1") is None


async def test_the_outcome_of_a_cancelled_call_is_known_whenever_the_cancel_strikes(store: SqliteStore):
    moments, saved = random.Random(7), 0
    for n in range(300):
        is_saved = False
        with anyio.move_on_after(moments.uniform(0, 0.003)):
            await accept(store, f"r{n}")
            is_saved = True
        assert (await store.find_run(f"r{n}") is not None) == is_saved
        saved += is_saved
    assert saved < 300, "no cancel struck: the test shows nothing"


async def test_run_states_are_synced_and_the_rest_is_not(store: SqliteStore):
    seq = await start(store, "r1")
    assert await pragma(store, "synchronous") == 2
    await store.add_messages(seq, "s1", [said("x")])
    assert await pragma(store, "synchronous") == 1
    assert await pragma(store, "journal_mode") == "wal"
    assert await pragma(store, "foreign_keys") == 1


async def test_files_are_for_their_owner_alone(path: Path):
    store, umask = SqliteStore(path), os.umask(0)
    try:
        await store.open()
        await accept(store, "r1")
        modes = {entry.name: entry.stat().st_mode & 0o777 for entry in path.parent.iterdir()}
        assert modes == dict.fromkeys(("agent.db", "agent.db-wal", "agent.db-shm"), 0o600)
        assert path.parent.stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(umask)
        await store.close()


async def test_a_store_is_found_again_whole_from_another_directory(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(path.parent.parent)
    first = SqliteStore(Path("data/agent.db"))
    monkeypatch.chdir("/")
    await first.open()
    await start(first, "r1")
    await first.close()
    again = SqliteStore(path)
    await again.open()
    assert len(await again.load_history("s1")) == 1
    await again.close()


async def test_a_full_disk_is_named_and_what_was_committed_stays(store: SqliteStore, path: Path):
    await accept(store, "r1")
    pages = await pragma(store, "page_count")
    await pragma(store, f"max_page_count = {pages}")
    with pytest.raises(StoreError, match="the disk is full") as caught:
        await accept(store, "r2", prompt=Prompt("x" * 200_000))
    assert str(path) in str(caught.value)
    assert [run.run_id for run in await store.list_runs()] == ["r1"]
    await pragma(store, "max_page_count = 100000")
    await accept(store, "r2", prompt=Prompt("x" * 200_000))


async def test_a_store_that_cannot_be_written_says_so(store: SqliteStore, path: Path):
    await pragma(store, "query_only = ON")
    with pytest.raises(StoreError, match="it is read-only") as caught:
        await accept(store, "r1")
    assert str(path) in str(caught.value)
    assert "--data-dir" in str(caught.value)


@pytest.mark.parametrize("content", [b"not a database " * 300, b"SQLite format 3\0" + b"\xff" * 8000])
async def test_a_damaged_file_is_named_and_left_as_it_is(path: Path, content: bytes):
    path.parent.mkdir()
    path.write_bytes(content)
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="it is damaged or no database") as caught:
        await store.open()
    assert str(path) in str(caught.value)
    await store.close()
    assert path.read_bytes() == content
    assert [entry.name for entry in path.parent.iterdir()] == ["agent.db"]


async def test_pages_damaged_later_are_an_error_of_the_call(path: Path):
    store = SqliteStore(path)
    await store.open()
    for n in range(50):
        await accept(store, f"r{n}", f"s{n}", prompt=Prompt("x" * 3000))
    await store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(b"\xee" * (size - 8192))
    again = SqliteStore(path)
    await again.open()
    with pytest.raises(StoreError, match="it is damaged"):
        await again.list_runs()
    await again.close()


async def test_a_database_of_another_program_is_left_alone(path: Path):
    path.parent.mkdir()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE session (x)")
    other.close()
    before = path.read_bytes()
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="the database of another program"):
        await store.open()
    await store.close()
    assert path.read_bytes() == before


async def test_a_newer_schema_is_refused_and_left_alone(store: SqliteStore, path: Path):
    await pragma(store, "user_version = 7")
    await store.close()
    newer = SqliteStore(path)
    with pytest.raises(StoreSchemaError, match=r"newer version of agent \(schema 7, this one knows 1\)") as caught:
        await newer.open()
    assert str(path) in str(caught.value)
    await newer.close()
    with sqlite3.connect(path) as other:
        assert other.execute("PRAGMA user_version").fetchone() == (7,)
    other.close()


async def test_an_older_schema_is_lifted_step_by_step(store: SqliteStore, path: Path):
    from sqlalchemy import Connection, create_engine

    from engine.store.migrate import is_current, migrate

    await accept(store, "r1")
    await store.close()

    def lift(connection: Connection) -> None:
        connection.exec_driver_sql("ALTER TABLE run ADD COLUMN colour TEXT DEFAULT 'red'")

    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        assert not is_current(connection, "here", forward=[lift])
        migrate(connection, "here", forward=[lift])
        migrate(connection, "here", forward=[lift])
        assert is_current(connection, "here", forward=[lift])
        assert connection.exec_driver_sql("SELECT run_id, colour FROM run").all() == [("r1", "red")]
    engine.dispose()


async def test_a_path_below_a_file_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file" / "agent.db", tmp_path / "file" / "deeper" / "agent.db"):
        store = SqliteStore(path)
        with pytest.raises(StoreError, match="is a file, not a directory") as caught:
            await store.open()
        assert str(path) in str(caught.value)
        await store.close()


async def test_a_path_that_is_a_directory_is_named(tmp_path: Path):
    store = SqliteStore(tmp_path)
    with pytest.raises(StoreError, match="it cannot be opened") as caught:
        await store.open()
    assert str(tmp_path) in str(caught.value)
    await store.close()


async def test_a_damaged_record_is_an_error_that_names_the_store(store: SqliteStore, path: Path):
    await start(store, "r1")
    with sqlite3.connect(path) as other:
        other.execute("UPDATE message SET parts = '[{]'")
    other.close()
    with pytest.raises(StoreError, match="it holds a record that cannot be read") as caught:
        await store.load_history("s1")
    assert str(path) in str(caught.value)


async def test_a_store_that_is_not_open_says_so(path: Path):
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="is not open"):
        await store.list_runs()
    await store.close()
    assert not path.exists()


def test_making_a_store_does_not_import_the_orm():
    script = (
        "import sys, pathlib; from engine.store.sql import SqliteStore; from engine.store.memory import MemoryStore\n"
        "SqliteStore(pathlib.Path('x')), SqliteStore.ephemeral(), MemoryStore()\n"
        "print([name for name in ('sqlmodel', 'sqlalchemy', 'pydantic', 'sqlite3') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
