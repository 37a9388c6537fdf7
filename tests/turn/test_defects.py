"""What peers get wrong (behaviours, L) and what must hold (M), each with the test that would fail.

The tables are read by a test: what they name is there. Defects that no other file has a test for are below them.
"""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest

from engine.app import Engine
from engine.broker.broker import Broker
from engine.dispatch.session_queue import Decision
from engine.event import RunCompleted
from engine.lifecycle import RunState
from engine.message import Role
from engine.model.base import Model
from engine.run import Prompt, RunRequest, StopReason
from engine.settings import Settings
from engine.store.memory import MemoryStore
from tests.fakes import FakeModel, held, opened, request, says

TESTS = Path(__file__).parent.parent

HERE, RUNS, CANCELS, SAVES = "turn/test_defects", "dispatch/test_runs", "dispatch/test_cancels", "dispatch/test_saves"
QUEUE, EVERYWHERE = "dispatch/test_session_queue", "dispatch/test_checkpoints"

DEFECTS: dict[str, list[tuple[str, str]]] = {
    "FIX-1": [(RUNS, "test_queue_goes_on_behind_a_turn_that_ends_badly")],
    "FIX-2": [(RUNS, "test_failure_before_the_turn_begins_still_completes_the_run")],
    "FIX-3": [(RUNS, "test_failure_before_the_turn_begins_still_completes_the_run")],
    "FIX-4": [(RUNS, "test_completion_is_out_before_the_next_turns_model_call")],
    "FIX-5": [(RUNS, "test_follow_up_left_at_the_end_of_a_turn_runs_before_later_prompts")],
    "FIX-6": [(HERE, "test_slow_listener_holds_up_no_decision")],
    "FIX-7": [(CANCELS, "test_clear_queue_drops_what_waits_and_spares_the_active_run")],
    "FIX-8": [(QUEUE, "test_only_the_active_run_may_hand_over")],
    "FIX-9": [
        (RUNS, "test_late_and_repeated_waiters_get_the_same_completion"),
        (RUNS, "test_full_subscription_does_not_lose_its_own_completion"),
    ],
    "FIX-10": [
        ("broker/test_must_deliver", "test_in_a_cancelled_scope_those_with_room_get_it_and_the_rest_are_counted")
    ],
    "FIX-11": [(SAVES, "test_hung_last_save_delays_the_completion_by_its_bound_only")],
    "FIX-12": [(QUEUE, "test_mark_kept_alive_by_another_reservation_harms_no_later_prompt")],
    "FIX-13": [(RUNS, "test_run_id_in_flight_is_attached_and_run_once")],
    "FIX-14": [(CANCELS, "test_cancel_of_one_queued_run_leaves_its_neighbours_in_place")],
    "FIX-15": [(HERE, "test_model_opened_anew_leaves_live_runs_in_reach")],
    "FIX-16": [(RUNS, "test_base_exception_of_a_turn_becomes_its_completion")],
    "FIX-17": [(CANCELS, "test_closing_the_engine_settles_runs_in_every_state")],
    "FIX-18": [(RUNS, "test_thousand_queued_runs_drain_in_order"), (HERE, "test_stack_does_not_grow_with_the_queue")],
    "FIX-19": [
        (SAVES, "test_follow_up_that_cannot_be_joined_waits_for_its_own_turn"),
        (QUEUE, "test_follow_ups_that_could_not_be_saved_wait_again_in_their_place"),
    ],
    "FIX-20": [("turn/test_steps", "test_answer_is_the_last_message_and_not_what_was_said_on_the_way")],
    "FIX-21": [(CANCELS, "test_run_that_waits_for_a_place_can_be_cancelled")],
    "FIX-22": [(CANCELS, "test_no_model_call_follows_a_cancel_that_a_tool_swallows")],
    "FIX-23": [("cli/test_run_text", "test_continue_takes_the_session_that_was_used_last")],
    "FIX-24": [("cli/test_flags", "test_naming_a_tool_that_changes_things_does_not_allow_it")],
    "FIX-25": [
        ("cli/test_stdin", "test_a_silent_pipe_beside_a_prompt_ends_in_an_error_that_says_how_to_go_on"),
        ("cli/test_stdin", "test_an_empty_pipe_adds_nothing"),
        ("cli/test_stdin", "test_waiting_for_a_pipe_can_be_cancelled"),
    ],
    "FIX-26": [("cli/test_run_text", "test_a_signal_cancels_the_run_and_waits_for_its_completion")],
    "FIX-27": [(RUNS, "test_waiter_hears_of_its_own_run_alone")],
    "FIX-29": [(RUNS, "test_bad_requests_are_refused_and_leave_nothing")],
    "FIX-30": [
        (RUNS, "test_users_message_is_durable_before_the_first_model_call"),
        (SAVES, "test_hung_last_save_delays_the_completion_by_its_bound_only"),
        ("turn/test_tool_runs", "test_results_are_saved_in_call_order_whatever_the_order_of_finishing"),
        ("turn/test_steps", "test_broken_history_of_an_earlier_turn_is_repaired_and_nothing_is_run_again"),
    ],
    "FIX-31": [
        (CANCELS, "test_session_stays_busy_until_the_cancelled_turn_has_wound_up"),
        (HERE, "test_cancel_before_the_first_step_of_a_run_keeps_its_prompt"),
    ],
}

