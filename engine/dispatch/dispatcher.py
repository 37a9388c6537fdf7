"""The dispatcher: accepts prompts, dispatches them, cancels them, and knows every live run of this process.

Its decisions are plain methods (`reserve`, `dispatch`, `cancel_session`, `cancel_run`, `clear_queue`); each hands what
must be saved and published to tasks of the engine's group, so that a caller who goes away cuts nothing short.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import count

import anyio
from anyio.abc import TaskGroup

from engine.broker.broker import Broker
from engine.dispatch.live_run import LiveRun
from engine.dispatch.session_queue import Cancelled, Decision, SessionQueue
from engine.dispatch.worker import TurnFactory, Worker
from engine.errors import EmptyPromptError, EngineClosedError, IllegalIdError, QueueFullError, StoreError
from engine.event import RunAccepted, RunQueued
from engine.ids import is_legal_id, new_session_id
from engine.limits import QUEUE_MAX
from engine.run import RunComplete, RunRequest, StopReason
from engine.store.base import Accepted, NewRun, RunIdTaken, Store

logger = logging.getLogger(__name__)

UNSAVED_MAX = 1024
"""Completions that could not be saved and are kept in memory for late waiters, latest first to stay."""


class AcceptedRun:
    """A reservation: the prompt is accepted and every later cancel covers it, until it is dispatched or closed."""

    def __init__(self, dispatcher: Dispatcher, queue: SessionQueue, run: LiveRun) -> None:
        self._dispatcher = dispatcher
        self._queue = queue
        self.run = run
        self.is_open = True

    def dispatch(self) -> Decision:
        """Let the run go its way; closes the reservation. Must be called at most once."""
        assert self.is_open, "a reservation is dispatched once"
        self.is_open = False
        return self._dispatcher.dispatch(self._queue, self.run)

    def close(self) -> None:
        """Give the reservation up; harmless when it is closed. A run that is in the store is completed cancelled."""
        if self.is_open:
            self.is_open = False
            self._dispatcher.give_up(self._queue, self.run)


class Dispatcher:
    """Owns the sessions' queues of one engine; only the loop's thread calls it."""

    def __init__(
        self,
        store: Store,
        broker: Broker,
        open_turn: TurnFactory,
        tasks: TaskGroup,
        *,
        owner: str,
        save_seconds: float,
        concurrency: int,
    ) -> None:
        self._store = store
        self._broker = broker
        self._tasks = tasks
        self._owner = owner
        self._worker = Worker(
            store,
            broker,
            open_turn,
            self,
            save_seconds=save_seconds,
            concurrency=concurrency,
        )
        self._tickets = count(1)
        self._latest_ticket = 0
        self._queues: dict[str, SessionQueue] = {}
        self._intakes: dict[str, anyio.Lock] = {}
        self._by_id: dict[str, dict[int, LiveRun]] = {}
        self._by_seq: dict[int, LiveRun] = {}
        self._unsaved: dict[str, RunComplete] = {}
        self._is_closing = False
        self._has_live = anyio.Event()
        self._all_settled: anyio.Event | None = None

    # --- accept and dispatch -------------------------------------------------------------------------------------

    def reserve(self, request: RunRequest) -> AcceptedRun:
        """Validate and reserve, without waiting (M1): a cancel from here on covers the run.

        Raises:
            UsageError: the request cannot be taken.
            EngineClosedError: too late.
        """
        if self._is_closing:
            raise EngineClosedError
        if request.prompt.is_empty():
            raise EmptyPromptError
        for kind, value in (("run", request.run_id), ("session", request.session_id)):
            if value is not None and not is_legal_id(value):
                raise IllegalIdError(kind, value)
        session_id = request.session_id or new_session_id()
        queue = self._queues.setdefault(session_id, SessionQueue(session_id))
        if len(queue) >= QUEUE_MAX:
            raise QueueFullError(f"{QUEUE_MAX} prompts wait in session {session_id}: let some end first")
        self._latest_ticket = next(self._tickets)
        run = LiveRun(request, session_id, self._latest_ticket, session_is_new=request.session_id is None)
        if request.limits.timeout_seconds is not None:
            run.deadline = anyio.current_time() + request.limits.timeout_seconds
        queue.reserve(run)
        if run.run_id is not None:
            self._by_id.setdefault(run.run_id, {})[run.ticket] = run
        return AcceptedRun(self, queue, run)

    async def accept(self, request: RunRequest) -> AcceptedRun | RunIdTaken:
        """Reserve, then make it durable: the row's id is the accept sequence (design, 3.1).

        Raises:
            UsageError: the request cannot be taken, or names a session that is not there.
            StoreError: it could not be made durable.
        """
        return await self._make_durable(self.reserve(request))

    async def _make_durable(self, reservation: AcceptedRun) -> AcceptedRun | RunIdTaken:
        run, request = reservation.run, reservation.run.request
        try:
            made = await self._store.create_run(
                NewRun(
                    run_id=run.run_id,
                    session_id=run.session_id,
                    session_is_new=run.session_is_new,
                    prompt=request.prompt,
                    model=request.model,
                    cwd=request.cwd,
                    owner=self._owner,
                )
            )
        except BaseException:
            reservation.close()
            raise
        if isinstance(made, RunIdTaken):
            reservation.close()
            return made
        assert isinstance(made, Accepted)
        run.accept_seq = made.accept_seq
        self._by_seq[run.accept_seq] = run
        self._has_live.set()
        self._broker.publish(RunAccepted(run.run_id, run.session_id, run.accept_seq))
        return reservation

    async def submit(self, request: RunRequest) -> tuple[AcceptedRun, Decision] | RunIdTaken:
        """Accept and dispatch, one prompt of a session after the other, in the order of the calls.

        Raises:
            UsageError: nothing was accepted.
            StoreError: it could not be made durable.
        """
        reservation = self.reserve(request)
        # Not the dispatch's lock: the reservation is what a cancel sees, and it is there already. This keeps two
        # prompts of one session from overtaking each other between the store's answer and the decision (K21).
        intake = self._intakes.setdefault(reservation.run.session_id, anyio.Lock(fast_acquire=True))
        try:
            async with intake:
                accepted = await self._make_durable(reservation)
                if isinstance(accepted, RunIdTaken):
                    return accepted
                return accepted, accepted.dispatch()
        finally:
            reservation.close()

    def dispatch(self, queue: SessionQueue, run: LiveRun) -> Decision:
        """Decide, record, and set going what was decided (design, 3.2)."""
        if self._is_closing:
            run.stop.request(StopReason.SHUTDOWN)
        decision = queue.admit(run)
        if run.deadline is not None and decision is not Decision.CANCELLED_ON_ENTRY:
            self._tasks.start_soon(self._watch_deadline, run, name=f"deadline of {run.run_id}")
        match decision:
            case Decision.CANCELLED_ON_ENTRY:
                self._tasks.start_soon(self._settle_on_entry, run, name=f"cancelled on entry {run.run_id}")
            case Decision.QUEUED:
                self._broker.publish(RunQueued(run.run_id, run.session_id))
                self._tasks.start_soon(self._note_queued, run, name=f"queued {run.run_id}")
            case Decision.ACTIVE:
                self._tasks.start_soon(self._worker.work, queue, run, name=f"session {run.session_id}")
        return decision

    def give_up(self, queue: SessionQueue, run: LiveRun) -> None:
        """Close a reservation that will not be dispatched; no session stays blocked (design, 3.1)."""
        queue.close_reservation(run)
        if not run.accept_seq:
            self._forget(run)
            return
        run.stop.request(StopReason.CANCEL)
        queue.drop(run)
        self.runs_dropped([run])

    # --- cancel --------------------------------------------------------------------------------------------------

    def cancel_session(self, session_id: str, reason: StopReason) -> Cancelled:
        """Stop this process's runs of the session (design, 3.3)."""
        queue = self._queues.get(session_id)
        if queue is None:
            return Cancelled()
        hit = queue.cancel(reason, self._latest_ticket)
        self.runs_dropped(hit.dropped)
        return hit

    def cancel_run(self, run: LiveRun, reason: StopReason) -> bool:
        """Stop one live run (design, 3.4); returns whether it was dropped from its queue."""
        queue = self._queues[run.session_id]
        is_dropped = queue.cancel_run(run, reason)
        if is_dropped:
            self.runs_dropped([run])
        return is_dropped

    def clear_queue(self, session_id: str) -> list[LiveRun]:
        """Drop what waits in the session (design, 3.8)."""
        queue = self._queues.get(session_id)
        dropped = queue.clear(StopReason.CANCEL) if queue is not None else []
        self.runs_dropped(dropped)
        return dropped

    # --- what lives ----------------------------------------------------------------------------------------------

    def live_runs(self, run_id: str) -> list[LiveRun]:
        """Runs and reservations of this process with this id; more than one only while the store decides."""
        return list(self._by_id.get(run_id, {}).values())

    def live_by_seq(self, accept_seq: int) -> LiveRun | None:
        """The live run with this accept sequence."""
        return self._by_seq.get(accept_seq)

    def sessions(self) -> Iterator[SessionQueue]:
        """The sessions that have something to do."""
        return iter(list(self._queues.values()))

    def unsaved_completion(self, run_id: str) -> RunComplete | None:
        """A completion that the store could not take."""
        return self._unsaved.get(run_id)

    async def wait_live(self) -> None:
        """Wait until this process owns a run."""
        await self._has_live.wait()

    def is_live(self) -> bool:
        """Whether this process owns a run that has not settled."""
        return bool(self._by_seq)

    def close(self) -> None:
        """Take no more prompts."""
        self._is_closing = True

    async def wait_settled(self) -> None:
        """Wait until no run of this process is left, reservations included."""
        while self._by_seq or self._queues:
            if self._all_settled is None:
                self._all_settled = anyio.Event()
            await self._all_settled.wait()

    # --- what follows a decision ---------------------------------------------------------------------------------

    def run_settled(self, run: LiveRun, *, unsaved: RunComplete | None = None) -> None:
        """See `RunRegistry`."""
        if run.run_id is not None and unsaved is not None:
            self._unsaved[run.run_id] = unsaved
            if len(self._unsaved) > UNSAVED_MAX:
                del self._unsaved[next(iter(self._unsaved))]
        if run.deadline_scope is not None:
            run.deadline_scope.cancel()
        self._by_seq.pop(run.accept_seq, None)
        self._forget(run)

    def runs_dropped(self, runs: list[LiveRun]) -> None:
        """See `RunRegistry`: a task completes them, outside any decision (M8)."""
        if runs:
            self._tasks.start_soon(self._settle_dropped, runs, name=f"complete {len(runs)} dropped")

    def torn_down(self) -> None:
        """See `RunRegistry`."""
        self.close()

    async def _settle_dropped(self, dropped: list[LiveRun]) -> None:
        # Shielded as a whole: each save is bounded, and an engine that is torn down still owes every one.
        with anyio.CancelScope(shield=True):
            for run in dropped:
                await self._worker.settle_unstarted(run, with_messages=False)

    async def _settle_on_entry(self, run: LiveRun) -> None:
        with anyio.CancelScope(shield=True):
            await self._worker.settle_unstarted(run, with_messages=True)

    async def _note_queued(self, run: LiveRun) -> None:
        try:
            await self._store.queue_run(run.accept_seq)
        except StoreError as error:
            # For onlookers only: the run's turn or its drop says the same, and will be told if the store fails.
            logger.warning("run %s: %s", run.run_id, error)

    async def _watch_deadline(self, run: LiveRun) -> None:
        if run.deadline is None or run.accept_seq not in self._by_seq:
            return
        with anyio.CancelScope() as run.deadline_scope:
            await anyio.sleep_until(run.deadline)
            if run.accept_seq in self._by_seq:
                self.cancel_run(run, StopReason.DEADLINE)

    def _forget(self, run: LiveRun) -> None:
        """Drop what the registry holds of a run that is through, and of a session that is idle."""
        if run.run_id is not None and run.run_id in self._by_id:
            self._by_id[run.run_id].pop(run.ticket, None)
            if not self._by_id[run.run_id]:
                del self._by_id[run.run_id]
        queue = self._queues.get(run.session_id)
        if queue is not None and queue.is_idle():
            del self._queues[run.session_id]
            self._intakes.pop(run.session_id, None)
        if not self._by_seq and self._has_live.is_set():
            self._has_live = anyio.Event()
        if self._all_settled is not None and not self._by_seq and not self._queues:
            self._all_settled.set()
            self._all_settled = None
