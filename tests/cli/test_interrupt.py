"""Signals, with real ones: what the first does at each stage."""

from __future__ import annotations

import os
import signal

import anyio
import anyio.lowlevel
import pytest

from cli import interrupt
from cli.interrupt import open_interrupts
from engine.run import StopReason

pytestmark = pytest.mark.anyio


class LeftError(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    codes: list[int] = []

    def leave(code: int) -> None:
        codes.append(code)
        raise LeftError

    monkeypatch.setattr(interrupt, "leave_now", leave)
    return codes


def strike(number: signal.Signals = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


async def test_a_signal_before_anything_is_accepted_ends_the_block(left: list[int]) -> None:
    with anyio.fail_after(5):
        async with open_interrupts(1) as interrupts:
            strike(signal.SIGTERM)
            await anyio.sleep_forever()
    assert interrupts.exit_code == 143
    assert left == []


async def test_a_signal_while_running_stops_the_run_and_lets_the_block_end(left: list[int]) -> None:
    stopped = anyio.Event()
    reasons: list[StopReason] = []

    async def stop(reason: StopReason) -> None:
        reasons.append(reason)
        stopped.set()

    with anyio.fail_after(5):
        async with open_interrupts(1) as interrupts:
            interrupts.accepting()
            await interrupts.running(stop)
            strike(signal.SIGHUP)
            await stopped.wait()
            await anyio.lowlevel.checkpoint()
    assert (reasons, interrupts.exit_code, left) == ([StopReason.SIGHUP], 129, [])


async def test_a_second_signal_leaves_at_once(left: list[int]) -> None:
    async def stop(reason: StopReason) -> None:
        strike(signal.SIGTERM)

    async def block() -> None:
        async with open_interrupts(1) as interrupts:
            await interrupts.running(stop)
            strike(signal.SIGINT)
            await anyio.sleep_forever()

    with anyio.fail_after(5), pytest.raises(BaseExceptionGroup) as raised:
        await block()
    assert raised.group_contains(LeftError)
    assert left == [143]


async def test_a_second_signal_is_heard_while_a_cancelled_block_winds_up(left: list[int]) -> None:
    async def block() -> None:
        async with open_interrupts(1):
            try:
                strike()
                await anyio.sleep_forever()
            finally:
                strike()
                with anyio.move_on_after(5, shield=True):
                    while not left:
                        await anyio.lowlevel.checkpoint()

    with pytest.raises(BaseExceptionGroup):
        await block()
    assert left == [130]


async def test_a_run_that_does_not_stop_in_time_is_left(left: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "GRACE_SECONDS", 0.01)

    async def stop(reason: StopReason) -> None:
        pass

    async def block() -> None:
        async with open_interrupts(0.01) as interrupts:
            await interrupts.running(stop)
            strike()
            await anyio.sleep_forever()

    with anyio.fail_after(5), pytest.raises(BaseExceptionGroup):
        await block()
    assert left == [130]


async def test_once_all_has_settled_a_signal_ends_the_block_again(left: list[int]) -> None:
    async def stop(reason: StopReason) -> None:
        raise AssertionError("there is nothing left to stop")

    with anyio.fail_after(5):
        async with open_interrupts(1) as interrupts:
            await interrupts.running(stop)
            interrupts.settled()
            strike()
            await anyio.sleep_forever()
    assert left == []


async def test_handlers_are_what_they_were_afterwards(left: list[int]) -> None:
    before = [signal.getsignal(each) for each in interrupt.SIGNALS]
    async with open_interrupts(1):
        assert signal.getsignal(signal.SIGTERM) is not before[1]
    assert [signal.getsignal(each) for each in interrupt.SIGNALS] == before