NOT_BUILT = {
    "FIX-28": "interactions with a person come with a later issue",
    "M18": "the conformance corpus comes with a later issue",
}

RULES: dict[str, list[tuple[str, str]]] = {
    "M1": [(CANCELS, "test_prompt_that_is_still_being_saved_is_covered")],
    "M2": [
        (EVERYWHERE, "test_cancel_at_every_checkpoint_leaves_nothing_open"),
        ("test_lifecycle", "test_final_is_final"),
    ],
    "M3": [("test_run", "test_completion_has_the_same_keys_in_every_outcome")],
    "M4": [
        (RUNS, "test_completion_is_out_before_the_next_turns_model_call"),
        (RUNS, "test_prompt_sent_upon_a_completion_is_run"),
    ],
    "M5": [(RUNS, "test_queue_goes_on_behind_a_turn_that_ends_badly")],
    "M6": [
        (QUEUE, "test_cancel_covers_an_accepted_prompt_and_its_mark_goes_with_it"),
        (QUEUE, "test_second_cancel_hits_nothing_new_and_never_lowers_the_mark"),
    ],
    "M7": [
        (CANCELS, "test_cancel_of_a_session_hits_active_and_queued_and_each_is_told_once"),
        (CANCELS, "test_idle_cancel_is_silent_and_the_next_prompt_runs"),
        (CANCELS, "test_run_that_waits_for_a_place_can_be_cancelled"),
    ],
    "M8": [(CANCELS, "test_cancel_of_a_session_hits_active_and_queued_and_each_is_told_once")],
    "M9": [
        (RUNS, "test_users_message_is_durable_before_the_first_model_call"),
        (SAVES, "test_unsaved_user_message_means_no_model_call"),
    ],
    "M10": [
        (CANCELS, "test_cancel_in_a_tool_leaves_one_result_for_each_call"),
        ("turn/test_record", "test_closing_gives_each_call_its_one_result_in_call_order"),
        ("turn/test_context", "test_any_history_becomes_one_that_a_provider_takes"),
    ],
    "M11": [
        (CANCELS, "test_no_model_call_follows_a_cancel_that_a_tool_swallows"),
        ("turn/test_stop", "test_model_is_not_entered_once_the_turn_is_stopped"),
        ("turn/test_tool_runs", "test_cancel_of_a_crowd_that_swallows_it_starts_nobody_new"),
    ],
    "M12": [
        ("turn/test_ask", "test_stall_ends_the_attempt_closes_its_stream_and_is_tried_again"),
        ("turn/test_wind_up", "test_cleanup_that_hangs_delays_the_completion_by_its_bound_only"),
        (SAVES, "test_hung_last_save_delays_the_completion_by_its_bound_only"),
        (CANCELS, "test_cancel_ends_a_retry_pause_at_once"),
    ],
    "M13": [(RUNS, "test_late_and_repeated_waiters_get_the_same_completion")],
    "M14": [
        ("broker/test_properties", "test_received_is_published_minus_lost_in_order"),
        ("broker/test_must_deliver", "test_a_stalled_subscriber_does_not_delay_the_others"),
    ],
    "M15": [
        ("cli/test_run_text", "test_standard_output_carries_the_answer_and_nothing_else"),
        ("cli/test_run_text", "test_a_failed_run_says_why_in_one_line_and_exits_as_the_engine_decided"),
    ],
    "M16": [
        ("test_ids", "test_what_may_serve_as_an_id"),
        (RUNS, "test_used_run_id_with_another_prompt_is_refused_and_names_both"),
    ],
    "M17": [("cli/test_flags", "test_naming_a_tool_that_changes_things_does_not_allow_it")],
    "M19": [(EVERYWHERE, "test_cancel_at_every_checkpoint_leaves_nothing_open")],
    "M20": [
        (CANCELS, "test_engine_cancelled_from_outside_still_settles_every_run"),
        ("cli/test_interrupt", "test_a_second_signal_leaves_at_once"),
    ],
}


def test_every_defect_and_every_rule_is_in_the_tables() -> None:
    names = {f"FIX-{number}" for number in range(1, 32)} | {f"M{number}" for number in range(1, 21)}
    assert set(DEFECTS) | set(RULES) | set(NOT_BUILT) == names
    assert not set(NOT_BUILT) & (set(DEFECTS) | set(RULES))


@pytest.mark.parametrize("name", [*DEFECTS, *RULES])
def test_tests_that_the_tables_name_are_there(name: str) -> None:
    for file, test in (DEFECTS | RULES)[name]:
        source = (TESTS / f"{file}.py").read_text("utf-8")
        assert re.search(rf"^\s*(async )?def {test}\(", source, re.MULTILINE), f"{name}: no {test} in {file}.py"


