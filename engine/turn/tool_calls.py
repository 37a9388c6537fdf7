"""The tool calls of one response: checked first, then run, the safe ones together, results in call order.

A failed tool is data for the model: bad arguments, unknown names, duplicate ids and exceptions all become error
results (design, 6). A call whose turn has been stopped is not started, also when the one before it swallowed the
cancel and returned as if nothing had happened.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

import anyio

from engine.broker.broker import Broker
from engine.codec import clean_text, from_json
from engine.event import ToolEnded, ToolStarted
from engine.ids import new_id
from engine.limits import TOOL_TEXT_MAX
from engine.message import ToolCallPart, ToolResultPart
from engine.model.base import RawToolCall
from engine.tools.base import Tool, ToolContext, ToolError, ToolOutput
from engine.turn.context import legal_tool_name
from engine.turn.record import CheckedCall
from engine.turn.stop import StopSignal

logger = logging.getLogger(__name__)

CONCURRENT_MAX = 8
"""Read-only calls of one response that run at the same time."""

SUMMARY_MAX = 120
"""Characters of a result that its event shows."""


def check_calls(raw: Sequence[RawToolCall], tools: Mapping[str, Tool], used_ids: set[str]) -> list[CheckedCall]:
    """The calls as they go into the history: unique ids, JSON objects as arguments, a problem where there is one."""
    checked: list[CheckedCall] = []
    given_ids: set[str] = set()
    for call in raw:
        call_id = clean_text(call.call_id)
        problem = None
        if call_id in given_ids:
            problem = f"duplicate call id {call_id!r}: not run; give each call an id of its own"
        elif call_id:
            given_ids.add(call_id)
        # An id of an earlier turn is no fault, providers count anew; it only needs to be another one here.
        if not call_id or call_id in used_ids:
            call_id = new_id("call")
        used_ids.add(call_id)
        arguments, bad_arguments = _arguments(call.arguments)
        name = legal_tool_name(call.name)
        if call.name not in tools:
            known = ", ".join(tools) or "none"
            problem = problem or f"there is no tool {clean_text(call.name)!r}; the tools are: {known}"
        problem = problem or bad_arguments
        text = clean_text(call.arguments) if not bad_arguments and call.arguments.strip() else "{}"
        checked.append(CheckedCall(ToolCallPart(call_id, name, text), arguments, problem))
    return checked


class ToolRunner:
    """Runs the checked calls of one turn."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        context: ToolContext,
        stop: StopSignal,
        broker: Broker,
        *,
        run_id: str | None,
        session_id: str,
    ) -> None:
        self._tools = tools
        self._context = context
        self._stop = stop
        self._broker = broker
        self._run_id = run_id
        self._session_id = session_id

    def batches(self, calls: Sequence[CheckedCall]) -> Iterator[list[CheckedCall]]:
        """Neighbours that change nothing go together; a call that may change something goes alone."""
        batch: list[CheckedCall] = []
        for call in calls:
            is_safe = call.problem is not None or self._tools[call.part.name].is_read_only
            if batch and not is_safe:
                yield batch
                batch = []
            batch.append(call)
            if not is_safe:
                yield batch
                batch = []
        if batch:
            yield batch

    async def run_batch(self, calls: Sequence[CheckedCall]) -> None:
        """Give each call its result.

        Raises:
            TurnStoppedError: the turn was stopped; calls without a result have not been, or not wholly, run.
        """
        self._stop.check()
        limiter = anyio.CapacityLimiter(CONCURRENT_MAX)
        async with anyio.create_task_group() as tasks:
            for call in calls:
                tasks.start_soon(self._run_call, call, limiter, name=f"tool {call.part.name}")
        self._stop.check()
        for call in calls:
            if call.result is None:
                # A library in the tool cancelled its own task, which no scope of ours asked for (K8): the call failed.
                self._end(call, _failure("the tool was interrupted from inside; it may have had an effect"))

    async def _run_call(self, call: CheckedCall, limiter: anyio.CapacityLimiter) -> None:
        part = call.part
        async with limiter:
            if self._stop.reason is not None:
                return
            self._broker.publish(ToolStarted(self._run_id, self._session_id, part.call_id, part.name, part.arguments))
            if call.problem is not None:
                output = _failure(call.problem)
            else:
                call.has_begun = True
                output = await self._output_of(call)
        self._end(call, output)

    def _end(self, call: CheckedCall, output: ToolOutput) -> None:
        """Give the call its result and announce it."""
        part, text = call.part, clean_text(output.text)
        call.result = ToolResultPart(part.call_id, part.name, text or "(no output)", output.is_error, output.size)
        lines = text.strip().splitlines()
        summary = lines[0][:SUMMARY_MAX] if lines else ""
        self._broker.publish(
            ToolEnded(self._run_id, self._session_id, part.call_id, part.name, output.is_error, summary)
        )

    async def _output_of(self, call: CheckedCall) -> ToolOutput:
        """The tool's output; whatever it raises becomes an error text. One of the three walls (style, 6)."""
        try:
            return await self._tools[call.part.name].run(call.arguments, self._context)
        except ToolError as error:
            return _failure(str(error))
        # SystemExit too: raised in a task of the loop it would end the whole process, completion unsaid.
        except (Exception, SystemExit) as error:
            logger.exception("tool %s failed", call.part.name)
            return _failure(f"{type(error).__name__}: {error}")


def _failure(text: str) -> ToolOutput:
    """An error for the model; an exception's text can be of any length, and a stored one is bounded (design, 7)."""
    return ToolOutput(text[:TOOL_TEXT_MAX], len(text.encode("utf-8", "replace")), is_error=True)


def _arguments(raw: str) -> tuple[dict[str, object], str | None]:
    """The arguments as an object, and what is wrong with them."""
    if not raw.strip():
        return {}, None
    try:
        value = from_json(raw)
    except ValueError as error:
        return {}, f"the arguments are not valid JSON ({error}): not run; send them again as one JSON object"
    if not isinstance(value, dict):
        return {}, "the arguments are not a JSON object: not run; send them again as one JSON object"
    return value, None
