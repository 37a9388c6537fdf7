"""The life of a run: its states, what moves it between them, and the one function that does (design, 3).

Code, tests and `docs/states.md` all read `TRANSITIONS`. Two things go beyond the arrows of the design's section 3,
because other sections ask for them: a run can fail before its turn begins (its save failed, or its process died), a
follow-up that joins another turn is done with it, and a parked run can be cancelled.
"""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    """Where a run is. The last four are final for the waiter; `NEEDS_INPUT` alone can be left again."""

    ACCEPTED = "accepted"
    QUEUED = "queued"
    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    NEEDS_INPUT = "needs_input"


class Trigger(StrEnum):
    """What can happen to a run."""

    ENQUEUE = "enqueue"
    FOLD = "fold"
    START = "start"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"
    PARK = "park"
    RESUME = "resume"


class FinishReason(StrEnum):
    """Why a turn ended (design, 1)."""

    END_TURN = "end_turn"
    MAX_TOKENS = "max_tokens"
    MAX_STEPS = "max_steps"
    LIMIT = "limit"
    CANCELLED = "cancelled"
    ERROR = "error"
    NEEDS_INPUT = "needs_input"


TRANSITIONS: dict[RunState, dict[Trigger, RunState]] = {
    RunState.ACCEPTED: {
        Trigger.ENQUEUE: RunState.QUEUED,
        Trigger.START: RunState.ACTIVE,
        Trigger.CANCEL: RunState.CANCELLED,
        Trigger.FAIL: RunState.FAILED,
    },
    RunState.QUEUED: {
        Trigger.FOLD: RunState.COMPLETED,
        Trigger.START: RunState.ACTIVE,
        Trigger.CANCEL: RunState.CANCELLED,
        Trigger.FAIL: RunState.FAILED,
    },
    RunState.ACTIVE: {
        Trigger.COMPLETE: RunState.COMPLETED,
        Trigger.FAIL: RunState.FAILED,
        Trigger.CANCEL: RunState.CANCELLED,
        Trigger.PARK: RunState.NEEDS_INPUT,
    },
    RunState.NEEDS_INPUT: {
        Trigger.RESUME: RunState.QUEUED,
        Trigger.CANCEL: RunState.CANCELLED,
    },
    RunState.COMPLETED: {},
    RunState.FAILED: {},
    RunState.CANCELLED: {},
}

SETTLED = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED, RunState.NEEDS_INPUT})
"""The states in which a waiter has its answer."""


class IllegalTransitionError(AssertionError):
    """A bug of ours: this state has no such arrow."""


def next_state(state: RunState, trigger: Trigger) -> RunState:
    """The state that `trigger` leads to from `state`.

    Raises:
        IllegalTransitionError: the table has no such arrow.
    """
    try:
        return TRANSITIONS[state][trigger]
    except KeyError:
        raise IllegalTransitionError(f"a run that is {state} cannot {trigger}") from None
