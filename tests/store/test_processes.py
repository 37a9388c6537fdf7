"""Many processes on one store, and processes that die: real ones, in their own interpreters."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from engine.lifecycle import RunState
from engine.store.sql import SqliteStore
from tests.store.parts import accept, said

ROOT = Path(__file__).parents[2]

PRELUDE = """
import sys, anyio
from pathlib import Path
from engine.store.base import StartOutcome
from engine.store.sql import SqliteStore
from tests.store.parts import *
path, name = Path(sys.argv[1]), sys.argv[2]
"""

WORK = """
async def main():
    import engine.store.backend, engine.store.writing  # now, so that all open at the same moment
    store = SqliteStore(path)
    print("ready", flush=True)
    input()
    await store.open()
    for n in range(5):
        seq = await start(store, f"{name}-{n}", name, session_is_new=n == 0)
        await store.add_messages(seq, name, [answered("working")])
        await store.finish_run(seq, name, completed(f"{name}-{n}", name), [answered("done")])
    await accept(store, f"{name}-shared", "shared")
    await store.close()
    print("ok")
anyio.run(main)
"""

DIES_ACTIVE = """
async def main():
    store = SqliteStore(path)
    await store.open()
    await start(store, "active", "s1")
    await accept(store, "waiting", "s1", session_is_new=False)
    print("ready", flush=True)
    input()
anyio.run(main)
"""

DIES_IN_TRANSACTION = """
async def main():
    store = SqliteStore(path)
    await store.open()
    await accept(store, "committed")
    def work(tables):
        for n in range(200):
            tables.create_run(new_run(f"open-{n}", prompt=Prompt("x" * 30_000)))
        print("ready", flush=True)
        input()
    await store._write(work)
anyio.run(main)
"""

FULL = """
import resource
from engine.errors import StoreError
async def main():
    store = SqliteStore(path)
    await store.open()
    await accept(store, "committed")
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    try:
        await accept(store, "too-big", prompt=Prompt("x" * 500_000))
    except StoreError as error:
        print(error)
    await accept(store, "small")
    await store.close()
anyio.run(main)
"""


def launch(script: str, path: Path, name: str = "p") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + script, str(path), name],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def launch_and_kill(script: str, path: Path) -> None:
    """Kill the process once it says it is ready, and leave it a zombie for its `Popen` to reap."""
    process = launch(script, path)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)


def integrity(path: Path) -> str:
    with closing(sqlite3.connect(path)) as raw:
        return str(raw.execute("PRAGMA integrity_check").fetchone()[0])


def test_eight_processes_that_start_at_once_on_a_new_directory_all_succeed(tmp_path: Path):
    path = tmp_path / "new" / "agent.db"
    processes = [launch(WORK, path, f"p{n}") for n in range(8)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    outcomes = [process.communicate(timeout=50) for process in processes]
    assert outcomes == [("ok\n", "")] * 8
    assert integrity(path) == "ok"

    async def check() -> None:
        store = SqliteStore(path)
        await store.open()
        runs = await store.list_runs(limit=1000)
        assert sorted(run.accept_seq for run in runs) == list(range(1, 49))
        assert [run.state for run in runs].count(RunState.COMPLETED) == 40
        assert sorted(run.run_id for run in await store.list_runs(session_id="shared")) == [
            f"p{n}-shared" for n in range(8)
        ]
        assert len(await store.load_history("p3")) == 15
        await store.close()

    anyio.run(check)


def test_a_process_killed_in_a_transaction_leaves_what_was_committed_and_no_lock(tmp_path: Path, anyio_backend: str):
    path = tmp_path / "agent.db"
    launch_and_kill(DIES_IN_TRANSACTION, path)

    async def check() -> None:
        store = SqliteStore(path, wait_seconds=2)
        await store.open()
        assert [run.run_id for run in await store.list_runs()] == ["committed"]
        await accept(store, "next")
        await store.close()

    anyio.run(check, backend=anyio_backend)
    assert integrity(path) == "ok"


def test_the_runs_of_a_killed_process_are_recovered_by_the_next_that_looks(tmp_path: Path, anyio_backend: str):
    path = tmp_path / "agent.db"
    launch_and_kill(DIES_ACTIVE, path)

    async def check() -> None:
        store = SqliteStore(path)
        await store.open()
        found = await store.recover_orphans()
        assert [(each.run_id, each.status) for each in found] == [
            ("active", RunState.FAILED),
            ("waiting", RunState.FAILED),
        ]
        assert [entry.text for entry in await store.load_history("s1")] == ["prompt of active"]
        seq = await accept(store, "next", session_is_new=False)
        assert (await store.start_run(seq, "s1", said("go"))).outcome == "started"
        await store.close()

    anyio.run(check, backend=anyio_backend)


def test_a_living_process_keeps_its_runs(tmp_path: Path):
    path = tmp_path / "agent.db"
    process = launch(DIES_ACTIVE, path)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"

    async def check() -> None:
        store = SqliteStore(path)
        await store.open()
        assert await store.recover_orphans() == []
        seq = await accept(store, "next", session_is_new=False)
        outcome = await store.start_run(seq, "s1", said("no"))
        assert outcome.outcome == "busy"
        assert outcome.holder is not None
        assert outcome.holder.run_id == "active"
        await store.close()

    anyio.run(check)
    process.communicate("\n", timeout=10)


def test_a_write_beyond_a_size_limit_is_an_error_and_costs_nothing_that_was_committed(tmp_path: Path):
    path = tmp_path / "agent.db"
    out, err = launch(FULL, path).communicate(timeout=30)
    assert err == ""
    assert out.startswith(f"the store {path} cannot be used: ")
    assert out.count("\n") == 1
    assert integrity(path) == "ok"
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT run_id FROM run").fetchall() == [("committed",), ("small",)]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_two_stores_of_one_process_share_a_file(tmp_path: Path, backend: str):
    async def check() -> None:
        stores = [SqliteStore(tmp_path / "agent.db") for _ in range(2)]
        for store in stores:
            await store.open()
        async with anyio.create_task_group() as tasks:
            for n in range(40):
                tasks.start_soon(accept, stores[n % 2], f"r{n}")
        assert len(await stores[0].list_runs(limit=100)) == 40
        for store in stores:
            await store.close()

    anyio.run(check, backend=backend)
