"""The life of a run is a table: every state is a key, and what it does not hold cannot happen (design, 3)."""

from __future__ import annotations

import pytest

from engine.lifecycle import SETTLED, TRANSITIONS, IllegalTransitionError, RunState, Trigger, next_state

FINAL = sorted(SETTLED - {RunState.NEEDS_INPUT})


def test_every_state_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(RunState)


@pytest.mark.parametrize("state", sorted(RunState))
@pytest.mark.parametrize("trigger", sorted(Trigger))
def test_arrows_are_those_of_the_table_and_no_others(state: RunState, trigger: Trigger) -> None:
    if trigger in TRANSITIONS[state]:
        assert next_state(state, trigger) is TRANSITIONS[state][trigger]
    else:
        with pytest.raises(IllegalTransitionError, match=f"{state} cannot {trigger}"):
            next_state(state, trigger)


@pytest.mark.parametrize("state", FINAL)
def test_final_is_final(state: RunState) -> None:
    """M2: a second completion is impossible, not unlikely."""
    assert TRANSITIONS[state] == {}


def test_every_way_of_the_design_is_open() -> None:
    ways = [
        (RunState.ACCEPTED, RunState.QUEUED),
        (RunState.QUEUED, RunState.ACTIVE),
        (RunState.ACCEPTED, RunState.ACTIVE),
        (RunState.ACCEPTED, RunState.CANCELLED),
        (RunState.QUEUED, RunState.CANCELLED),
        (RunState.NEEDS_INPUT, RunState.QUEUED),
        *((RunState.ACTIVE, end) for end in SETTLED),
    ]
    for start, end in ways:
        assert end in TRANSITIONS[start].values(), f"{start} to {end}"


def test_every_state_can_be_reached_and_left_for_an_end() -> None:
    reached = {RunState.ACCEPTED}
    while (more := reached | {end for state in reached for end in TRANSITIONS[state].values()}) != reached:
        reached = more
    assert reached == set(RunState)
    for state in set(RunState) - set(FINAL):
        assert RunState.CANCELLED in TRANSITIONS[state].values(), f"{state} can be cancelled"
