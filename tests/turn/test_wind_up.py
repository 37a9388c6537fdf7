"""The end of a turn with tools: what they changed, what they left running, and the cleanups that end it (design, 8)."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest
import trio.testing

from engine.dispatch.worker import WIND_UP_SECONDS
from engine.lifecycle import RunState
from engine.model.base import FaultKind, ModelFault
from engine.run import StopReason
from engine.tools.base import ToolContext
from tests.fakes import FakeModel, Gate, calls, opened, request, says
from tests.turn.scenario import finish
from tests.turn.tools import ContextTool

pytestmark = pytest.mark.anyio


async def test_files_changed_and_what_was_left_running_reach_the_completion() -> None:
    async def work(arguments: dict[str, Any], context: ToolContext) -> str:
        context.note_change(context.cwd / arguments["path"])
        context.note_change(context.cwd / "twice")

        async def end_child() -> None:
            context.unfinished.append(f"sleep for {arguments['path']}")

        context.at_end.append(end_child)
        return "ok"

    model = FakeModel(calls(("work", {"path": "a"})), calls(("work", {"path": "caf\u00e9/b"})), says("done"))
    with anyio.fail_after(5):
        async with opened(model, ContextTool("work", work, is_read_only=False)) as engine:
            completion, _ = await finish(engine, "work")
    assert completion.files_changed == ("a", "twice", "caf\u00e9/b")
    assert completion.unfinished == ("sleep for a", "sleep for caf\u00e9/b"), "the cleanups ran before the report"
    assert completion.exit_code == 0


async def test_file_whose_name_is_no_text_is_reported_in_a_form_that_any_output_takes() -> None:
    async def work(_arguments: dict[str, Any], context: ToolContext) -> str:
        context.note_change(context.cwd / "caf\udce9")
        return "ok"

    with anyio.fail_after(5):
        async with opened(FakeModel(calls(("work", {})), says("done")), ContextTool("work", work)) as engine:
            completion, _ = await finish(engine, "work")
            record = await engine.find_run("r1")
    assert completion.files_changed == ("caf\ufffd",)
    assert record is not None
    assert record.completion == completion


@pytest.mark.parametrize("how", ["completes", "fails", "is cancelled", "times out"])
async def test_cleanups_run_once_whatever_the_outcome(how: str) -> None:
    """They may wait, also in a turn that has been cancelled: they are shielded."""
    gate, ended = Gate(), []

    async def work(_arguments: dict[str, Any], context: ToolContext) -> str:
        async def end_child() -> None:
            await anyio.lowlevel.checkpoint()
            ended.append("child")
            context.unfinished.append("child")

        context.at_end.append(end_child)
        context.note_change(context.cwd / "a")
        return "ok"

    second = {
        "completes": says("done"),
        "fails": [ModelFault(FaultKind.REFUSED, "no")],
        "is cancelled": [gate],
        "times out": [gate],
    }[how]
    status = {"completes": RunState.COMPLETED, "is cancelled": RunState.CANCELLED}.get(how, RunState.FAILED)
    limits = {"timeout_seconds": 0.05} if how == "times out" else {}
    with anyio.fail_after(5):
        async with opened(FakeModel(calls(("work", {})), second), ContextTool("work", work)) as engine:
            await engine.submit(request(tools=["work"], **limits))
            if how == "is cancelled":
                await gate.reached.wait()
                await engine.cancel_run("r1", StopReason.CANCEL)
            completion = await engine.wait("r1")
    assert completion.status is status
    assert ended == ["child"]
    assert (completion.unfinished, completion.files_changed) == (("child",), ("a",))


@pytest.mark.parametrize("error", [RuntimeError("stuck"), SystemExit(1)])
async def test_cleanup_that_fails_costs_neither_the_others_nor_the_completion(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    ended = []

    async def work(_arguments: dict[str, Any], context: ToolContext) -> str:
        async def fail() -> None:
            raise error

        async def end_child() -> None:
            ended.append("child")

        context.at_end += [fail, end_child]
        return "ok"

    with anyio.fail_after(5), caplog.at_level(logging.ERROR):
        async with opened(FakeModel(calls(("work", {})), says("done")), ContextTool("work", work)) as engine:
            completion, _ = await finish(engine, "work")
    assert (completion.text, completion.exit_code, ended) == ("done", 0, ["child"])
    assert "winding up a turn" in caplog.text


async def test_cleanups_run_when_the_engine_is_cancelled_from_outside() -> None:
    gate, ended = Gate(), []

    async def work(_arguments: dict[str, Any], context: ToolContext) -> str:
        async def end_child() -> None:
            await anyio.lowlevel.checkpoint()
            ended.append("child")

        context.at_end.append(end_child)
        return "ok"

    with anyio.fail_after(5):
        with anyio.CancelScope() as scope:
            async with opened(FakeModel(calls(("work", {})), [gate]), ContextTool("work", work)) as engine:
                await engine.submit(request(tools=["work"]))
                await gate.reached.wait()
                scope.cancel()
                await anyio.sleep_forever()
    assert ended == ["child"]


class TestOnAClockOfItsOwn:
    """Trio's clock jumps to the next deadline as soon as all wait: five seconds pass, and no test waits for them."""

    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}

    async def test_cleanup_that_hangs_delays_the_completion_by_its_bound_only(self) -> None:
        gate, ended = Gate(), []

        async def work(_arguments: dict[str, Any], context: ToolContext) -> str:
            async def end_child() -> None:
                ended.append("child")

            context.at_end += [anyio.sleep_forever, end_child]
            return "ok"

        with anyio.fail_after(60):  # of the clock's own seconds
            async with opened(FakeModel(calls(("work", {})), [gate]), ContextTool("work", work)) as engine:
                await engine.submit(request(tools=["work"]))
                await gate.reached.wait()
                await engine.cancel_run("r1")
                cancelled_at = anyio.current_time()
                completion = await engine.wait("r1")
                assert anyio.current_time() - cancelled_at == pytest.approx(WIND_UP_SECONDS, abs=0.5)
        assert (completion.status, ended) == (RunState.CANCELLED, ["child"])
