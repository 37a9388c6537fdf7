"""The stop button of one run: the reason is recorded at the moment of the press, then one scope is cancelled.

A cancel is a stop button, not a mute button (design, 6). The scope interrupts what waits; but a tool can swallow an
interruption, so whoever is about to act asks `check` first: no model call and no tool starts past it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from engine.run import StopReason


class TurnStoppedError(Exception):
    """The turn was stopped and must not act any more; it carries no news, the reason is in the signal."""


class StopSignal:
    """Set at most once; only the loop's thread touches it."""

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self._scope: anyio.CancelScope | None = None

    def request(self, reason: StopReason) -> bool:
        """Stop now, for this reason; the first reason stays. Returns whether this call was the first."""
        if self.reason is not None:
            return False
        self.reason = reason
        if self._scope is not None:
            self._scope.cancel()
        return True

    def check(self) -> None:
        """Go on only if nobody has pressed.

        Raises:
            TurnStoppedError: somebody has.
        """
        if self.reason is not None:
            raise TurnStoppedError

    @contextmanager
    def open_scope(self) -> Iterator[anyio.CancelScope]:
        """The scope that a press cancels; cancelled from the start if it was pressed before."""
        with anyio.CancelScope() as scope:
            self._scope = scope
            if self.reason is not None:
                scope.cancel()
            try:
                yield scope
            finally:
                # A press from here on finds nothing to interrupt: what happened beats what was asked (style, 6).
                self._scope = None
