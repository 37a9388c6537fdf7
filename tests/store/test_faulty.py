"""The faulty store does what other suites rely on."""

from __future__ import annotations

import anyio
import pytest

from engine.errors import StoreError
from engine.store.memory import MemoryStore
from tests.store.faulty import Fault, FaultyStore
from tests.store.parts import accept, completed, start

pytestmark = pytest.mark.anyio


async def test_the_chosen_call_fails_before_its_work_and_the_next_succeeds():
    store = FaultyStore(MemoryStore(), fail_at=2)
    await accept(store, "r1")
    with pytest.raises(StoreError, match="fault of call 2, create_run"):
        await accept(store, "r2")
    await accept(store, "r3")
    assert [run.run_id for run in await store.list_runs()] == ["r3", "r1"]
    assert store.names() == ["create_run"] * 3 + ["list_runs"]


async def test_a_fault_after_the_work_leaves_it_done():
    store = FaultyStore(MemoryStore(), fail_at=1, fault=Fault.AFTER)
    with pytest.raises(StoreError):
        await accept(store, "r1")
    assert await store.find_run("r1") is not None


async def test_a_permanent_fault_strikes_the_chosen_method_from_then_on():
    store = FaultyStore(MemoryStore(), fail_at=1, only=["finish_run"], is_permanent=True)
    seq = await start(store, "r1")
    for _ in range(2):
        with pytest.raises(StoreError):
            await store.finish_run(seq, "s1", completed("r1"))


async def test_a_hanging_call_is_left_at_a_shielded_deadline_and_how_it_was_made_is_noted():
    store = FaultyStore(MemoryStore(), fail_at=1, fault=Fault.HANG, only=["finish_run"])
    seq = await start(store, "r1")
    with anyio.fail_after(5), anyio.CancelScope() as run:
        run.cancel()
        with anyio.move_on_after(0.05, shield=True) as saving:
            await store.finish_run(seq, "s1", completed("r1"))
        assert saving.cancelled_caught
        await store.list_runs()
    shielded, cancelled = store.calls[-2:]
    assert (shielded.is_cancelled, shielded.has_deadline) == (False, True)
    assert cancelled.is_cancelled
