"""Whether and when a model call is tried again (design, 9): a table of waits, without waiting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.base import RETRYABLE, FaultKind, ModelFault
from engine.turn.retry import BACKOFF_MAX_SECONDS, BASE_SECONDS, RETRY_AFTER_MAX_SECONDS, wait_seconds


def fault(kind: FaultKind = FaultKind.SERVER, after: float | None = None) -> ModelFault:
    return ModelFault(kind, "the provider is ill", retry_after_seconds=after)


@given(st.integers(1, 60), st.sampled_from(sorted(RETRYABLE)))
def test_backoff_grows_and_stays_within_its_bounds(attempt: int, kind: FaultKind) -> None:
    wait = wait_seconds(fault(kind), attempt, retries_max=60, remaining_seconds=None)
    assert 0 <= wait <= min(BACKOFF_MAX_SECONDS, BASE_SECONDS * 2 ** (attempt - 1))


@given(st.integers(1, 60), st.floats(0, 30))
def test_backoff_never_sleeps_through_the_runs_own_limit(attempt: int, remaining: float) -> None:
    """Half of what is left at most: the last attempt still has time to be one."""
    wait = wait_seconds(fault(), attempt, retries_max=60, remaining_seconds=remaining)
    assert 0 <= wait < remaining or wait == remaining == 0


def test_backoff_is_jittered() -> None:
    """A thousand jobs that met one fault do not come back in one moment."""
    waits = {wait_seconds(fault(), 5, retries_max=9, remaining_seconds=None) for _ in range(20)}
    assert len(waits) > 1


@pytest.mark.parametrize("kind", sorted(set(FaultKind) - RETRYABLE))
def test_fault_that_will_not_pass_is_raised_as_it_is(kind: FaultKind) -> None:
    given_fault = fault(kind, after=1)
    with pytest.raises(ModelFault) as caught:
        wait_seconds(given_fault, 1, retries_max=9, remaining_seconds=None)
    assert caught.value is given_fault


def test_last_attempt_says_how_many_there_were() -> None:
    assert wait_seconds(fault(after=0), 4, retries_max=4, remaining_seconds=None) == 0
    with pytest.raises(ModelFault, match=r"the provider is ill \(after 5 attempts\)"):
        wait_seconds(fault(after=0), 5, retries_max=4, remaining_seconds=None)
    with pytest.raises(ModelFault, match=r"ill$"):
        wait_seconds(fault(), 1, retries_max=0, remaining_seconds=None)


@pytest.mark.parametrize("wished", [0, 0.25, 7, RETRY_AFTER_MAX_SECONDS])
def test_servers_wish_is_granted_to_the_letter(wished: float) -> None:
    assert wait_seconds(fault(FaultKind.RATE_LIMIT, wished), 1, retries_max=1, remaining_seconds=None) == wished


def test_wish_in_the_past_is_no_wait() -> None:
    assert wait_seconds(fault(after=-3), 1, retries_max=1, remaining_seconds=None) == 0


def test_wish_longer_than_the_runs_limit_fails_at_once_with_the_value() -> None:
    with pytest.raises(ModelFault, match=r"wait 60 s.* only 30 s left \(--timeout\)"):
        wait_seconds(fault(FaultKind.RATE_LIMIT, 60), 1, retries_max=4, remaining_seconds=30)


@pytest.mark.parametrize("wished", [301, 86_400, float("inf")])
def test_wish_that_nobody_waits_for_fails_at_once_with_the_value(wished: float) -> None:
    with pytest.raises(ModelFault, match=f"wait {wished:g} s, longer than the 300 s"):
        wait_seconds(fault(FaultKind.RATE_LIMIT, wished), 1, retries_max=4, remaining_seconds=None)
