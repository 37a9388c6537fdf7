"""The engine: the one file that knows every concrete class, and wires them (style, Layout).

async with open_engine(settings) as engine:
    submitted = await engine.submit(RunRequest(Prompt("hello"), run_id="r1", model="openai/gpt"))
    completion = await engine.wait("r1")
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio

from engine.broker.broker import Broker, Subscription
from engine.client import Admission, CancelResult, SessionCancelled, Submitted
from engine.dispatch.changes import wait_change
from engine.dispatch.dispatcher import Dispatcher
from engine.dispatch.live_run import LiveRun
from engine.dispatch.watch import watch_store
from engine.dispatch.worker import QueueFollowUps
from engine.errors import RunIdConflictError, StoreError, UnknownRunError, UnknownSessionError
from engine.event import RunCompleted
from engine.lifecycle import SETTLED, RunState
from engine.model.base import Model
from engine.run import RunComplete, RunRecord, RunRequest, SessionRecord, StopReason
from engine.settings import Settings
from engine.store.base import CancelRequest, RunIdTaken, Store
from engine.store.owner import this_owner
from engine.tools.base import Tool, ToolContext
from engine.turn.loop import TurnParts

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0
"""What closing may take beyond the last saves: winding up tools, models and the store."""


class Engine:
    """Runs prompts in this process; implements `engine.client.Client`. Use it in an `async with`.

    Leaving it stops what still runs (reason: shutdown), saves it and publishes its completions, bounded.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        *,
        open_model: Callable[[str], Model],
        open_tools: Callable[[Sequence[str]], Mapping[str, Tool]],
        broker: Broker | None = None,
        owner: str | None = None,
    ) -> None:
        self.settings = settings
        self.broker = broker or Broker()
        self.owner = owner or this_owner()
        self.store = store
        self._open_model = open_model
        self._open_tools = open_tools
        self._models: dict[str, Model] = {}
        self._dispatcher: Dispatcher | None = None
        self._running: AbstractAsyncContextManager[None] | None = None

    async def __aenter__(self) -> Self:
        self._running = self._run()
        await self._running.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._running is not None
        return await self._running.__aexit__(kind, error, trace)

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher of the open engine."""
        assert self._dispatcher is not None, "the engine is used inside its `async with`"
        return self._dispatcher

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        error: Exception | None = None
        try:
            await self.store.open()
            async with anyio.create_task_group() as tasks:
                self._dispatcher = Dispatcher(
                    self.store,
                    self.broker,
                    self._assemble,
                    tasks,
                    owner=self.owner,
                    save_seconds=self.settings.save_seconds,
                    concurrency=self.settings.concurrency,
                )
                tasks.start_soon(watch_store, self.store, self._dispatcher, self.owner, name="watch the store")
                try:
                    yield
                except Exception as raised:  # noqa: BLE001 - not a wall: kept out of the group, which would wrap it
                    error = raised
                finally:
                    await self._shut_down()
                    tasks.cancel_scope.cancel()
        finally:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                for model in self._models.values():
                    await model.aclose()
                await self.store.close()
        if error is not None:
            raise error

    async def _shut_down(self) -> None:
        """Refuse new prompts, stop and settle the runs, end the subscriptions (M20)."""
        self.dispatcher.close()
        with anyio.move_on_after(self.settings.save_seconds + CLOSE_SECONDS, shield=True) as settling:
            await self.cancel_all(StopReason.SHUTDOWN)
            await self.dispatcher.wait_settled()
        if settling.cancelled_caught:
            logger.error("some runs had not settled when the engine was closed")
        self.broker.shutdown()

    # --- runs ----------------------------------------------------------------------------------------------------

    async def submit(self, request: RunRequest) -> Submitted:
        """See `Client.submit`."""
        result = await self.dispatcher.submit(request)
        if isinstance(result, RunIdTaken):
            return _taken(request, result.record)
        accepted, decision = result
        run = accepted.run
        return Submitted(run.run_id, run.session_id, run.accept_seq, Admission(decision.value))

    async def wait(self, run_id: str) -> RunComplete:
        """See `Client.wait`. The store is the truth: it is read first, and again after any gap (design, 4)."""
        with self.subscribe(run_id=run_id) as events:
            while True:
                stamp = self.store.change_stamp()
                try:
                    completion = await self._completion_of(run_id)
                except StoreError:
                    # Of a run of this process the announcement is as good; of any other, nothing is known.
                    if not self.dispatcher.live_runs(run_id):
                        raise
                    completion = None
                if completion is not None:
                    return completion
                if self.dispatcher.live_runs(run_id):
                    async for event in events:
                        if isinstance(event, RunCompleted):
                            return event.completion
                while (late := events.next_nowait()) is not None:
                    if isinstance(late, RunCompleted):
                        return late.completion
                await wait_change(self.store, stamp)

    async def cancel_run(self, run_id: str, reason: StopReason = StopReason.CANCEL) -> CancelResult:
        """See `Client.cancel_run`."""
        if live := self.dispatcher.live_runs(run_id):
            dropped = [self.dispatcher.cancel_run(run, reason) for run in live]
            return CancelResult.DROPPED if any(dropped) else CancelResult.CANCELLING
        match await self.store.request_cancel(run_id):
            case CancelRequest.UNKNOWN:
                raise UnknownRunError(run_id)
            case CancelRequest.ENDED:
                return CancelResult.ALREADY_ENDED
            case CancelRequest.REQUESTED:
                # A dead owner hears nothing: its run is completed as interrupted here and now.
                record = await self.find_run(run_id)
                is_over = record is not None and record.state in SETTLED
                return CancelResult.ALREADY_ENDED if is_over else CancelResult.CANCELLING

    async def cancel(self, session_id: str, reason: StopReason = StopReason.CANCEL) -> SessionCancelled:
        """See `Client.cancel`."""
        hit = self.dispatcher.cancel_session(session_id, reason)
        ours = {run.accept_seq for run in [hit.active, *hit.accepted, *hit.dropped] if run is not None}
        # No await between the decision and this call, and store calls take effect in call order: a prompt accepted
        # after this cancel gets its row after the store's mark was set, and runs.
        records = await self.store.request_session_cancel(session_id)
        theirs = [record for record in records if record.accept_seq not in ours]
        return SessionCancelled(
            active=(*_ids([hit.active]), *_ids([r for r in theirs if r.state is RunState.ACTIVE])),
            accepted=_ids(hit.accepted),
            dropped=(*_ids(hit.dropped), *_ids([r for r in theirs if r.state is not RunState.ACTIVE])),
        )

    async def cancel_all(self, reason: StopReason) -> None:
        """See `Client.cancel_all`."""
        for queue in self.dispatcher.sessions():
            self.dispatcher.cancel_session(queue.session_id, reason)

    async def clear_queue(self, session_id: str) -> tuple[str, ...]:
        """See `Client.clear_queue`."""
        dropped = self.dispatcher.clear_queue(session_id)
        if not dropped and await self.store.find_session(session_id) is None:
            raise UnknownSessionError(session_id)
        return _ids(dropped)

    def subscribe(self, *, run_id: str | None = None, session_id: str | None = None) -> Subscription:
        """See `Client.subscribe`."""
        return self.broker.subscribe(run_id=run_id, session_id=session_id)

    # --- queries -------------------------------------------------------------------------------------------------

    async def find_run(self, run_id: str) -> RunRecord | None:
        """See `Client.find_run`. A run whose owner has died is completed first (design, 7)."""
        record = await self.store.find_run(run_id)
        if record is None or record.state in SETTLED or record.owner == self.owner:
            return record
        await self._recover_orphans()
        return await self.store.find_run(run_id)

    async def list_runs(self, *, session_id: str | None = None, limit: int = 50) -> Sequence[RunRecord]:
        """See `Client.list_runs`."""
        await self._recover_orphans()
        return await self.store.list_runs(session_id=session_id, limit=limit)

    async def find_session(self, session_id: str) -> SessionRecord | None:
        """See `Client.find_session`."""
        return await self.store.find_session(session_id)

    async def list_sessions(self, *, limit: int = 50) -> Sequence[SessionRecord]:
        """See `Client.list_sessions`."""
        return await self.store.list_sessions(limit=limit)

    # --- inside --------------------------------------------------------------------------------------------------

    def _assemble(self, run: LiveRun, follow_ups: QueueFollowUps) -> TurnParts:
        """The turn of one run, from what its request names."""
        request = run.request
        model = self._models.get(request.model)
        if model is None:
            model = self._models[request.model] = self._open_model(request.model)
        cwd = Path(request.cwd) if request.cwd else Path.cwd()
        context = ToolContext(
            cwd=cwd,
            output_dir=self.settings.data_dir / "outputs" / (run.run_id or f"turn-{run.accept_seq}"),
            env={"AGENT_RUN_ID": run.run_id or "", "AGENT_SESSION_ID": run.session_id},
        )
        tools = self._open_tools(request.tools) if request.tools and model.takes_tools else {}
        return TurnParts(
            run_id=run.run_id,
            session_id=run.session_id,
            accept_seq=run.accept_seq,
            system=request.system or (headless_system(cwd) if tools else ""),
            limits=request.limits,
            model=model,
            tools=tools,
            tool_context=context,
            stop=run.stop,
            store=self.store,
            broker=self.broker,
            follow_ups=follow_ups,
            remaining=run.remaining_seconds,
        )

    async def _completion_of(self, run_id: str) -> RunComplete | None:
        """The completion if there is one; raises `UnknownRunError` if nobody knows the run."""
        if (unsaved := self.dispatcher.unsaved_completion(run_id)) is not None:
            return unsaved
        record = await self.find_run(run_id)
        if record is not None:
            return record.completion
        if self.dispatcher.live_runs(run_id):
            return None
        raise UnknownRunError(run_id)

    async def _recover_orphans(self) -> None:
        for completion in await self.store.recover_orphans():
            if completion.run_id:
                self.broker.publish(RunCompleted(completion))


def open_engine(settings: Settings) -> Engine:
    """The engine on this machine's store, models and tools; enter it with `async with`."""
    from engine.model.catalog import open_model
    from engine.store.sql import SqliteStore
    from engine.tools.registry import open_tools

    store = SqliteStore.ephemeral() if settings.ephemeral else SqliteStore(settings.store_path)
    return Engine(
        settings,
        store,
        open_model=lambda name: open_model(
            name, base_url=settings.base_url, data_dir=settings.data_dir, environ=settings.environ
        ),
        open_tools=open_tools,
    )


def headless_system(cwd: Path) -> str:
    """What a model with tools is told unless `--system` says otherwise."""
    return (
        "You run headless, in a script or a CI job: nobody can answer questions, so decide yourself and finish the "
        "task with the tools you have. Your last message is the result that is printed: make it complete and to the "
        f"point. The working directory is {cwd}."
    )


def _taken(request: RunRequest, record: RunRecord) -> Submitted:
    """What a used run id means: attach, replay, or a conflict (design, 8)."""
    assert request.run_id is not None
    given = request.prompt.digest()
    if record.prompt_hash != given:
        raise RunIdConflictError(request.run_id, record.prompt_hash, given)
    if request.session_id is not None and request.session_id != record.session_id:
        raise RunIdConflictError(request.run_id, record.prompt_hash, given, why="session")
    admission = Admission.REPLAYED if record.state in SETTLED else Admission.ATTACHED
    return Submitted(record.run_id, record.session_id, record.accept_seq, admission)


def _ids(runs: Sequence[LiveRun | RunRecord | None]) -> tuple[str, ...]:
    return tuple(run.run_id for run in runs if run is not None and run.run_id is not None)
