"""When the store fails or hangs: the completion still comes, in bounded time, and does not lie (design, 4; G-8)."""

from __future__ import annotations

import anyio
import pytest

from engine.errors import StoreError
from engine.event import RunCompleted
from engine.lifecycle import RunState
from engine.message import ToolCallPart, ToolResultPart
from engine.store.memory import MemoryStore
from engine.turn.context import valid_history
from tests.fakes import FakeModel, FakeTool, calls, echo, held, opened, request, says
from tests.store.faulty import Fault, FaultyStore

pytestmark = pytest.mark.anyio


async def test_failed_last_save_makes_a_completion_that_says_so() -> None:
    store = FaultyStore(MemoryStore(), fail_at=1, only={"finish_run"})
    with anyio.fail_after(5):
        async with opened(FakeModel(says("Hello"), says("two")), store=store) as engine:  # type: ignore[arg-type]
            with engine.subscribe(run_id="r1") as events:
                session_id = (await engine.submit(request())).session_id
                told = [event.completion async for event in _until_complete(events)]
            (completion,) = told
            assert (completion.status, completion.exit_code) == (RunState.FAILED, 1), "an exit 0 would lie"
            assert completion.text == "Hello"
            assert "not saved" in (completion.error or "")
            assert await engine.wait("r1") == completion, "late waiters get it from memory"
            await engine.submit(request(run_id="r2", session_id=session_id))
            assert (await engine.wait("r2")).text == "two"
            record = await engine.find_run("r1")
            assert record is not None
            assert record.completion == completion, "made good before the next turn: what is stored is what was told"


async def _until_complete(events):  # type: ignore[no-untyped-def]
    async for event in events:
        if isinstance(event, RunCompleted):
            yield event
            return


async def test_hung_last_save_delays_the_completion_by_its_bound_only() -> None:
    """D12, K3: a deadline stands over it, also after a cancel, and the cancel is not masked (FIX-11)."""
    gate, answer = held("Hello")
    store = FaultyStore(MemoryStore(), fail_at=1, fault=Fault.HANG, only={"finish_run"})
    with anyio.fail_after(5):
        async with opened(FakeModel(answer), store=store, save_seconds=0.05) as engine:  # type: ignore[arg-type]
            await engine.submit(request())
            await gate.reached.wait()
            await engine.cancel_run("r1")
            completion = await engine.wait("r1")
            assert (completion.status, completion.exit_code) == (RunState.CANCELLED, 4)
            assert "not saved" in (completion.error or "")
            (save,) = [call for call in store.calls if call.name == "finish_run"]
            assert save.has_deadline
            assert not save.is_cancelled, "it is shielded from the cancel that it records"


async def test_unsaved_user_message_means_no_model_call() -> None:
    """M9."""
    model = FakeModel()
    store = FaultyStore(MemoryStore(), fail_at=1, only={"start_run"})
    with anyio.fail_after(5):
        async with opened(model, store=store) as engine:  # type: ignore[arg-type]
            session_id = (await engine.submit(request())).session_id
            completion = await engine.wait("r1")
            assert completion.status is RunState.FAILED
            assert model.requests == []
            history = await engine.store.load_history(session_id)
            assert history[0].text == "hello", "it comes with the completion"


async def test_follow_up_that_cannot_be_joined_waits_for_its_own_turn() -> None:
    """FIX-19."""
    gate, first = held("one")
    model = FakeModel([gate, *calls(("echo", {}))], says("two"))
    # add_messages: 1 saves the call, 2 its result, 3 the follow-up.
    store = FaultyStore(MemoryStore(), fail_at=3, only={"add_messages"})
    with anyio.fail_after(5):
        async with opened(model, FakeTool("echo", echo), store=store) as engine:  # type: ignore[arg-type]
            session_id = (await engine.submit(request("first", tools=["echo"]))).session_id
            await gate.reached.wait()
            await engine.submit(request("follow-up", run_id=None, session_id=session_id))
            gate.open()
            assert (await engine.wait("r1")).status is RunState.FAILED
            await engine.dispatcher.wait_settled()
            history = await engine.store.load_history(session_id)
            assert history[-2].text == "follow-up"
            assert history[-1].text == "two"
            assert first


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
async def test_any_store_call_may_fail_and_each_run_still_completes_once(fault: Fault) -> None:
    """Style 12: the n-th store call fails, for every n."""
    number = 0
    while True:
        number += 1
        inner = MemoryStore()
        store = FaultyStore(inner, fail_at=number, fault=fault)
        model = FakeModel(calls(("echo", {})), says("one"), says("two"), says("three"))
        with anyio.fail_after(5):
            async with opened(model, FakeTool("echo", echo), store=store) as engine:  # type: ignore[arg-type]
                accepted = await _submit_two(engine)
                struck = number <= len(store.calls)
                for run_id in accepted:
                    try:
                        told = await engine.wait(run_id)
                    except StoreError:
                        told = await engine.wait(run_id)  # only the reading failed: asking again tells
                    if told.status is RunState.COMPLETED:
                        record = await inner.find_run(run_id)
                        assert record is not None
                        assert record.completion == told, f"call {number}: success is in the store"
                await engine.dispatcher.wait_settled()
                struck = struck or number <= len(store.calls)
            for session in await inner.list_sessions():
                history = await inner.load_history(session.session_id)
                ids = [part.call_id for message in history for part in message.parts_of(ToolCallPart)]
                results = [part.call_id for m in valid_history(history) for part in m.parts_of(ToolResultPart)]
                assert ids == results, f"call {number}: one result for each call"
        if not struck:
            break
    assert number > 10


async def _submit_two(engine) -> list[str]:  # type: ignore[no-untyped-def]
    accepted = []
    session_id = None
    for run_id in ("r1", "r2"):
        try:
            session_id = (await engine.submit(request(run_id=run_id, session_id=session_id, tools=["echo"]))).session_id
        except StoreError:
            continue
        accepted.append(run_id)
    return accepted
