"""The decisions of design section 3, one by one: plain calls, so that every interleaving is written down."""

from __future__ import annotations

import pytest

from engine.dispatch.live_run import LiveRun
from engine.dispatch.session_queue import Decision, SessionQueue
from engine.lifecycle import RunState
from engine.run import Prompt, RunRequest, StopReason


class Bench:
    """A session and a ticket counter."""

    def __init__(self) -> None:
        self.queue = SessionQueue("s")
        self.ticket = 0

    def reserve(self, run_id: str | None = "r") -> LiveRun:
        self.ticket += 1
        run = LiveRun(RunRequest(Prompt("hi"), run_id=run_id), "s", self.ticket, session_is_new=False)
        run.accept_seq = self.ticket
        self.queue.reserve(run)
        return run

    def admit(self, run_id: str | None = "r") -> LiveRun:
        run = self.reserve(run_id)
        self.queue.admit(run)
        return run

    def cancel(self, reason: StopReason = StopReason.CANCEL):
        return self.queue.cancel(reason, self.ticket)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_first_prompt_becomes_active_and_the_next_waits(bench: Bench) -> None:
    first, second = bench.admit(), bench.reserve()
    assert bench.queue.admit(second) is Decision.QUEUED
    assert (first.state, second.state) == (RunState.ACTIVE, RunState.QUEUED)
    assert bench.queue.active is first


def test_closing_a_reservation_twice_is_harmless(bench: Bench) -> None:
    one, other = bench.reserve(), bench.reserve()
    bench.queue.close_reservation(one)
    bench.queue.close_reservation(one)
    assert bench.queue.reserved() == [other]


def test_idle_cancel_does_nothing_at_all(bench: Bench) -> None:
    hit = bench.cancel()
    assert (hit.active, hit.accepted, hit.dropped) == (None, [], [])
    assert bench.queue.cancel_mark == 0
    assert bench.queue.admit(bench.reserve()) is Decision.ACTIVE


def test_cancel_covers_an_accepted_prompt_and_its_mark_goes_with_it(bench: Bench) -> None:
    run = bench.reserve()
    assert bench.cancel().accepted == [run]
    assert bench.queue.cancel_mark == run.ticket
    assert bench.queue.admit(run) is Decision.CANCELLED_ON_ENTRY
    assert run.state is RunState.CANCELLED
    assert bench.queue.cancel_mark == 0
    assert bench.queue.is_idle()


def test_second_cancel_hits_nothing_new_and_never_lowers_the_mark(bench: Bench) -> None:
    run = bench.reserve()
    bench.cancel(StopReason.SIGINT)
    mark = bench.queue.cancel_mark
    again = bench.cancel(StopReason.CANCEL)
    assert (again.active, again.accepted, again.dropped) == (None, [], [])
    assert bench.queue.cancel_mark == mark
    assert run.stop.reason is StopReason.SIGINT


def test_cancel_hits_active_accepted_and_queued_at_once(bench: Bench) -> None:
    active, queued, accepted = bench.admit(), bench.admit(), bench.reserve()
    hit = bench.cancel()
    assert (hit.active, hit.accepted, hit.dropped) == (active, [accepted], [queued])
    assert queued.state is RunState.CANCELLED
    assert bench.queue.active is active, "it stays busy until the turn has wound up"
    assert bench.queue.admit(accepted) is Decision.CANCELLED_ON_ENTRY
    assert len(bench.queue) == 0


def test_covered_prompt_of_a_busy_session_is_not_queued(bench: Bench) -> None:
    bench.admit()
    covered = bench.reserve()
    bench.cancel()
    assert bench.queue.admit(covered) is Decision.CANCELLED_ON_ENTRY
    assert len(bench.queue) == 0


def test_prompt_accepted_after_the_cancel_runs_even_when_dispatched_first(bench: Bench) -> None:
    one, two = bench.reserve(), bench.reserve()
    bench.cancel()
    later = bench.reserve()
    assert bench.queue.admit(later) is Decision.ACTIVE
    assert bench.queue.cancel_mark == two.ticket, "the mark outlives a run that it does not cover"
    assert bench.queue.admit(one) is Decision.CANCELLED_ON_ENTRY
    assert bench.queue.admit(two) is Decision.CANCELLED_ON_ENTRY
    assert later.stop.reason is None
    assert bench.queue.cancel_mark == 0


def test_mark_kept_alive_by_another_reservation_harms_no_later_prompt(bench: Bench) -> None:
    """FIX-12: nothing is untracked, so nothing later is at or below the mark."""
    bench.reserve()
    bench.cancel()
    for run_id in ("r", None):
        later = bench.reserve(run_id)
        assert bench.queue.admit(later) is not Decision.CANCELLED_ON_ENTRY


def test_cancel_after_the_slot_has_passed_stops_the_next_run(bench: Bench) -> None:
    """B12, B13: there is no gap between a turn's end and the next one's start."""
    first, second = bench.admit(), bench.admit()
    assert bench.queue.hand_over(first) is second
    assert bench.cancel().active is second
    assert second.stop.reason is StopReason.CANCEL


