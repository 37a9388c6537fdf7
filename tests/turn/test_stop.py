"""The stop button, and the model behind it: once pressed, a call fails instead of being issued (M11, D13)."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import pytest

from engine.model.base import ModelRequest, ResponseEnd, TextChunk
from engine.run import StopReason
from engine.turn.guard import GuardedModel
from engine.turn.stop import StopSignal, TurnStoppedError
from tests.fakes import FakeModel, says

pytestmark = pytest.mark.anyio

NOTHING = ModelRequest(())


async def test_first_reason_stays() -> None:
    stop = StopSignal()
    stop.check()
    assert stop.request(StopReason.SIGINT)
    assert not stop.request(StopReason.CANCEL)
    assert stop.reason is StopReason.SIGINT
    with pytest.raises(TurnStoppedError):
        stop.check()


async def test_press_interrupts_what_waits_in_the_scope() -> None:
    stop = StopSignal()
    with anyio.fail_after(5), stop.open_scope() as scope:
        stop.request(StopReason.CANCEL)
        await anyio.sleep_forever()
    assert scope.cancelled_caught


async def test_scope_opened_after_the_press_is_cancelled_from_the_start() -> None:
    stop = StopSignal()
    stop.request(StopReason.CANCEL)
    with stop.open_scope() as scope:
        await anyio.lowlevel.checkpoint()
        pytest.fail("it went on")
    assert scope.cancelled_caught


async def test_press_after_the_scope_has_ended_interrupts_nothing() -> None:
    """What happened beats what was asked."""
    stop = StopSignal()
    with stop.open_scope() as scope:
        pass
    stop.request(StopReason.CANCEL)
    await anyio.lowlevel.checkpoint()
    assert not scope.cancel_called


async def test_model_is_not_entered_once_the_turn_is_stopped() -> None:
    model, stop = FakeModel(says("never")), StopSignal()
    stop.request(StopReason.CANCEL)
    with pytest.raises(TurnStoppedError):
        await anext(GuardedModel(model, stop).stream(NOTHING))
    assert model.requests == []


async def test_model_is_not_entered_in_a_scope_whose_cancel_was_swallowed() -> None:
    """K4: code runs on to its next checkpoint, and a call is counted at its entry."""
    model = FakeModel(says("never"))
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.lowlevel.checkpoint()
        except anyio.get_cancelled_exc_class():
            pass  # what a tool of bad manners does
        await anext(GuardedModel(model, StopSignal()).stream(NOTHING))
    assert scope.cancelled_caught
    assert model.requests == []


async def test_no_event_passes_after_the_press_and_the_stream_is_closed_at_once() -> None:
    model, stop = FakeModel([TextChunk("one"), TextChunk("two"), *says("three")]), StopSignal()
    async with aclosing(GuardedModel(model, stop).stream(NOTHING)) as events:
        assert await anext(events) == TextChunk("one")
        assert model.in_flight == 1
        stop.request(StopReason.CANCEL)
        with pytest.raises(TurnStoppedError):
            await anext(events)
        assert model.in_flight == 0


async def test_model_that_is_not_stopped_says_all_it_has_to_say() -> None:
    model = FakeModel(says("one"))
    events = [event async for event in GuardedModel(model, StopSignal()).stream(NOTHING)]
    assert events[0] == TextChunk("one")
    assert isinstance(events[-1], ResponseEnd)
    assert (model.in_flight, len(events)) == (0, 2)
