"""Running the calls of one response: safe ones together, results in call order, whatever a tool does (design, 6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from engine.broker.broker import Broker
from engine.event import ToolEnded, ToolStarted
from engine.lifecycle import RunState
from engine.limits import TOOL_TEXT_MAX
from engine.message import ToolResultPart
from engine.model.base import RawToolCall
from engine.run import StopReason
from engine.tools.base import ToolContext, ToolError
from engine.turn.record import CheckedCall
from engine.turn.stop import StopSignal, TurnStoppedError
from engine.turn.tool_calls import CONCURRENT_MAX, SUMMARY_MAX, ToolRunner, check_calls
from tests.fakes import FakeModel, FakeTool, Gate, calls, echo, opened, request, says
from tests.turn.tools import stored_results

pytestmark = pytest.mark.anyio


class Bench:
    """A runner of one tool, and the calls of it."""

    def __init__(self, function: Callable[[dict[str, Any]], Awaitable[str]], *, count: int = 1) -> None:
        self.tool = FakeTool("tool", function)
        self.stop = StopSignal()
        self.broker = Broker()
        self.events = self.broker.subscribe()
        self.runner = ToolRunner(
            {"tool": self.tool},
            ToolContext(Path("/"), Path("/nonexistent")),
            self.stop,
            self.broker,
            run_id="r1",
            session_id="s1",
        )
        raw = [RawToolCall(f"call-{number}", "tool", f'{{"n": {number}}}') for number in range(count)]
        self.calls: list[CheckedCall] = check_calls(raw, {"tool": self.tool}, set())

    async def run(self) -> list[ToolResultPart | None]:
        with anyio.fail_after(5):
            await self.runner.run_batch(self.calls)
        return [call.result for call in self.calls]

    def ended(self) -> list[str]:
        """Call ids in the order in which they were announced as ended."""
        found = []
        while (event := self.events.next_nowait()) is not None:
            if isinstance(event, ToolEnded):
                found.append(event.call_id)
        return found


async def test_results_are_saved_in_call_order_whatever_the_order_of_finishing() -> None:
    """E15, FIX-30."""
    gates = [Gate() for _ in range(3)]

    async def hold(arguments: dict[str, Any]) -> str:
        await gates[arguments["n"]].hold()
        return f"result {arguments['n']}"

    model = FakeModel(calls(*[("hold", {"n": number}) for number in range(3)]), says("done"))
    ended = []
    with anyio.fail_after(5):
        async with opened(model, FakeTool("hold", hold)) as engine:
            with engine.subscribe() as events:
                session_id = (await engine.submit(request(tools=["hold"]))).session_id
                for gate in gates:
                    await gate.reached.wait()  # all three are going on at once
                for number in (2, 0, 1):
                    gates[number].open()
                    async for event in events:
                        if isinstance(event, ToolEnded):
                            ended.append(event.call_id)
                            break
            await engine.wait("r1")
            assert ended == ["call-hold-2", "call-hold-0", "call-hold-1"]
            texts = [result.text for result in await stored_results(engine, session_id)]
            assert texts == ["result 0", "result 1", "result 2"]
            sent = [part.text for each in model.requests[1].messages for part in each.parts_of(ToolResultPart)]
            assert sent == texts


async def test_call_that_may_change_something_runs_alone_and_in_its_place() -> None:
    going_on: set[int] = set()
    met: dict[int, set[int]] = {}
    order: list[int] = []

    async def note(arguments: dict[str, Any]) -> str:
        number = arguments["n"]
        order.append(number)
        going_on.add(number)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
            met[number] = met.get(number, set()) | going_on
        going_on.remove(number)
        return "ok"

    asked = [("look", {"n": 0}), ("look", {"n": 1}), ("change", {"n": 2}), ("change", {"n": 3}), ("look", {"n": 4})]
    model = FakeModel(calls(*asked), says("done"))
    tools = FakeTool("look", note), FakeTool("change", note, is_read_only=False)
    with anyio.fail_after(5):
        async with opened(model, *tools) as engine:
            await engine.submit(request(tools=["look", "change"]))
            assert (await engine.wait("r1")).status is RunState.COMPLETED
    assert (met[2], met[3], met[4]) == ({2}, {3}, {4})
    assert met[0] | met[1] == {0, 1}
    assert set(order[:2]) == {0, 1}
    assert order[2:] == [2, 3, 4]


async def test_no_more_than_the_limit_run_at_once_and_all_run() -> None:
    going_on, most = 0, 0

    async def count(_arguments: dict[str, Any]) -> str:
        nonlocal going_on, most
        going_on += 1
        most = max(most, going_on)
        await anyio.lowlevel.checkpoint()
        going_on -= 1
        return "ok"

    bench = Bench(count, count=3 * CONCURRENT_MAX)
    assert all(result is not None and result.text == "ok" for result in await bench.run())
    assert most == CONCURRENT_MAX


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ToolError("no such file: a"), "no such file: a"),
        (RuntimeError("broken"), "RuntimeError: broken"),
        (TimeoutError("slow"), "TimeoutError: slow"),
        (SystemExit(3), "SystemExit: 3"),
        (FileNotFoundError("caf\udce9"), "FileNotFoundError: caf\ufffd"),
        (ExceptionGroup("both", [ValueError("x")]), "ExceptionGroup: both (1 sub-exception)"),
    ],
)
async def test_whatever_a_tool_raises_is_an_error_result(error: BaseException, text: str) -> None:
    """K18: a tool's own TimeoutError is its failure, not our deadline; exit is no way out of the process."""

    async def fail(arguments: dict[str, Any]) -> str:
        if arguments["n"] == 0:
            raise error
        return "fine"

    bench = Bench(fail, count=2)
    bad, good = await bench.run()
    assert bad is not None
    assert (bad.text, bad.is_error) == (text, True)
    assert good is not None
    assert (good.text, good.is_error) == ("fine", False)


