"""One model call to a whole response: attempts, drafts, usage, cuts and stalls (design, 6)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

import anyio
import pytest
import trio.testing

from engine.broker.broker import Broker, Subscription
from engine.event import ReasoningDelta, RetryScheduled, TextDelta
from engine.limits import RunLimits
from engine.model.base import (
    FaultKind,
    ModelEvent,
    ModelFault,
    ModelFinish,
    ModelRequest,
    ReasoningChunk,
    ResponseEnd,
    TextChunk,
    ToolCallChunk,
)
from engine.run import StopReason, Usage
from engine.turn.ask import Asker
from engine.turn.guard import GuardedModel
from engine.turn.record import TurnRecord
from engine.turn.stop import StopSignal, TurnStoppedError
from tests.fakes import USAGE, FakeModel, Gate, Item, says

pytestmark = pytest.mark.anyio

NOTHING = ModelRequest(())
BUSY = ModelFault(FaultKind.RATE_LIMIT, "busy", retry_after_seconds=0)
CUT = ModelFault(FaultKind.CUT, "cut", retry_after_seconds=0)


class Bench:
    """An asker around a model, its ledger, and what it announces; next to no time is left, so no backoff is long."""

    def __init__(self, model: Any, *, remaining: Callable[[], float | None] = lambda: 0.001, **limits: Any) -> None:
        self.record = TurnRecord()
        self.stop = StopSignal()
        self.broker = Broker()
        self.events: Subscription = self.broker.subscribe()
        self.asker = Asker(
            GuardedModel(model, self.stop),
            self.broker,
            self.record,
            RunLimits(**limits),
            run_id="r1",
            session_id="s1",
            remaining=remaining,
        )

    async def ask(self, bound_seconds: float = 5) -> ResponseEnd:
        with anyio.fail_after(bound_seconds):
            return await self.asker.ask(NOTHING)

    def heard(self, kind: type[Any]) -> list[Any]:
        found = []
        while (event := self.events.next_nowait()) is not None:
            if isinstance(event, kind):
                found.append(event)
        return found

    @property
    def draft(self) -> str:
        return "".join(self.record.draft_text)


async def test_whole_response_is_announced_as_it_comes_and_left_in_the_draft() -> None:
    model = FakeModel([ReasoningChunk("hm"), TextChunk("Hel"), ToolCallChunk(0, 5), TextChunk("lo\x00"), *says("!")])
    bench = Bench(model)
    end = await bench.ask()
    assert end.finish is ModelFinish.STOP
    assert bench.draft == "Hello\x00!"
    assert bench.record.draft_reasoning == ["hm"]
    heard = bench.heard((TextDelta, ReasoningDelta))  # type: ignore[arg-type]
    assert [event.text for event in heard] == ["hm", "Hel", "lo\ufffd", "!"], "what is announced is clean"
    assert model.in_flight == 0


@pytest.mark.parametrize("kind", [FaultKind.CONNECT, FaultKind.RATE_LIMIT, FaultKind.SERVER, FaultKind.MALFORMED])
async def test_new_attempt_starts_from_an_empty_draft(kind: FaultKind) -> None:
    """A25: never glued text; J87."""
    first: list[Item] = [ReasoningChunk("hm"), TextChunk("Hel"), ModelFault(kind, "lost", retry_after_seconds=0)]
    bench = Bench(FakeModel(first, says("Hello")))
    await bench.ask()
    assert (bench.draft, bench.record.draft_reasoning, bench.record.retries) == ("Hello", [], 1)
    assert bench.heard(RetryScheduled) == [RetryScheduled("r1", "s1", 1, 0, "lost")]


async def test_usage_counts_each_whole_response_once() -> None:
    bench = Bench(FakeModel([TextChunk("x"), CUT], [BUSY], says("one"), says("two")))
    await bench.ask()
    assert bench.record.usage == USAGE
    await bench.ask()
    assert bench.record.usage == USAGE + USAGE


async def test_response_without_usage_counts_nothing() -> None:
    bench = Bench(FakeModel([TextChunk("x"), ResponseEnd(ModelFinish.STOP)]))
    await bench.ask()
    assert bench.record.usage == Usage()


async def test_attempts_are_bounded_and_the_last_draft_is_kept() -> None:
    answers: list[list[Item]] = [[TextChunk(f"try {number}"), CUT] for number in range(3)]
    model = FakeModel(*answers)
    bench = Bench(model, retries_max=2)
    with pytest.raises(ModelFault, match=r"cut \(after 3 attempts\)"):
        await bench.ask()
    assert (len(model.requests), bench.record.retries, bench.draft) == (3, 2, "try 2")
    assert bench.record.usage == Usage()


@pytest.mark.parametrize("kind", [FaultKind.AUTH, FaultKind.REFUSED, FaultKind.CONTEXT_OVERFLOW, FaultKind.CONFIG])
async def test_fault_that_will_not_pass_is_not_tried_again(kind: FaultKind) -> None:
    model = FakeModel([ModelFault(kind, "no")])
    bench = Bench(model)
    with pytest.raises(ModelFault, match=r"^no$"):
        await bench.ask()
    assert (len(model.requests), bench.record.retries) == (1, 0)


async def test_stream_without_its_end_is_a_cut_and_tried_again() -> None:
    """Nothing runs from a response that is not whole."""
    bench = Bench(FakeModel([TextChunk("Hel")], says("Hello")))
    await bench.ask()
    assert (bench.draft, bench.record.retries) == ("Hello", 1)
    bench = Bench(FakeModel([TextChunk("Hel")]), retries_max=0)
    with pytest.raises(ModelFault) as caught:
        await bench.ask()
    assert caught.value.kind is FaultKind.CUT
    assert bench.draft == "Hel"


async def test_stall_ends_the_attempt_closes_its_stream_and_is_tried_again() -> None:
    gate = Gate()
    model = FakeModel([TextChunk("Hel"), gate], says("Hello"))
    bench = Bench(model, idle_seconds=0.02)
    await bench.ask()
    assert gate.reached.is_set()
    assert (bench.draft, bench.record.retries, model.in_flight, model.most_in_flight) == ("Hello", 1, 0, 1)
    (retry,) = bench.heard(RetryScheduled)
    assert "no progress for 0.02 s (--idle-timeout)" in retry.error


async def test_retry_after_beyond_the_runs_limit_is_not_waited_for() -> None:
    model = FakeModel([ModelFault(FaultKind.RATE_LIMIT, "busy", retry_after_seconds=200)])
    bench = Bench(model, remaining=lambda: 100.0)
    with pytest.raises(ModelFault, match="200 s"):
        await bench.ask()
    assert (len(model.requests), bench.record.retries) == (1, 0)


async def test_stop_in_mid_stream_is_not_taken_for_a_fault() -> None:
    """No attempt follows a stop, whatever the stop made of the stream."""
    gate = Gate()
    model = FakeModel([TextChunk("Hel"), gate, *says("never")])
    bench = Bench(model)
    caught: list[BaseException] = []

    async def ask() -> None:
        try:
            await bench.ask()
        except TurnStoppedError as error:
            caught.append(error)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await gate.reached.wait()
            bench.stop.request(StopReason.CANCEL)
            gate.open()
    assert len(caught) == 1
    assert (len(model.requests), bench.record.retries, bench.draft) == (1, 0, "Hel")


class SlowModel(FakeModel):
    """Writes a long tool call, one fragment every `pause_seconds`, then ends."""

    def __init__(self, fragments: int, pause_seconds: float) -> None:
        super().__init__()
        self._fragments = fragments
        self._pause_seconds = pause_seconds

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        for size in range(self._fragments):
            await anyio.sleep(self._pause_seconds)
            yield ToolCallChunk(0, size)
        yield ResponseEnd(ModelFinish.STOP, usage=USAGE)


class TestOnAClockOfItsOwn:
    """Trio's clock jumps to the next deadline as soon as all wait: minutes pass, and no test waits for them."""

    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}

    async def test_patience_is_counted_anew_from_each_sign_of_progress(self) -> None:
        """A tool call that takes minutes to write is no stall, though no text comes."""
        bench = Bench(SlowModel(30, pause_seconds=100), retries_max=0, idle_seconds=120)
        end = await bench.ask(5000)
        assert end.finish is ModelFinish.STOP
        assert anyio.current_time() >= 3000 - 1

    async def test_silence_longer_than_the_limit_is_a_stall(self) -> None:
        started = anyio.current_time()
        bench = Bench(SlowModel(30, pause_seconds=121), retries_max=0, idle_seconds=120)
        with pytest.raises(ModelFault) as caught:
            await bench.ask(5000)
        assert caught.value.kind is FaultKind.STALL
        assert anyio.current_time() - started == pytest.approx(120)

    async def test_servers_wish_is_waited_out_and_not_less(self) -> None:
        model = FakeModel([ModelFault(FaultKind.RATE_LIMIT, "busy", retry_after_seconds=250)], says("Hello"))
        started = anyio.current_time()
        await Bench(model, remaining=lambda: None).ask(5000)
        assert anyio.current_time() - started == pytest.approx(250)

    async def test_default_attempts_are_over_within_the_sum_of_their_backoffs(self) -> None:
        model = FakeModel(*[[ModelFault(FaultKind.SERVER, "ill")] for _ in range(5)])
        started = anyio.current_time()
        with pytest.raises(ModelFault, match="after 5 attempts"):
            await Bench(model, remaining=lambda: None).ask(5000)
        assert anyio.current_time() - started <= 0.5 + 1 + 2 + 4
