"""Whether and when a model call is tried again after a fault: the one place that decides (design, 9)."""

from __future__ import annotations

import random

from engine.model.base import FaultKind, ModelFault

BASE_SECONDS = 0.5
"""The first backoff is at most this; each further one at most twice the last."""

BACKOFF_MAX_SECONDS = 20.0
"""No backoff of ours is longer."""

RETRY_AFTER_MAX_SECONDS = 300.0
"""A server that asks for longer has said no, for a job that somebody waits for."""


def wait_seconds(fault: ModelFault, attempt: int, *, retries_max: int, remaining_seconds: float | None) -> float:
    """How long to wait before the attempt after number `attempt` (from 1).

    The server's own wish is granted to the letter; else exponential backoff with full jitter.

    Raises:
        ModelFault: there will be no further attempt; the text says why.
    """
    if not fault.is_retryable:
        raise fault
    if attempt > retries_max:
        attempts = f" (after {attempt} attempts)" if attempt > 1 else ""
        raise ModelFault(fault.kind, f"{fault}{attempts}") from fault
    wished = fault.retry_after_seconds
    if wished is None:
        wait = random.uniform(0, min(BACKOFF_MAX_SECONDS, BASE_SECONDS * 2 ** (attempt - 1)))  # noqa: S311
        if remaining_seconds is not None and wait >= remaining_seconds:
            wait = remaining_seconds / 2
        return wait
    if remaining_seconds is not None and wished >= remaining_seconds:
        raise ModelFault(
            FaultKind.RATE_LIMIT,
            f"{fault}; the server asks to wait {wished:g} s, but this run has only {remaining_seconds:.0f} s left "
            "(--timeout)",
        ) from fault
    if wished > RETRY_AFTER_MAX_SECONDS:
        raise ModelFault(
            FaultKind.RATE_LIMIT,
            f"{fault}; the server asks to wait {wished:g} s, longer than the {RETRY_AFTER_MAX_SECONDS:g} s that a run "
            "waits: try again later",
        ) from fault
    return max(0.0, wished)
