"""Signals: the first cancels and waits for what was saved, the second leaves at once (design, 8).

Before the event loop listens, a signal ends the process with its code: nothing has been accepted yet, so there is
nothing to save. A signal that the caller had ignored (`nohup`, a background job of a shell without job control) stays
ignored.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cli import exit_code
from cli.streams import say_error

if TYPE_CHECKING:
    import anyio

    from engine.run import StopReason

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_SECONDS = 1.0
"""What a stopping run has beyond the time for its save (design, 8)."""


class Stage(StrEnum):
    """What a first signal means: end the command, stop the runs it owns, or be in time for what is being accepted."""

    FREE = "free"
    ACCEPTING = "accepting"
    RUNNING = "running"


def heeded_signals() -> list[signal.Signals]:
    """Those of ours that the caller has not ignored."""
    return [each for each in SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]


def exit_on_signals() -> None:
    """Until the event loop listens: end at once, with the right code and nothing printed."""
    for each in heeded_signals():
        signal.signal(each, _exit_at_once)


def _exit_at_once(number: int, frame: Any) -> None:
    leave_now(exit_code.of_signal(number))


def leave_now(code: int) -> None:
    """End the process, its tools' children first, without waiting for anything."""
    import sys

    children = sys.modules.get("engine.tools.children")
    if children is not None:  # else no tool has ever started one
        children.kill_all_nowait()
    os._exit(code)


@contextmanager
def unwinding_on_signals() -> Generator[None, None, None]:
    """While the block runs, a signal ends it as an exception does: what it has begun is cleared away."""

    def unwind(number: int, frame: Any) -> None:
        raise SystemExit(exit_code.of_signal(number))

    before = {each: signal.signal(each, unwind) for each in heeded_signals()}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class Interrupts:
    """What has been signalled, and what to do about it; only the event loop's thread touches it."""

    def __init__(self, scope: anyio.CancelScope, save_seconds: float) -> None:
        self._scope = scope
        self._save_seconds = save_seconds
        self._stage = Stage.FREE
        self._stop: Callable[[StopReason], Awaitable[None]] | None = None
        self.signal: signal.Signals | None = None

    @property
    def exit_code(self) -> int:
        """The code that the first signal asks for."""
        return exit_code.OK if self.signal is None else exit_code.of_signal(self.signal)

    @property
    def reason(self) -> StopReason:
        """The first signal as a reason to stop a run."""
        from engine.run import StopReason

        assert self.signal is not None
        return StopReason(self.signal.name.lower())

    def accepting(self) -> None:
        """From here on a signal must not end the command: a run may be on record at any moment."""
        self._stage = Stage.ACCEPTING

    async def running(self, stop: Callable[[StopReason], Awaitable[None]]) -> None:
        """The run is on record: a signal stops it through `stop`, one that came while it was accepted does so now."""
        self._stage = Stage.RUNNING
        self._stop = stop
        if self.signal is not None:
            await self._stop_told()

    def settled(self) -> None:
        """All runs have ended: a signal ends the command again."""
        self._stage = Stage.FREE

    async def serve(self, signals: Any) -> None:
        """Act on signals as they come."""
        import anyio

        async with anyio.create_task_group() as tasks:
            async for number in signals:
                if self.signal is not None:
                    leave_now(exit_code.of_signal(number))
                self.signal = number
                if self._stage is Stage.FREE:
                    self._scope.cancel()
                    continue
                tasks.start_soon(self._leave_late, name="leave when stopping takes too long")
                if self._stop is not None:
                    tasks.start_soon(self._stop_told, name="stop on a signal")

    async def _stop_told(self) -> None:
        from engine.errors import EngineError

        assert self._stop is not None
        try:
            await self._stop(self.reason)
        except EngineError as error:
            say_error(f"cannot stop the run: {error}")  # the wait for its end goes on, within its bound

    async def _leave_late(self) -> None:
        import anyio

        await anyio.sleep(self._save_seconds + GRACE_SECONDS)
        leave_now(self.exit_code)


@asynccontextmanager
async def open_interrupts(save_seconds: float) -> AsyncGenerator[Interrupts, None]:
    """Listen for signals while the block runs; in the `FREE` stage a signal cancels the block, quietly.

    Listening goes on while a cancelled block winds up, so that a second signal is heard. Afterwards the signals mean
    what they meant before.
    """
    import anyio

    heeded = heeded_signals()
    before = {each: signal.getsignal(each) for each in heeded}
    scope = anyio.CancelScope()
    interrupts = Interrupts(scope, save_seconds)
    if not heeded:
        yield interrupts
        return
    try:
        with anyio.open_signal_receiver(*heeded) as signals:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(interrupts.serve, signals, name="signals")
                with scope:
                    yield interrupts
                tasks.cancel_scope.cancel()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
