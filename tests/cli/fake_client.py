"""A small engine in memory for the command line's tests: scripted answers, real sessions, one completion a run.

`FakeClient` implements `engine.client.Client` on anyio. Prompts say what happens: see `Script`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import anyio
from anyio.abc import TaskGroup

from engine.broker.broker import Broker, Subscription
from engine.client import Admission, CancelResult, SessionCancelled, Submitted
from engine.errors import RunIdConflictError, UnknownRunError, UnknownSessionError
from engine.event import Event, RunAccepted, RunCompleted, RunStarted
from engine.ids import new_session_id
from engine.lifecycle import FinishReason, RunState
from engine.run import Prompt, RunComplete, RunRecord, RunRequest, SessionRecord, StopReason

NOW = "2026-11-30T10:00:00.000000Z"
EXIT_CODES = {StopReason.SIGINT: 130, StopReason.SIGTERM: 143, StopReason.SIGHUP: 129, StopReason.STDOUT_CLOSED: 141}


@dataclass
class Script:
    """How a prompt is answered. `hangs`: until it is cancelled. `hook`: run when the turn starts."""

    text: str = "pong"
    changes: dict[str, object] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    hangs: bool = False
    hook: Callable[[], None] | None = None


@dataclass
class FakeRun:
    """A run while it lives and after."""

    request: RunRequest
    run_id: str
    session_id: str
    accept_seq: int
    script: Script
    done: anyio.Event
    stop: anyio.Event
    state: RunState = RunState.ACCEPTED
    reason: StopReason | None = None
    completion: RunComplete | None = None


class FakeClient:
    """An engine whose model is a dict from prompt to script."""

    def __init__(self, scripts: dict[str, Script] | None = None) -> None:
        self.scripts = scripts or {}
        self.broker = Broker()
        self.runs: dict[str, FakeRun] = {}
        self.requests: list[RunRequest] = []
        self.cancels: list[tuple[str, StopReason]] = []
        self.opened = 0
        self.on_submit: Callable[[], Awaitable[None]] | None = None
        self._tails: dict[str, anyio.Event] = {}
        self._tasks: TaskGroup | None = None

    @asynccontextmanager
    async def open(self, settings: object) -> AsyncIterator[FakeClient]:
        self.opened += 1
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield self
            finally:
                for run in self.runs.values():
                    self._stop(run, StopReason.SHUTDOWN)

    def add_run(self, run_id: str, prompt: str, **changes: object) -> None:
        """A run that has ended before."""
        request = RunRequest(Prompt(prompt), run_id=run_id, session_id="ses-old", model="openai/test")
        run = FakeRun(request, run_id, "ses-old", len(self.runs) + 1, Script(), anyio.Event(), anyio.Event())
        run.completion = RunComplete(**({"run_id": run_id, "session_id": "ses-old", "text": "old"} | changes))  # type: ignore[arg-type]
        run.state = run.completion.status
        self.runs[run_id] = run
        self._tails.setdefault("ses-old", anyio.Event()).set()

    def add_live_run(self, run_id: str, prompt: str) -> FakeRun:
        """A run of another process that goes on until it is cancelled."""
        request = RunRequest(Prompt(prompt), run_id=run_id, session_id="ses-far", model="openai/test")
        run = FakeRun(request, run_id, "ses-far", 77, Script(hangs=True), anyio.Event(), anyio.Event())
        run.state = RunState.ACTIVE
        self.runs[run_id] = run
        self._tails["ses-far"] = run.done
        return run

    async def submit(self, request: RunRequest) -> Submitted:
        self.requests.append(request)
        if self.on_submit is not None:
            await self.on_submit()
        assert request.run_id is not None
        if (old := self.runs.get(request.run_id)) is not None:
            return self._taken(old, request)
        if request.session_id is not None and request.session_id not in self._tails:
            raise UnknownSessionError(request.session_id)
        session_id = request.session_id or new_session_id()
        script = self.scripts.get(request.prompt.text, Script())
        run = FakeRun(request, request.run_id, session_id, len(self.runs) + 1, script, anyio.Event(), anyio.Event())
        self.runs[run.run_id] = run
        before, self._tails[session_id] = self._tails.get(session_id), run.done
        is_free = before is None or before.is_set()
        run.state = RunState.ACTIVE if is_free else RunState.QUEUED
        self.broker.publish(RunAccepted(run.run_id, session_id, run.accept_seq))
        assert self._tasks is not None
        self._tasks.start_soon(self._serve, run, before)
        return Submitted(run.run_id, session_id, run.accept_seq, Admission.ACTIVE if is_free else Admission.QUEUED)

    async def wait(self, run_id: str) -> RunComplete:
        run = self._known(run_id)
        if run.completion is None:
            await run.done.wait()
        else:
            await anyio.lowlevel.checkpoint()
        assert run.completion is not None
        return run.completion

    async def cancel_run(self, run_id: str, reason: StopReason = StopReason.CANCEL) -> CancelResult:
        await anyio.lowlevel.checkpoint()
        self.cancels.append((run_id, reason))
        run = self._known(run_id)
        if run.completion is not None:
            return CancelResult.ALREADY_ENDED
        was_queued = run.state is RunState.QUEUED
        self._stop(run, reason)
        if run.session_id == "ses-far":
            self._settle(run, cancelled=True)
        return CancelResult.DROPPED if was_queued else CancelResult.CANCELLING

    async def cancel(self, session_id: str, reason: StopReason = StopReason.CANCEL) -> SessionCancelled:
        if session_id not in self._tails:
            raise UnknownSessionError(session_id)
        hit = [run for run in self.runs.values() if run.session_id == session_id and run.completion is None]
        active = tuple(run.run_id for run in hit if run.state is RunState.ACTIVE)
        dropped = tuple(run.run_id for run in hit if run.state is not RunState.ACTIVE)
        for run in hit:
            await self.cancel_run(run.run_id, reason)
        return SessionCancelled(active=active, dropped=dropped)

    async def cancel_all(self, reason: StopReason) -> None:
        for run in self.runs.values():
            if run.session_id != "ses-far":
                self._stop(run, reason)

    async def clear_queue(self, session_id: str) -> tuple[str, ...]:
        if session_id not in self._tails:
            raise UnknownSessionError(session_id)
        waiting = [run for run in self.runs.values() if run.session_id == session_id and run.state is RunState.QUEUED]
        for run in waiting:
            self._stop(run, StopReason.CANCEL)
        return tuple(run.run_id for run in waiting)

    def subscribe(self, *, run_id: str | None = None, session_id: str | None = None) -> Subscription:
        return self.broker.subscribe(run_id=run_id, session_id=session_id)

    async def find_run(self, run_id: str) -> RunRecord | None:
        run = self.runs.get(run_id)
        return None if run is None else self._record(run)

    async def list_runs(self, *, session_id: str | None = None, limit: int = 50) -> Sequence[RunRecord]:
        runs = [run for run in self.runs.values() if session_id in {None, run.session_id}]
        return [self._record(run) for run in reversed(runs)][:limit]

    async def find_session(self, session_id: str) -> SessionRecord | None:
        return next((each for each in await self.list_sessions() if each.session_id == session_id), None)

    async def list_sessions(self, *, limit: int = 50) -> Sequence[SessionRecord]:
        records = [SessionRecord(each, "a title", "/work", NOW, NOW, 1) for each in self._tails]
        return records[::-1][:limit]

    async def _serve(self, run: FakeRun, before: anyio.Event | None) -> None:
        while before is not None and not before.is_set() and not run.stop.is_set():
            async with anyio.create_task_group() as race:
                for event in (before, run.stop):
                    race.start_soon(_first, event, race)
        if not run.stop.is_set():
            await self._answer(run)
        if run.completion is None:
            self._settle(run, cancelled=run.stop.is_set())

    async def _answer(self, run: FakeRun) -> None:
        run.state = RunState.ACTIVE
        await self.broker.publish_must_deliver(RunStarted(run.run_id, run.session_id, run.request.model))
        for event in run.script.events:
            await self.broker.publish_must_deliver(replace(event, run_id=run.run_id, session_id=run.session_id))  # type: ignore[call-arg]
        if run.script.hook is not None:
            run.script.hook()
        if run.script.hangs:
            await run.stop.wait()

    def _settle(self, run: FakeRun, *, cancelled: bool) -> None:
        done = RunComplete(run.run_id, run.session_id, text=run.script.text, ended_at=NOW)
        done = replace(done, **run.script.changes)  # type: ignore[arg-type]
        if cancelled:
            code = EXIT_CODES.get(run.reason or StopReason.CANCEL, 4)
            done = replace(
                done,
                text="",
                status=RunState.CANCELLED,
                finish_reason=FinishReason.CANCELLED,
                cancelled=True,
                error="the run was cancelled",
                exit_code=code,
            )
        run.completion, run.state = done, done.status
        self.broker.publish(RunCompleted(done))
        run.done.set()

    def _stop(self, run: FakeRun, reason: StopReason) -> None:
        if run.completion is None and not run.stop.is_set():
            run.reason = reason
            run.stop.set()

    def _known(self, run_id: str) -> FakeRun:
        if run_id not in self.runs:
            raise UnknownRunError(run_id)
        return self.runs[run_id]

    def _taken(self, old: FakeRun, request: RunRequest) -> Submitted:
        if old.request.prompt.digest() != request.prompt.digest():
            raise RunIdConflictError(old.run_id, old.request.prompt.digest(), request.prompt.digest())
        admission = Admission.ATTACHED if old.completion is None else Admission.REPLAYED
        return Submitted(old.run_id, old.session_id, old.accept_seq, admission)

    def _record(self, run: FakeRun) -> RunRecord:
        prompt = run.request.prompt
        ended = None if run.completion is None else NOW
        return RunRecord(
            run.accept_seq,
            run.run_id,
            run.session_id,
            run.state,
            prompt,
            prompt.digest(),
            run.request.model,
            "owner",
            NOW,
            NOW,
            ended,
            run.completion,
        )


async def _first(event: anyio.Event, race: TaskGroup) -> None:
    await event.wait()
    race.cancel_scope.cancel()