def test_prompt_accepted_during_the_hand_over_does_not_overtake(bench: Bench) -> None:
    first, second = bench.admit(), bench.admit()
    bench.queue.hand_over(first)
    third = bench.admit()
    assert bench.queue.active is second
    assert bench.queue.hand_over(second) is third


def test_slot_passes_in_order_of_acceptance_over_runs_and_follow_ups(bench: Bench) -> None:
    active = bench.admit()
    waiting = [bench.admit(run_id) for run_id in ("a", None, "b", None, "c")]
    order = []
    while (following := bench.queue.hand_over(active)) is not None:
        order.append(following)
        active = following
    assert order == waiting
    assert bench.queue.is_idle()


def test_late_dispatch_takes_its_place_in_order_of_acceptance(bench: Bench) -> None:
    active = bench.admit()
    early, late = bench.reserve(), bench.reserve()
    bench.queue.admit(late)
    bench.queue.admit(early)
    assert bench.queue.waiting() == [early, late]
    assert bench.queue.hand_over(active) is early


def test_only_the_active_run_may_hand_over(bench: Bench) -> None:
    """FIX-8: nobody clears a slot that is another's."""
    bench.admit()
    queued = bench.admit()
    with pytest.raises(AssertionError):
        bench.queue.hand_over(queued)


def test_step_takes_follow_ups_and_leaves_runs(bench: Bench) -> None:
    bench.admit()
    one, run, two = bench.admit(None), bench.admit("run"), bench.admit(None)
    assert [each.accept_seq for each in bench.queue.take_follow_ups()] == [one.accept_seq, two.accept_seq]
    assert bench.queue.waiting() == [run]


def test_follow_ups_that_could_not_be_saved_wait_again_in_their_place(bench: Bench) -> None:
    """FIX-19."""
    active = bench.admit()
    early = bench.admit(None)
    taken = bench.queue.take_follow_ups()
    late = bench.admit(None)
    bench.queue.restore_follow_ups(taken)
    assert bench.queue.waiting() == [early, late]
    assert bench.queue.hand_over(active) is early


def test_covered_entries_are_dropped_at_a_step_and_not_folded(bench: Bench) -> None:
    active = bench.admit()
    covered_run, covered_follow_up = bench.admit("a"), bench.admit(None)
    spared = bench.admit(None)
    bench.queue.cancel_mark = covered_follow_up.ticket
    assert [each.accept_seq for each in bench.queue.take_follow_ups()] == [spared.accept_seq]
    assert bench.queue.take_dropped() == [covered_run, covered_follow_up]
    assert active.stop.reason is None


def test_hand_over_drops_covered_entries(bench: Bench) -> None:
    active, covered, spared = bench.admit(), bench.admit(), bench.admit()
    bench.queue.cancel_mark = covered.ticket
    assert bench.queue.hand_over(active) is spared
    assert bench.queue.take_dropped() == [covered]
    assert covered.state is RunState.CANCELLED


def test_cancel_of_one_queued_run_leaves_its_neighbours(bench: Bench) -> None:
    active, before, hit, after = bench.admit(), bench.admit(), bench.admit(), bench.admit()
    assert bench.queue.cancel_run(hit, StopReason.CANCEL) is True
    assert bench.queue.waiting() == [before, after]
    assert active.stop.reason is None
    assert bench.queue.cancel_run(hit, StopReason.CANCEL) is False, "once is enough"


def test_cancel_of_one_accepted_run_cancels_it_on_entry(bench: Bench) -> None:
    hit, spared = bench.reserve(), bench.reserve()
    assert bench.queue.cancel_run(hit, StopReason.CANCEL) is False
    assert bench.queue.admit(spared) is Decision.ACTIVE
    assert bench.queue.admit(hit) is Decision.CANCELLED_ON_ENTRY


def test_clear_queue_drops_all_that_waits_and_leaves_the_active_turn(bench: Bench) -> None:
    active, run, follow_up, accepted = bench.admit(), bench.admit("a"), bench.admit(None), bench.reserve()
    assert bench.queue.clear(StopReason.CANCEL) == [run, follow_up]
    assert active.stop.reason is None
    assert bench.queue.admit(accepted) is Decision.QUEUED


def test_run_whose_time_is_over_while_it_waits_fails_and_is_not_cancelled(bench: Bench) -> None:
    bench.admit()
    queued = bench.admit()
    assert bench.queue.cancel_run(queued, StopReason.DEADLINE) is True
    assert queued.state is RunState.FAILED


def test_ten_thousand_waiting_runs_cost_a_step_nothing(bench: Bench) -> None:
    active = bench.admit()
    for _ in range(10_000):
        bench.admit("run")
    for _ in range(10_000):
        assert bench.queue.take_follow_ups() == []
        following = bench.queue.hand_over(active)
        assert following is not None
        active = following
    assert len(bench.queue) == 0
