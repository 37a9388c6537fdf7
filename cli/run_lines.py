"""`--input jsonl`: many runs in one process, requests and answers as lines (a batch, or a caller that stays)."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import anyio

from cli import exit_code, output_json, streams, wiring
from cli.interrupt import Interrupts, open_interrupts
from cli.line_reader import read_lines
from cli.progress import Progress
from cli.request_line import OrderLine, PromptLine, parse_line
from engine.client import Client
from engine.errors import EngineError, UsageError
from engine.ids import new_run_id
from engine.run import Prompt, RunRequest, StopReason

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from cli.run import RunPlan


async def run_lines(plan: RunPlan) -> int:
    """Take requests until the input ends, answer each, and return the code of the worst run."""
    code: list[int] = []
    settings = plan.settings
    async with open_interrupts(settings.save_seconds) as interrupts, wiring.open_client(settings) as client:
        wiring.end_startup()
        batch = _Batch(plan, client, interrupts)
        interrupts.accepting()
        await batch.run()
        interrupts.settled()
        code.append(batch.exit_code)
    return code[0] if code else interrupts.exit_code


class _Batch:
    """The requests in hand. One task reads and submits, in input order; one task for each run waits for its end."""

    def __init__(self, plan: RunPlan, client: Client, interrupts: Interrupts) -> None:
        self._plan = plan
        self._client = client
        self._interrupts = interrupts
        self._progress = Progress(is_quiet=plan.is_quiet, is_verbose=plan.is_verbose)
        self._reading = anyio.CancelScope()
        self._writing = anyio.Lock()
        self._is_stdout_closed = False
        self._worst = exit_code.OK

    @property
    def exit_code(self) -> int:
        """The batch's: a signal or a closed output before the worst of its runs."""
        if self._interrupts.signal is not None:
            return self._interrupts.exit_code
        return exit_code.STDOUT_CLOSED if self._is_stdout_closed else self._worst

    async def run(self) -> None:
        await self._interrupts.running(self._stop)
        if self._plan.notice:
            self._progress.note(self._plan.notice)
        async with anyio.create_task_group() as answers:
            await self._read(answers)
            # A request that was being accepted when the stop came is on record now, and is stopped like the others.
            if self._interrupts.signal is not None:
                await self._stop(self._interrupts.reason)
            elif self._is_stdout_closed:
                await self._stop(StopReason.STDOUT_CLOSED)

    async def _stop(self, reason: StopReason) -> None:
        self._reading.cancel()
        await self._client.cancel_all(reason)

    async def _read(self, answers: TaskGroup) -> None:
        async with aclosing(read_lines()) as lines:
            while not self._reading.cancel_called:
                line = None
                # Only the waiting for a line is cut short, never the accepting of one: it gets its answer.
                with anyio.CancelScope() as waiting:
                    self._reading = waiting
                    if self._interrupts.signal is not None or self._is_stdout_closed:
                        return
                    line = await anext(lines, None)
                if line is None:
                    return
                await self._take(*line, answers)

    async def _take(self, number: int, raw: bytes, answers: TaskGroup) -> None:
        try:
            request = parse_line(raw)
            if isinstance(request, PromptLine):
                await self._submit(number, request, answers)
            else:
                await self._obey(request)
        except UsageError as error:
            self._note_code(exit_code.USAGE)
            await self._write(output_json.error_line(number, str(error)))
        except EngineError as error:
            self._note_code(exit_code.FAILED)
            await self._write(output_json.error_line(number, str(error)))

    async def _submit(self, number: int, request: PromptLine, answers: TaskGroup) -> None:
        plan = self._plan
        run_id = request.run_id or new_run_id()
        await self._client.submit(
            RunRequest(
                prompt=Prompt(request.text),
                run_id=run_id,
                session_id=request.session_id,
                model=plan.model,
                system=plan.system,
                tools=plan.tools,
                limits=plan.limits,
                cwd=plan.cwd,
            )
        )
        answers.start_soon(self._answer, number, run_id, name=f"answer {run_id}")

    async def _obey(self, request: OrderLine) -> None:
        match request.order:
            case "cancel":
                await self._client.cancel_run(request.target)
            case "cancel_session":
                await self._client.cancel(request.target)
            case _:
                await self._client.clear_queue(request.target)

    async def _answer(self, number: int, run_id: str) -> None:
        try:
            completion = await self._client.wait(run_id)
        except EngineError as error:
            self._note_code(exit_code.FAILED)
            await self._write(output_json.error_line(number, f"run {run_id}: {error}"))
            return
        self._note_code(completion.exit_code)
        await self._write(output_json.complete_line(completion, line=number))

    def _note_code(self, code: int) -> None:
        self._worst = exit_code.worst((self._worst, code))

    async def _write(self, line: bytes) -> None:
        if self._is_stdout_closed:
            return
        async with self._writing:
            try:
                await streams.write(line)
            except BrokenPipeError:
                self._is_stdout_closed = True
        if self._is_stdout_closed:
            await self._stop(StopReason.STDOUT_CLOSED)