def completions_of(events: object) -> list[str]:
    found = []
    while (event := events.next_nowait()) is not None:  # type: ignore[attr-defined]
        if isinstance(event, RunCompleted):
            found.append(event.run_id)
    return found


@pytest.mark.anyio
async def test_slow_listener_holds_up_no_decision() -> None:
    """FIX-6: completions of dropped prompts are published outside the decision that dropped them."""
    gate, answer = held("one")
    broker = Broker(buffer_max=1, deliver_seconds=60)
    with anyio.fail_after(5):
        async with opened(FakeModel(answer, says("next")), broker=broker) as engine:
            session_id = (await engine.submit(request())).session_id
            await gate.reached.wait()
            for number in range(3):
                await engine.submit(request(run_id=f"q{number}", session_id=session_id))
            stalled = engine.subscribe()
            await engine.submit(request(run_id="fill", session_id=session_id))  # its news is all that is read of it
            last = engine.subscribe(run_id="fill")
            assert await engine.clear_queue(session_id) == ("q0", "q1", "q2", "fill")
            await engine.submit(request(run_id="next", session_id=session_id))
            assert completions_of(last) == [], "the first of four is still waiting for the listener"
            stalled.close()
            gate.open()
            assert (await engine.wait("next")).text == "next"
            assert (await engine.wait("fill")).status is RunState.CANCELLED
            assert completions_of(last) == ["fill"]


@pytest.mark.anyio
async def test_model_opened_anew_leaves_live_runs_in_reach() -> None:
    """FIX-15: there is one registry for as long as the engine is open; another model is another value in a run."""
    gate, answer = held("Hello")
    models = {"fake/one": FakeModel(answer), "fake/two": FakeModel(says("from two"))}

    def open_model(name: str) -> Model:
        return models[name]

    settings = Settings(Path("/nonexistent"), environ={})
    with anyio.fail_after(5):
        async with Engine(settings, MemoryStore(), open_model=open_model, open_tools=lambda _names: {}) as engine:
            await engine.submit(RunRequest(Prompt("go"), run_id="r1", model="fake/one", cwd="/"))
            await gate.reached.wait()
            other = await engine.submit(RunRequest(Prompt("go"), run_id="r2", model="fake/two", cwd="/"))
            assert (await engine.wait("r2")).text == "from two"
            behind = RunRequest(Prompt("go"), run_id="r3", session_id=other.session_id, model="fake/none", cwd="/")
            await engine.submit(behind)
            assert (await engine.wait("r3")).status is RunState.FAILED
            await engine.cancel_run("r1")
            completion = await engine.wait("r1")
            assert (completion.status, completion.text) == (RunState.CANCELLED, "He")


@pytest.mark.anyio
async def test_stack_does_not_grow_with_the_queue() -> None:
    """FIX-18: seen from inside the model, the last of a long queue stands where the first stood."""
    depths: list[int] = []

    class Measuring(FakeModel):
        def stream(self, request):  # type: ignore[no-untyped-def]
            depths.append(len(_frames()))
            return super().stream(request)

    gate, answer = held("one")
    model = Measuring(answer, *[says("next") for _ in range(200)])
    with anyio.fail_after(5):
        async with opened(model) as engine:
            session_id = (await engine.submit(request())).session_id
            await gate.reached.wait()
            for number in range(200):
                await engine.submit(request(run_id=f"q{number}", session_id=session_id))
            gate.open()
            await engine.wait("q199")
    assert len(depths) == 201
    assert max(depths[1:]) == min(depths[1:])


def _frames() -> list[object]:
    import inspect

    frames, frame = [], inspect.currentframe()
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


@pytest.mark.anyio
@pytest.mark.parametrize("whose", ["run", "session"])
async def test_cancel_before_the_first_step_of_a_run_keeps_its_prompt(whose: str) -> None:
    """FIX-31, K8b: its task has not run one line when the cancel comes; peers lose prompt and completion there."""
    model = FakeModel()
    with anyio.fail_after(5):
        async with opened(model) as engine:
            reservation = await engine.dispatcher.accept(request("stop me"))
            session_id = reservation.run.session_id
            with engine.subscribe(run_id="r1") as events:
                assert reservation.dispatch() is Decision.ACTIVE
                # No await in between: nothing has run.
                if whose == "run":
                    engine.dispatcher.cancel_run(reservation.run, StopReason.CANCEL)
                else:
                    engine.dispatcher.cancel_session(session_id, StopReason.CANCEL)
                assert (await engine.wait("r1")).status is RunState.CANCELLED
                await engine.dispatcher.wait_settled()
                assert completions_of(events) == ["r1"]
            history = await engine.store.load_history(session_id)
            assert [(message.role, message.text) for message in history] == [
                (Role.USER, "stop me"),
                (Role.ASSISTANT, ""),
            ]
            assert model.requests == []