async def test_failing_tool_does_not_end_the_run() -> None:
    async def fail(_arguments: dict[str, Any]) -> str:
        raise SystemExit(1)

    model = FakeModel(calls(("fail", {}), ("nothing", {}), ("fail", "nonsense")), says("I see"))
    with anyio.fail_after(5):
        async with opened(model, FakeTool("fail", fail)) as engine:
            session_id = (await engine.submit(request(tools=["fail"]))).session_id
            completion = await engine.wait("r1")
            assert (completion.status, completion.text, completion.exit_code) == (RunState.COMPLETED, "I see", 0)
            results = await stored_results(engine, session_id)
            assert [result.is_error for result in results] == [True] * 3
            beginnings = ("SystemExit", "there is no tool 'nothing'", "the arguments are not valid JSON")
            for result, beginning in zip(results, beginnings, strict=True):
                assert result.text.startswith(beginning)


async def test_tool_that_cancels_its_own_task_has_a_result_too() -> None:
    """K8: on asyncio a library may raise the loop's own cancellation; trio knows no such thing, and calls it a bug."""

    async def cancel_myself(arguments: dict[str, Any]) -> str:
        if arguments["n"] == 0:
            raise anyio.get_cancelled_exc_class()()  # noqa: RSE102 - the class comes from a call
        return "fine"

    bench = Bench(cancel_myself, count=2)
    bad, good = await bench.run()
    assert bad is not None
    assert bad.is_error
    assert good is not None
    assert good.text == "fine"
    assert sorted(bench.ended()) == ["call-0", "call-1"], "each that began is said to have ended"


async def test_error_text_of_any_length_is_bounded_and_its_true_size_kept() -> None:
    async def fail(_arguments: dict[str, Any]) -> str:
        raise RuntimeError("x" * 100_000)

    (result,) = await Bench(fail).run()
    assert result is not None
    assert len(result.text) == TOOL_TEXT_MAX
    assert result.size == len("RuntimeError: ") + 100_000


async def test_result_that_says_nothing_is_told_as_no_output() -> None:
    async def silent(_arguments: dict[str, Any]) -> str:
        return ""

    (result,) = await Bench(silent).run()
    assert result is not None
    assert result.text == "(no output)"


async def test_announcements_are_clean_and_one_short_line() -> None:
    async def talk(_arguments: dict[str, Any]) -> str:
        return "\n\ud800" + "x" * 500 + "\nsecond line"

    bench = Bench(talk)
    await bench.run()
    started, ended = bench.events.next_nowait(), bench.events.next_nowait()
    assert isinstance(started, ToolStarted)
    assert (started.call_id, started.arguments) == ("call-0", '{"n": 0}')
    assert isinstance(ended, ToolEnded)
    assert ended.summary == "\ufffd" + "x" * (SUMMARY_MAX - 1)


async def test_no_tool_starts_once_the_turn_is_stopped() -> None:
    bench = Bench(echo, count=2)
    bench.stop.request(StopReason.CANCEL)
    with pytest.raises(TurnStoppedError):
        await bench.run()
    assert (bench.tool.started, bench.events.next_nowait()) == (0, None)


async def test_those_that_wait_for_a_place_do_not_start_after_a_stop() -> None:
    """No scope is cancelled here: the check alone must hold, as it must when a tool swallows the cancel."""
    gate, going_on = Gate(), 0
    all_in = anyio.Event()

    async def hold(_arguments: dict[str, Any]) -> str:
        nonlocal going_on
        going_on += 1
        if going_on == CONCURRENT_MAX:
            all_in.set()
        await gate.hold()
        return "ended by itself"

    bench = Bench(hold, count=CONCURRENT_MAX + 4)

    async def run() -> None:
        with pytest.raises(TurnStoppedError):
            await bench.run()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await all_in.wait()
            bench.stop.request(StopReason.CANCEL)
            gate.open()
    assert bench.tool.started == CONCURRENT_MAX
    ended = [call for call in bench.calls if call.result is not None]
    assert len(ended) == CONCURRENT_MAX, "what ended by itself before it was interrupted keeps its result"
    assert sum(call.has_begun for call in bench.calls) == CONCURRENT_MAX


async def test_cancel_of_a_crowd_that_swallows_it_starts_nobody_new() -> None:
    """M11: of twelve calls eight are going on; all eight answer the cancel with a result as if nothing had been."""
    going_on = 0
    all_in = anyio.Event()

    async def swallow(_arguments: dict[str, Any]) -> str:
        nonlocal going_on
        going_on += 1
        if going_on == CONCURRENT_MAX:
            all_in.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return "swallowed"
        return "never"

    tool = FakeTool("swallow", swallow)
    model = FakeModel(calls(*[("swallow", {})] * (CONCURRENT_MAX + 4)))
    with anyio.fail_after(5):
        async with opened(model, tool) as engine:
            session_id = (await engine.submit(request(tools=["swallow"]))).session_id
            await all_in.wait()
            await engine.cancel_run("r1")
            assert (await engine.wait("r1")).status is RunState.CANCELLED
            assert (tool.started, len(model.requests)) == (CONCURRENT_MAX, 1)
            texts = sorted(result.text[:9] for result in await stored_results(engine, session_id))
            assert texts == ["not run: "] * 4 + ["swallowed"] * CONCURRENT_MAX
