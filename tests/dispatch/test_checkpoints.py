"""A cancel at every checkpoint of a run, on both backends (M19, G-7).

The event loop itself is made to count: trio through an instrument, asyncio through a loop that counts what it runs. At
the k-th scheduling step the run is cancelled (or the session, or the whole scope around the engine), for every k until
the run ends before the k-th step. What must hold is the same each time.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - to count the loop's own steps
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
import trio

from engine.app import Engine
from engine.event import RunCompleted
from engine.lifecycle import SETTLED, RunState
from engine.message import Role, ToolCallPart, ToolResultPart
from engine.run import StopReason
from engine.store.memory import MemoryStore
from engine.turn.context import valid_history
from tests.fakes import FakeModel, FakeTool, calls, echo, opened, request, says


class Counter:
    """Counts scheduling steps once started; at number `at` it strikes."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.seen = 0
        self.strike: Callable[[], None] | None = None
        self.has_struck = False

    def step(self) -> None:
        if self.strike is None or self.has_struck:
            return
        self.seen += 1
        if self.seen == self.at:
            self.has_struck = True
            self.strike()


class CountingLoop(asyncio.SelectorEventLoop):
    """Tells the counter of every callback that it runs."""

    def __init__(self, counter: Counter) -> None:
        super().__init__()
        self._counter = counter

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        def counted(*given: Any) -> None:
            self._counter.step()
            callback(*given)

        return super().call_soon(counted, *args, context=context)


class Instrument(trio.abc.Instrument):
    """Tells the counter of every step of every task."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    def before_task_step(self, task: Any) -> None:
        self._counter.step()


def run_counted(backend: str, counter: Counter, scenario: Callable[[Counter], Awaitable[None]]) -> None:
    options: dict[str, Any] = (
        {"loop_factory": lambda: CountingLoop(counter)}
        if backend == "asyncio"
        else {"instruments": [Instrument(counter)]}
    )
    anyio.run(scenario, counter, backend=backend, backend_options=options)


class Target:
    """What is cancelled, and what must then be true of the run that was going on."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def strike(self, engine: Engine, session_id: str, scope: anyio.CancelScope) -> None:
        match self.kind:
            case "run":
                for run in engine.dispatcher.live_runs("r1"):
                    engine.dispatcher.cancel_run(run, StopReason.CANCEL)
            case "session":
                engine.dispatcher.cancel_session(session_id, StopReason.CANCEL)
            case _:
                scope.cancel()


async def scenario(counter: Counter, target: Target) -> None:
    """Two runs on one session, the first with tools; the counter strikes somewhere."""
    store = MemoryStore()
    model = FakeModel(says("start"), calls(("echo", {}), ("echo", {})), says("one"), says("two"), says("three"))
    calls_at_strike: list[int] = []
    accepted: list[str] = []
    session_id = ""
    with anyio.CancelScope() as scope:
        async with opened(model, FakeTool("echo", echo), store=store) as engine:
            events = engine.subscribe()
            session_id = (await engine.submit(request("start", run_id="start"))).session_id
            await engine.wait("start")

            def strike() -> None:
                calls_at_strike.append(len(model.requests))
                target.strike(engine, session_id, scope)

            counter.strike = strike
            await engine.submit(request("first", run_id="r1", session_id=session_id, tools=["echo"]))
            accepted.append("r1")
            await engine.submit(request("second", run_id="r2", session_id=session_id))
            accepted.append("r2")
            for run_id in accepted:
                await engine.wait(run_id)
            counter.strike = None
            if target.kind != "scope":
                await engine.submit(request("next", run_id="next", session_id=session_id))
                assert (await engine.wait("next")).status is RunState.COMPLETED, "the session goes on"
    told = [event.completion async for event in events if isinstance(event, RunCompleted)]
    await check(store, session_id, told, accepted)
    first = next((each for each in told if each.run_id == "r1"), None)
    if counter.has_struck and first is not None and first.cancelled:
        others = sum(each.steps for each in told if not each.cancelled and each.run_id != "start")
        assert len(model.requests) - others <= calls_at_strike[0], "no call of the cancelled run came after"


async def check(store: MemoryStore, session_id: str, told: list[Any], accepted: list[str]) -> None:
    ids = [each.run_id for each in told]
    assert len(ids) == len(set(ids)), "one completion each"
    assert set(accepted) <= set(ids), "whoever was accepted is answered"
    for completion in told:
        record = await store.find_run(completion.run_id)
        assert record is not None
        assert record.state in SETTLED
        assert record.completion == completion, "the store says what was told"
    history = await store.load_history(session_id)
    asked = [part.call_id for message in history for part in message.parts_of(ToolCallPart)]
    answered = [part.call_id for message in history for part in message.parts_of(ToolResultPart)]
    assert asked == answered, "each call has its one result, in order"
    positions = [m.parts_of(ToolResultPart) for m in valid_history(history) if m.role is Role.TOOL]
    assert sum(map(len, positions)) == len(asked)
    prompts = [message.text for message in history if message.role is Role.USER]
    assert len(prompts) == len(set(prompts)), "no prompt is kept twice"
    for completion in told:
        if completion.run_id == "r1" and completion.status is RunState.COMPLETED:
            assert completion.text == "one"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("kind", ["run", "session", "scope"])
@pytest.mark.timeout(120)
def test_cancel_at_every_checkpoint_leaves_nothing_open(backend: str, kind: str) -> None:
    at = 0
    while True:
        at += 1
        counter = Counter(at)
        target = Target(kind)

        async def bounded(counter: Counter, target: Target = target) -> None:
            with anyio.fail_after(5):
                await scenario(counter, target)

        try:
            run_counted(backend, counter, bounded)
        except BaseException as error:
            raise AssertionError(f"{kind} cancelled at step {at} on {backend}") from error
        if not counter.has_struck:
            break
    assert at > 20, f"only {at} steps were seen"
