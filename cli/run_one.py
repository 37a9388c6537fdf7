"""One run, from its prompt to its exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from cli import exit_code, output_json, output_text, streams, wiring
from cli.follow import follow
from cli.interrupt import Interrupts, open_interrupts
from cli.progress import Progress
from cli.prompt import make_prompt
from engine.client import Admission, Client, Submitted
from engine.errors import UsageError
from engine.event import Event, ReasoningDelta, TextDelta
from engine.ids import new_run_id
from engine.run import RunComplete, RunRequest, StopReason

if TYPE_CHECKING:
    from cli.run import RunPlan


async def run_one(plan: RunPlan) -> int:
    """Run the plan's prompt; the exit code is the completion's, unless a signal or a closed output came first."""
    code: list[int] = []
    async with open_interrupts(plan.settings.save_seconds) as interrupts:
        prompt = await make_prompt(plan.words, plan.files, plan.stdin)
        async with wiring.open_client(plan.settings) as client:
            wiring.end_startup()
            request = RunRequest(
                prompt=prompt,
                run_id=plan.run_id or new_run_id(),
                session_id=await find_session_id(client, plan),
                model=plan.model,
                system=plan.system,
                tools=plan.tools,
                limits=plan.limits,
                cwd=plan.cwd,
            )
            code.append(await _OneRun(plan, client, interrupts).run(request))
    return code[0] if code else interrupts.exit_code


async def find_session_id(client: Client, plan: RunPlan) -> str | None:
    """The session that the flags name, None for a new one.

    Raises:
        UsageError: `--continue`, and there is no session yet.
    """
    if not plan.is_continued:
        return plan.session_id
    latest = await client.list_sessions(limit=1)
    if not latest:
        raise UsageError("--continue: there is no session in this store yet: leave it out to start one")
    return latest[0].session_id


class _OneRun:
    """The run while it goes on, and where its news are written."""

    def __init__(self, plan: RunPlan, client: Client, interrupts: Interrupts) -> None:
        self._plan = plan
        self._client = client
        self._interrupts = interrupts
        self._progress = Progress(is_quiet=plan.is_quiet, is_verbose=plan.is_verbose)
        self._run_id = ""
        self._is_stdout_closed = False

    async def run(self, request: RunRequest) -> int:
        assert request.run_id is not None
        self._run_id = request.run_id
        with self._client.subscribe(run_id=request.run_id) as subscription:
            self._interrupts.accepting()
            submitted = await self._client.submit(request)
            await self._interrupts.running(self._stop)
            await self._begin(submitted)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._progress.spin, name="spinner")
                completion = await follow(self._client, subscription, request.run_id, self._on_event)
                tasks.cancel_scope.cancel()
        self._progress.clear()
        self._interrupts.settled()
        return await self._end(completion, submitted)

    async def _stop(self, reason: StopReason) -> None:
        await self._client.cancel_run(self._run_id, reason)

    async def _begin(self, submitted: Submitted) -> None:
        if self._plan.output == "jsonl":
            await self._write_line(output_json.accepted_line(submitted))
        else:
            self._progress.note(f"run: {submitted.run_id}")
        if self._plan.notice:
            self._progress.note(self._plan.notice)
        if submitted.admission is Admission.ATTACHED:
            self._progress.note("attached: a run with this id is in flight; waiting for its end")
        elif submitted.admission is Admission.REPLAYED:
            self._progress.note("replayed: a run with this id has ended; this is its recorded result")

    async def _on_event(self, event: Event) -> None:
        if self._plan.output == "jsonl" and not isinstance(event, (TextDelta, ReasoningDelta)):
            await self._write_line(output_json.event_line(event))
        self._progress.show(event)

    async def _write_line(self, line: bytes) -> None:
        """Write a line; when nobody reads any more, the run is stopped, for nobody would see what it does."""
        if self._is_stdout_closed:
            return
        try:
            await streams.write(line)
        except BrokenPipeError:
            self._is_stdout_closed = True
            await self._client.cancel_run(self._run_id, StopReason.STDOUT_CLOSED)

    async def _end(self, completion: RunComplete, submitted: Submitted) -> int:
        self._write_file(completion)
        answer = _last_words(self._plan.output, completion)
        if self._plan.output == "jsonl":
            await self._write_line(answer)
        else:
            try:
                await streams.write(answer)
            except BrokenPipeError:
                self._is_stdout_closed = True
        if self._is_stdout_closed:
            return exit_code.STDOUT_CLOSED
        output_text.say_outcome(completion)
        if self._interrupts.signal is not None and submitted.admission is Admission.ATTACHED and completion.cancelled:
            return self._interrupts.exit_code  # its owner calls it a cancel by someone else; that was us
        return completion.exit_code

    def _write_file(self, completion: RunComplete) -> None:
        if self._plan.output_file is None:
            return
        is_json = self._plan.output == "json"
        from cli.output_file import write_output_file

        write_output_file(
            self._plan.output_file,
            output_json.json_line(completion) if is_json else output_text.answer_bytes(completion),
        )


def _last_words(output: str, completion: RunComplete) -> bytes:
    """What standard output gets once the run has ended."""
    if output == "jsonl":
        return output_json.complete_line(completion)
    if output == "json":
        return output_json.json_line(completion)
    return output_text.answer_bytes(completion)
