"""The numbers that bound waits and sizes, each with its reason, and the limits that a caller sets on a run."""

from __future__ import annotations

from dataclasses import dataclass

SAVE_SECONDS = 10.0
"""How long the last save of a run may take, also after a cancel (design, 6)."""

IDLE_SECONDS = 120.0
"""How long a model may make no progress before the attempt counts as stalled (design, 6)."""

CONNECT_SECONDS = 20.0
"""How long connecting to a provider may take; a healthy handshake needs well under one."""

DELIVER_SECONDS = 0.05
"""How long a must-deliver publish waits for one full subscriber (design, 5)."""

BUFFER_MAX = 4096
"""Events that a subscription holds for a slow reader: some seconds of a fast model's deltas."""

QUEUE_MAX = 100_000
"""Prompts that may wait in one session: far over any real queue, low enough to bound memory."""

MAX_STEPS = 50
"""Model calls in one run unless the caller says otherwise."""

RETRIES_MAX = 4
"""Further attempts after a provider fault, for one model call."""

TOOL_TEXT_MAX = 30_000
"""Characters of a tool's result that the model is shown and the store keeps."""

STORE_WAIT_SECONDS = 30.0
"""How long a store call waits for other writers before it gives up, naming the path."""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What the caller allows one run.

    `timeout_seconds` counts from acceptance, waiting in the queue included: it is a promise to whoever waits.
    `idle_seconds` is judged by the model's progress, not by bytes on the wire (design, 6).
    """

    max_steps: int = MAX_STEPS
    timeout_seconds: float | None = None
    idle_seconds: float = IDLE_SECONDS
    retries_max: int = RETRIES_MAX
