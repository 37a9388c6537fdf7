"""One session's place in the dispatch: every decision of design section 3, each a plain method that never waits.

That is the lock. Between looking and recording there is no `await`, so nothing can come in between, and there is no
lock to be cancelled at. Saving and publishing what was decided follow outside.

Three groups hold the runs of a session that have not settled: *reservations* (accepted, not dispatched yet), the
*waiting* ones (runs and follow-ups, each in order of acceptance), and the *active* one. A cancel of the session
presses the stop button of everything reserved or active, raises the cancel mark to the latest ticket given, and drops
what waits. A ticket given later is above the mark, so a prompt accepted after a cancel always runs; one that was
reserved before it is cancelled when it arrives, also behind a busy session. The slot passes from run to run in one
step: it never looks free while something waits, and a cancel never finds a gap.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from engine.dispatch.live_run import LiveRun
from engine.lifecycle import Trigger
from engine.run import StopReason
from engine.turn.loop import FollowUp


class Decision(StrEnum):
    """What becomes of a prompt at dispatch (design, 3.2)."""

    CANCELLED_ON_ENTRY = "cancelled_on_entry"
    QUEUED = "queued"
    ACTIVE = "active"


@dataclass(slots=True)
class Cancelled:
    """What a cancel hit; `dropped` are out of the queue and owe their completions."""

    active: LiveRun | None = None
    accepted: list[LiveRun] = field(default_factory=list)
    dropped: list[LiveRun] = field(default_factory=list)


class SessionQueue:
    """The registry's entry for one session."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.active: LiveRun | None = None
        self.cancel_mark = 0
        self.dropped_at_step: list[LiveRun] = []
        self._reserved: dict[int, LiveRun] = {}
        # Apart, so that a step of a turn with 10,000 runs behind it looks at the follow-ups alone.
        self._runs: OrderedDict[int, LiveRun] = OrderedDict()
        self._follow_ups: OrderedDict[int, LiveRun] = OrderedDict()
        self._taken: dict[int, LiveRun] = {}

    def reserve(self, run: LiveRun) -> None:
        """Accept: from here on a cancel covers the run."""
        self._reserved[run.ticket] = run

    def close_reservation(self, run: LiveRun) -> None:
        """Give the reservation back; harmless when it is. The mark goes with the last one that it covers (M6)."""
        self._reserved.pop(run.ticket, None)
        if self.cancel_mark and all(ticket > self.cancel_mark for ticket in self._reserved):
            self.cancel_mark = 0

    def admit(self, run: LiveRun) -> Decision:
        """Dispatch: decide and record, and close the reservation."""
        is_covered = run.ticket <= self.cancel_mark or run.stop.reason is not None
        self.close_reservation(run)
        if is_covered:
            run.stop.request(StopReason.CANCEL)
            self.drop(run)
            return Decision.CANCELLED_ON_ENTRY
        if self.active is not None:
            self._enqueue(run)
            return Decision.QUEUED
        assert not self._runs, "the slot was free while runs waited"
        self._start(run)
        return Decision.ACTIVE

    def cancel(self, reason: StopReason, latest_ticket: int) -> Cancelled:
        """Stop the session; on an idle one this does nothing at all (design, 3.3)."""
        hit = Cancelled()
        if self.active is not None and self.active.stop.request(reason):
            hit.active = self.active
        if self._reserved:
            self.cancel_mark = max(self.cancel_mark, latest_ticket)
            hit.accepted = [run for run in self._reserved.values() if run.stop.request(reason)]
        hit.dropped = self.clear(reason)
        return hit

    def cancel_run(self, run: LiveRun, reason: StopReason) -> bool:
        """Stop this run alone; returns whether it was waiting, is dropped now, and owes its completion."""
        if not run.stop.request(reason):
            return False
        for waiting in (self._runs, self._follow_ups):
            if waiting.pop(run.ticket, None) is not None:
                self.drop(run)
                return True
        return False

    def clear(self, reason: StopReason) -> list[LiveRun]:
        """Drop everything that waits, in order of acceptance; the active turn is left alone (design, 3.8)."""
        dropped = [*self._runs.values(), *self._follow_ups.values()]
        dropped.sort(key=lambda run: run.ticket)
        self._runs.clear()
        self._follow_ups.clear()
        for run in dropped:
            run.stop.request(reason)
            self.drop(run)
        return dropped

    def take_follow_ups(self) -> list[FollowUp]:
        """At a step: what a cancel covers is dropped, follow-ups go to the turn, runs stay (design, 3.6)."""
        self.dropped_at_step += self._take_covered()
        self._taken = dict(self._follow_ups)
        self._follow_ups.clear()
        return [FollowUp(run.accept_seq, run.request.prompt) for run in self._taken.values()]

    def restore_follow_ups(self, follow_ups: Sequence[FollowUp]) -> None:
        """The turn could not save them: they wait again, ahead of what came after them."""
        unsaved = {each.accept_seq for each in follow_ups}
        for ticket, run in self._taken.items():
            if run.accept_seq in unsaved:
                self._follow_ups[ticket] = run
        self._taken = {}
        _sort(self._follow_ups)

    def confirm_follow_ups(self) -> list[LiveRun]:
        """Those taken last have joined the active turn; returns them, to be forgotten."""
        folded, self._taken = list(self._taken.values()), {}
        for run in folded:
            run.apply(Trigger.FOLD)
        return folded

    def hand_over(self, run: LiveRun) -> LiveRun | None:
        """The turn of `run` is over, whatever its outcome: pass the slot to the next in order of acceptance.

        The next one, if any, is the active run when this returns: a cancel that lands now finds it.
        """
        assert self.active is run, "only the active run may hand over"
        self.dropped_at_step += self._take_covered()
        self.active = None
        heads = [next(iter(waiting.values())) for waiting in (self._runs, self._follow_ups) if waiting]
        if not heads:
            return None
        following = min(heads, key=lambda head: head.ticket)
        (self._follow_ups if following.run_id is None else self._runs).popitem(last=False)
        self._start(following)
        return following

    def take_dropped(self) -> list[LiveRun]:
        """What steps and hand-overs dropped and nobody has completed yet."""
        dropped, self.dropped_at_step = self.dropped_at_step, []
        return dropped

    def waiting(self) -> list[LiveRun]:
        """What waits, in order of acceptance."""
        return sorted([*self._runs.values(), *self._follow_ups.values()], key=lambda run: run.ticket)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._runs) + len(self._follow_ups)

    def reserved(self) -> list[LiveRun]:
        """What is accepted and not dispatched."""
        return list(self._reserved.values())

    def is_idle(self) -> bool:
        """Whether nothing of this session is left to do, so that its entry can go."""
        return self.active is None and not (self._reserved or self._runs or self._follow_ups or self.dropped_at_step)

    def _start(self, run: LiveRun) -> None:
        run.apply(Trigger.START)
        self.active = run

    def _enqueue(self, run: LiveRun) -> None:
        run.apply(Trigger.ENQUEUE)
        waiting = self._follow_ups if run.run_id is None else self._runs
        is_late = bool(waiting) and next(reversed(waiting)) > run.ticket
        waiting[run.ticket] = run
        if is_late:
            _sort(waiting)

    def _take_covered(self) -> list[LiveRun]:
        """Waiting runs at or below the mark, oldest first; tickets are ordered, so they stand at the front."""
        covered = []
        for waiting in (self._runs, self._follow_ups):
            while waiting and next(iter(waiting)) <= self.cancel_mark:
                run = waiting.popitem(last=False)[1]
                run.stop.request(StopReason.CANCEL)
                self.drop(run)
                covered.append(run)
        return sorted(covered, key=lambda run: run.ticket)

    @staticmethod
    def drop(run: LiveRun) -> None:
        """A run that is out of the queue, and was stopped, is settled: cancelled, or out of time."""
        run.apply(Trigger.FAIL if run.stop.reason is StopReason.DEADLINE else Trigger.CANCEL)


def _sort(waiting: OrderedDict[int, LiveRun]) -> None:
    """Put late arrivals where their ticket belongs; rare, since prompts arrive in ticket order."""
    for ticket in sorted(waiting):
        waiting.move_to_end(ticket)
