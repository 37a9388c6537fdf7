"""Two engines on one store file, as two processes would be (design, 3 and 7): they see each other through it alone."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from engine.client import Admission, CancelResult, SessionCancelled
from engine.lifecycle import RunState
from engine.store.base import NewRun
from engine.store.sql import SqliteStore
from tests.fakes import FakeModel, Gate, held, opened, request, says

pytestmark = pytest.mark.anyio


def is_alive(owner: str, _lease_until: str) -> bool:
    return not owner.startswith("dead/")


def store_at(path: Path) -> SqliteStore:
    return SqliteStore(path / "agent.db", is_alive=is_alive)


async def test_wait_and_cancel_reach_a_run_of_another_process(tmp_path: Path) -> None:
    gate, answer = held("Hello there")
    with anyio.fail_after(5):
        async with (
            opened(FakeModel(answer), store=store_at(tmp_path), owner="one/1/1/1") as owner,
            opened(FakeModel(), store=store_at(tmp_path), owner="two/2/2/2") as other,
        ):
            await owner.submit(request())
            await gate.reached.wait()
            assert await other.cancel_run("r1") is CancelResult.CANCELLING
            completion = await other.wait("r1")
            assert (completion.status, completion.text) == (RunState.CANCELLED, "Hello")
            assert await owner.wait("r1") == completion
            assert await other.cancel_run("r1") is CancelResult.ALREADY_ENDED


async def test_cancel_of_a_session_reaches_another_process_and_spares_what_comes_later(tmp_path: Path) -> None:
    gate, answer = held("Hello there")
    model = FakeModel(answer, says("later"))
    with anyio.fail_after(5):
        async with (
            opened(model, store=store_at(tmp_path), owner="one/1/1/1") as owner,
            opened(FakeModel(), store=store_at(tmp_path), owner="two/2/2/2") as other,
        ):
            session_id = (await owner.submit(request())).session_id
            await gate.reached.wait()
            await owner.submit(request(run_id="r2", session_id=session_id))
            assert await other.cancel(session_id) == SessionCancelled(active=("r1",), dropped=("r2",))
            await owner.submit(request(run_id="r3", session_id=session_id))
            assert [(await other.wait(run_id)).status for run_id in ("r1", "r2", "r3")] == [
                RunState.CANCELLED,
                RunState.CANCELLED,
                RunState.COMPLETED,
            ]
            assert await other.cancel(session_id) == SessionCancelled()


async def test_run_id_in_flight_elsewhere_is_attached(tmp_path: Path) -> None:
    gate, answer = held("Hello")
    with anyio.fail_after(5):
        async with (
            opened(FakeModel(answer), store=store_at(tmp_path), owner="one/1/1/1") as owner,
            opened(FakeModel(), store=store_at(tmp_path), owner="two/2/2/2") as other,
        ):
            await owner.submit(request())
            await gate.reached.wait()
            assert (await other.submit(request())).admission is Admission.ATTACHED
            gate.open()
            assert (await other.wait("r1")).text == "Hello"


async def test_session_has_one_turn_at_a_time_over_processes(tmp_path: Path) -> None:
    gate, answer = held("one")
    second = FakeModel(says("two"))
    with anyio.fail_after(5):
        async with (
            opened(FakeModel(answer), store=store_at(tmp_path), owner="one/1/1/1") as owner,
            opened(second, store=store_at(tmp_path), owner="two/2/2/2") as other,
        ):
            session_id = (await owner.submit(request("first"))).session_id
            await gate.reached.wait()
            with other.subscribe(run_id="r2") as events:
                await other.submit(request("second", run_id="r2", session_id=session_id))
                async for event in events:
                    if event.type == "run_queued":
                        break
                assert "r1" in event.behind
                assert "process 1 on one" in event.behind
            assert second.requests == []
            gate.open()
            assert (await other.wait("r2")).text == "two"
            assert [message.text for message in second.requests[0].messages] == ["first", "one", "second"]


async def test_run_that_waits_for_another_process_can_be_cancelled(tmp_path: Path) -> None:
    gate, answer = held("one")
    with anyio.fail_after(5):
        async with (
            opened(FakeModel(answer), store=store_at(tmp_path), owner="one/1/1/1") as owner,
            opened(FakeModel(), store=store_at(tmp_path), owner="two/2/2/2") as other,
        ):
            session_id = (await owner.submit(request())).session_id
            await gate.reached.wait()
            await other.submit(request(run_id="r2", session_id=session_id))
            await other.cancel_run("r2")
            assert (await other.wait("r2")).status is RunState.CANCELLED
            gate.open()
            assert (await owner.wait("r1")).text == "one"


async def test_history_kept_between_turns_notices_what_another_process_wrote(tmp_path: Path) -> None:
    hold = Gate()
    ours = FakeModel(says("one"), [hold, *says("three")], says("five"))
    theirs = FakeModel(says("four"))
    with anyio.fail_after(5):
        async with (
            opened(ours, store=store_at(tmp_path), owner="one/1/1/1") as owner,
            opened(theirs, store=store_at(tmp_path), owner="two/2/2/2") as other,
        ):
            session_id = (await owner.submit(request("a"))).session_id
            await owner.wait("r1")
            await owner.submit(request("b", run_id="r2", session_id=session_id))
            await hold.reached.wait()
            await other.submit(request("c", run_id="r3", session_id=session_id))
            await owner.submit(request("d", run_id="r4", session_id=session_id))
            hold.open()
            await owner.wait("r4")
            texts = [message.text for message in ours.requests[2].messages]
            assert texts == ["a", "one", "b", "three", "c", "four", "d"]


async def test_run_of_a_dead_process_is_completed_for_whoever_looks(tmp_path: Path) -> None:
    """The waiter is answered, the session goes on, what was committed is kept."""
    dead = store_at(tmp_path)
    with anyio.fail_after(5):
        await dead.open()
        prompt = request("lost").prompt
        made = await dead.create_run(NewRun("lost", "ses-1", True, prompt, "fake/model", "/", "dead/1/1/1"))
        from engine.turn.loop import user_message

        await dead.start_run(made.accept_seq, "ses-1", user_message(prompt))  # type: ignore[union-attr]
        await dead.close()
        model = FakeModel(says("going on"))
        async with opened(model, store=store_at(tmp_path), owner="two/2/2/2") as engine:
            completion = await engine.wait("lost")
            assert (completion.status, completion.exit_code) == (RunState.FAILED, 1)
            assert "interrupted" in (completion.error or "")
            await engine.submit(request("next", run_id="r2", session_id="ses-1"))
            assert (await engine.wait("r2")).text == "going on"
            assert [message.text for message in model.requests[0].messages] == ["lost", "next"]
            assert await engine.cancel_run("lost") is CancelResult.ALREADY_ENDED
