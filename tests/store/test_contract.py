"""What every store promises, over each of them."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from engine.errors import UnknownSessionError
from engine.lifecycle import FinishReason, RunState
from engine.message import FilePart, FinishPart, ReasoningPart, Role, TextPart, ToolCallPart, ToolResultPart
from engine.run import Prompt, Usage
from engine.store.base import CancelRequest, RunIdTaken, Start, StartOutcome, Store
from engine.store.memory import MemoryStore
from engine.store.sql import SqliteStore
from tests.store.parts import OTHER, OURS, accept, answered, completed, message, new_run, said, start, state_of

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["file", "ephemeral", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, anyio_backend: str) -> AsyncIterator[Store]:
    match request.param:
        case "file":
            made: Store = SqliteStore(tmp_path / "data" / "agent.db", is_alive=is_alive)
        case "ephemeral":
            made = SqliteStore(None, is_alive=is_alive)
        case _:
            made = MemoryStore(is_alive=is_alive)
    await made.open()
    yield made
    await made.close()


def is_alive(owner: str, lease_until: str) -> bool:
    assert lease_until.endswith("Z")
    return not owner.startswith("dead")


async def test_start_tells_how_many_messages_were_handed_in_before(store: Store):
    first = await accept(store, "r1")
    start = await store.start_run(first, "s1", said("do it"))
    assert start.messages_before == 0
    await store.add_messages(first, "s1", [answered("a"), answered("b")])
    await store.finish_run(first, "s1", completed("r1"), [answered("c")])
    second = await accept(store, "r2", session_is_new=False)
    assert (await store.start_run(second, "s1", said("more"))).messages_before == 4


async def test_a_run_is_accepted_started_and_finished_with_its_messages(store: Store):
    seq = await accept(store, "r1")
    assert await state_of(store, "r1") is RunState.ACCEPTED
    user, answer = said("do it"), answered("done")
    assert await store.start_run(seq, "s1", user) == Start(StartOutcome.STARTED)
    assert await state_of(store, "r1") is RunState.ACTIVE
    completion = completed("r1", usage=Usage(3, 4), files_changed=("a",), message_id=answer.message_id)
    await store.finish_run(seq, "s1", completion, [answer])
    record = await store.find_run("r1")
    assert record is not None
    assert (record.state, record.completion, record.ended_at) == (RunState.COMPLETED, completion, completion.ended_at)
    assert (record.session_id, record.prompt, record.owner, record.model) == ("s1", Prompt("do it"), OURS, "m")
    assert record.started_at is not None
    assert await store.load_history("s1") == [user, answer]


async def test_every_kind_of_part_comes_back_as_it_was(store: Store):
    seq = await start(store, "r1")
    parts = (
        TextPart("t"),
        ReasoningPart("r"),
        ToolCallPart("c1", "read", '{"path": "x"}'),
        ToolResultPart("c1", "read", "text", is_error=True, size=7),
        FilePart("n.png", "image/png", data="aGk="),
        FinishPart(FinishReason.CANCELLED, is_partial=True, detail="d"),
    )
    sent = message(Role.ASSISTANT, *parts)
    await store.add_messages(seq, "s1", [sent])
    assert (await store.load_history("s1"))[1:] == [sent]


async def test_text_that_no_database_takes_is_replaced(store: Store):
    bad, good = "a\x00b\ud800c", "a\ufffdb\ufffdc"
    prompt = Prompt(bad, (FilePart("f", "text/plain", text=bad),))
    seq = await accept(store, "r1", prompt=prompt)
    await store.start_run(seq, "s1", said(bad))
    call = message(Role.ASSISTANT, ToolCallPart("c", bad, bad))
    await store.finish_run(seq, "s1", completed("r1", text=bad, error=bad), [call])
    record = await store.find_run("r1")
    assert record is not None
    assert record.completion is not None
    assert record.prompt == Prompt(good, (FilePart("f", "text/plain", text=good),))
    assert record.prompt_hash == prompt.digest(), "the same prompt handed in again is recognised"
    assert (record.completion.text, record.completion.error) == (good, good)
    assert [entry.parts for entry in await store.load_history("s1")] == [
        (TextPart(good),),
        (ToolCallPart("c", good, good),),
    ]
    session = await store.find_session("s1")
    assert session is not None
    assert session.title == good


async def test_a_run_id_is_taken_once(store: Store):
    await accept(store, "r1", prompt=Prompt("first"))
    taken = await store.create_run(new_run("r1", "s2", prompt=Prompt("second")))
    assert isinstance(taken, RunIdTaken)
    assert (taken.record.session_id, taken.record.prompt.text) == ("s1", "first")
    assert await store.find_session("s2") is None, "nothing was written"


async def test_a_session_must_be_there_unless_it_is_new(store: Store):
    with pytest.raises(UnknownSessionError):
        await store.create_run(new_run("r1", "nowhere", session_is_new=False))
    with pytest.raises(UnknownSessionError):
        await store.request_session_cancel("nowhere")
    assert await store.find_run("r1") is None
    assert await store.load_history("nowhere") == []


async def test_accept_sequences_rise_over_all_sessions(store: Store):
    seqs = [await accept(store, f"r{n}", f"s{n % 3}") for n in range(9)]
    assert seqs == sorted(set(seqs))


async def test_queueing_moves_an_accepted_run_only(store: Store):
    seq = await accept(store, "r1")
    await store.queue_run(seq)
    assert await state_of(store, "r1") is RunState.QUEUED
    await store.start_run(seq, "s1", said("x"))
    await store.queue_run(seq)
    assert await state_of(store, "r1") is RunState.ACTIVE


async def test_a_session_has_one_active_run(store: Store):
    await start(store, "r1", owner=OTHER)
    second = await accept(store, "r2", session_is_new=False)
    outcome = await store.start_run(second, "s1", said("no"))
    assert outcome.outcome is StartOutcome.BUSY
    assert outcome.holder is not None
    assert outcome.holder.run_id == "r1"
    assert len(await store.load_history("s1")) == 1, "nothing was written"
    assert await state_of(store, "r2") is RunState.ACCEPTED


async def test_an_older_waiting_run_of_another_process_goes_first(store: Store):
    first = await accept(store, "r1", owner=OTHER)
    second = await accept(store, "r2", session_is_new=False)
    outcome = await store.start_run(second, "s1", said("no"))
    assert outcome.outcome is StartOutcome.BUSY
    assert outcome.holder is not None
    assert outcome.holder.accept_seq == first
    assert (await store.start_run(first, "s1", said("yes"))).outcome is StartOutcome.STARTED


async def test_a_process_orders_its_own_runs_itself(store: Store):
    await accept(store, "r1")
    second = await accept(store, "r2", session_is_new=False)
    assert (await store.start_run(second, "s1", said("yes"))).outcome is StartOutcome.STARTED


async def test_sessions_do_not_block_each_other(store: Store):
    await start(store, "r1", "s1", owner=OTHER)
    await start(store, "r2", "s2")


async def test_a_dead_run_in_the_way_is_recovered_on_the_spot(store: Store):
    dead = await start(store, "r1", owner="dead/1/1/1")
    waiting = await accept(store, "r2", session_is_new=False, owner="dead/1/1/1")
    third = await accept(store, "r3", session_is_new=False)
    assert (await store.start_run(third, "s1", said("go"))).outcome is StartOutcome.STARTED
    assert [await state_of(store, run_id) for run_id in ("r1", "r2")] == [RunState.FAILED] * 2
    record = await store.find_run("r1")
    assert record is not None
    assert record.completion is not None
    assert record.completion.error == "interrupted: its process (pid 1 on dead) ended without finishing the run"
    assert dead < waiting < third


async def test_a_living_run_behind_a_dead_one_leaves_all_as_it_was(store: Store):
    await start(store, "r1", owner="dead/1/1/1")
    await accept(store, "r2", session_is_new=False, owner=OTHER)
    third = await accept(store, "r3", session_is_new=False)
    assert (await store.start_run(third, "s1", said("no"))).outcome is StartOutcome.BUSY
    assert await state_of(store, "r1") is RunState.ACTIVE


async def test_a_settled_run_cannot_start_and_is_not_settled_again(store: Store):
    seq = await start(store, "r1")
    first = completed("r1", text="first")
    await store.finish_run(seq, "s1", first)
    await store.finish_run(seq, "s1", completed("r1", text="second"), [answered("late")])
    record = await store.find_run("r1")
    assert record is not None
    assert record.completion == first
    assert len(await store.load_history("s1")) == 1
    assert (await store.start_run(seq, "s1", said("again"))).outcome is StartOutcome.SETTLED


async def test_the_history_is_ordered_by_turn_not_by_time(store: Store):
    first = await start(store, "r1")
    second = await accept(store, "r2", session_is_new=False)
    await store.add_messages(first, "s1", [answered("1a"), answered("1b")])
    await store.finish_run(first, "s1", completed("r1"))
    await store.start_run(second, "s1", said("2"))
    await store.add_messages(first, "s1", [answered("1c")])
    texts = [entry.text for entry in await store.load_history("s1")]
    assert texts == ["prompt of r1", "1a", "1b", "1c", "2"]


async def test_a_save_repeated_leaves_one_copy(store: Store):
    seq = await start(store, "r1")
    first, second = answered("a"), answered("b")
    await store.add_messages(seq, "s1", [first])
    await store.add_messages(seq, "s1", [first, second])
    assert (await store.load_history("s1"))[1:] == [first, second]


async def test_a_folded_follow_up_is_settled_with_its_message(store: Store):
    seq = await start(store, "r1")
    follow_up = await accept(store, None, session_is_new=False)
    await store.add_messages(seq, "s1", [said("and this")], folded=[follow_up])
    assert (await store.start_run(follow_up, "s1", said("x"))).outcome is StartOutcome.SETTLED
    assert [run.run_id for run in await store.list_runs()] == ["r1"]


async def test_a_cancel_of_a_run_finds_it_in_flight_ended_or_unknown(store: Store):
    seq = await start(store, "r1")
    assert await store.request_cancel("nobody") is CancelRequest.UNKNOWN
    assert await store.request_cancel("r1") is CancelRequest.REQUESTED
    assert await store.cancelled_runs(OURS) == [seq]
    assert await store.cancelled_runs(OTHER) == []
    await store.finish_run(seq, "s1", completed("r1", status=RunState.CANCELLED))
    assert await store.request_cancel("r1") is CancelRequest.ENDED
    assert await store.cancelled_runs(OURS) == []


async def test_a_run_whose_cancel_was_asked_does_not_start_and_its_neighbour_does(store: Store):
    first = await accept(store, "r1")
    second = await accept(store, "r2", session_is_new=False)
    await store.request_cancel("r1")
    assert (await store.start_run(first, "s1", said("x"))).outcome is StartOutcome.COVERED
    assert (await store.start_run(second, "s1", said("y"))).outcome is StartOutcome.STARTED


async def test_a_session_cancel_covers_what_is_in_flight_and_spares_what_comes_later(store: Store):
    first = await start(store, "r1")
    second = await accept(store, "r2", session_is_new=False)
    covered = await store.request_session_cancel("s1")
    assert [record.accept_seq for record in covered] == [first, second]
    third = await accept(store, "r3", session_is_new=False)
    assert await store.cancelled_runs(OURS) == [first, second]
    await store.finish_run(first, "s1", completed("r1", status=RunState.CANCELLED))
    assert (await store.start_run(second, "s1", said("no"))).outcome is StartOutcome.COVERED
    assert (await store.start_run(third, "s1", said("yes"))).outcome is StartOutcome.STARTED


async def test_an_idle_session_cancel_does_nothing_and_a_repeated_one_no_more(store: Store):
    seq = await start(store, "r1")
    await store.finish_run(seq, "s1", completed("r1"))
    assert await store.request_session_cancel("s1") == []
    later = await accept(store, "r2", session_is_new=False)
    assert (await store.start_run(later, "s1", said("x"))).outcome is StartOutcome.STARTED
    assert len(await store.request_session_cancel("s1")) == 1
    assert len(await store.request_session_cancel("s1")) == 1


async def test_orphans_are_completed_as_interrupted_and_the_living_left_alone(store: Store):
    await start(store, "r1", "s1", owner="dead/1/1/1")
    await accept(store, "r2", "s2", owner="dead/2/1/1")
    await accept(store, None, "s2", session_is_new=False, owner="dead/2/1/1")
    await start(store, "r3", "s3", owner=OTHER)
    completions = await store.recover_orphans()
    assert [completion.run_id for completion in completions] == ["r1", "r2"]
    first = completions[0]
    assert (first.status, first.finish_reason, first.exit_code) == (RunState.FAILED, FinishReason.ERROR, 1)
    assert first.error is not None
    assert first.error.startswith("interrupted: ")
    record = await store.find_run("r1")
    assert record is not None
    assert record.completion == first
    assert await state_of(store, "r3") is RunState.ACTIVE
    assert len(await store.load_history("s1")) == 1, "the history is left"
    assert await store.recover_orphans() == []


async def test_runs_and_sessions_are_listed_newest_first(store: Store):
    for n in range(3):
        await accept(store, f"a{n}", "s1", session_is_new=n == 0, prompt=Prompt(f"\n  title {n}\nmore"))
    await accept(store, "b0", "s2", prompt=Prompt("x" * 200))
    await accept(store, None, "s1", session_is_new=False)
    assert [run.run_id for run in await store.list_runs()] == ["b0", "a2", "a1", "a0"]
    assert [run.run_id for run in await store.list_runs(session_id="s1", limit=2)] == ["a2", "a1"]
    sessions = await store.list_sessions()
    assert [(session.session_id, session.title, session.runs) for session in sessions] == [
        ("s1", "title 0", 3),
        ("s2", "x" * 80, 1),
    ]
    assert await store.list_sessions(limit=1) == sessions[:1]
    assert await store.find_session("s2") == sessions[1]
    assert await store.find_session("s3") is None


async def test_a_call_in_a_cancelled_scope_does_nothing(store: Store):
    with anyio.CancelScope() as scope:
        scope.cancel()
        await accept(store, "r1")
        pytest.fail("the cancel did not strike")
    assert await store.find_run("r1") is None


async def test_a_call_in_a_shield_is_carried_out(store: Store):
    with anyio.CancelScope() as scope:
        scope.cancel()
        with anyio.move_on_after(5, shield=True):
            await accept(store, "r1")
    assert await state_of(store, "r1") is RunState.ACCEPTED


async def test_calls_take_effect_in_the_order_in_which_tasks_make_them(store: Store):
    called: list[str] = []

    async def create(run_id: str) -> None:
        called.append(run_id)
        await accept(store, run_id)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for n in range(200):
                tasks.start_soon(create, f"r{n}")
    listed = [run.run_id for run in await store.list_runs(limit=1000)]
    assert listed[::-1] == called


async def test_the_change_stamp_changes_with_each_commit(store: Store):
    stamps = [store.change_stamp()]
    for n in range(5):
        await accept(store, f"r{n}")
        stamps.append(store.change_stamp())
    assert all(before != after for before, after in itertools.pairwise(stamps))


async def test_closing_twice_is_harmless(store: Store):
    await store.close()
    await store.close()
