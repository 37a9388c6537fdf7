"""Taking runs to their one completion: one worker for a session that has something active, run after run in a loop.

`settle` is the promise of this project: whatever happened to a run, its terminal state is saved within a bound, the
slot is passed on, its completion is published, and only then the next run starts (design, 3.9). It runs in a
`finally` outside the scope that a cancel strikes, shielded and deadlined. A queue of 10,000 runs is 10,000 rounds of
one loop, not a stack of calls.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

import anyio

from engine.broker.broker import Broker
from engine.clock import now_utc
from engine.dispatch.changes import wait_change
from engine.dispatch.live_run import LiveRun
from engine.dispatch.report import Ending, Report, report_dropped, report_turn, unsaved
from engine.dispatch.session_queue import SessionQueue
from engine.errors import StoreError
from engine.event import MessageSaved, Notice, RunCompleted, RunQueued, RunStarted
from engine.message import Message
from engine.run import RunComplete, RunRecord, StopReason
from engine.store.base import Start, StartOutcome, Store
from engine.turn.context import Earlier
from engine.turn.loop import FollowUp, Turn, TurnParts
from engine.turn.stop import TurnStoppedError

logger = logging.getLogger(__name__)

PUBLISH_SECONDS = 1.0
"""Far over the broker's own bound for a slow subscriber; a guard against a bug there, not a limit to be met."""

WIND_UP_SECONDS = 5.0
"""How long each cleanup of the run's tools may take: TERM, 2 s, KILL and some air."""


class TurnFactory(Protocol):
    """Assembles the turn of a run; called when the run has its session. May raise `ConfigurationError`."""

    def __call__(self, run: LiveRun, follow_ups: QueueFollowUps) -> TurnParts:
        """The parts of this run's turn."""
        ...


class RunRegistry(Protocol):
    """Who knows the live runs, and is told by the worker what becomes of them; none of these waits."""

    def run_settled(self, run: LiveRun, *, unsaved: RunComplete | None = None) -> None:
        """The run is through; its completion, if the store could not take it, is to be kept for late waiters."""
        ...

    def runs_dropped(self, runs: list[LiveRun]) -> None:
        """These are out of the queue, oldest first, and owe their completions."""
        ...

    def torn_down(self) -> None:
        """The engine is being cancelled from outside: nothing may start any more."""
        ...


class QueueFollowUps:
    """A session's queue as the turn sees it; what a step drops is completed by the worker's owner."""

    def __init__(
        self,
        queue: SessionQueue,
        registry: RunRegistry,
    ) -> None:
        self._queue = queue
        self._registry = registry

    def take_follow_ups(self) -> list[FollowUp]:
        """See `engine.turn.loop.FollowUps`."""
        taken = self._queue.take_follow_ups()
        if dropped := self._queue.take_dropped():
            self._registry.runs_dropped(dropped)
        return taken

    def restore_follow_ups(self, follow_ups: Sequence[FollowUp]) -> None:
        """See `engine.turn.loop.FollowUps`."""
        self._queue.restore_follow_ups(follow_ups)

    def confirm_follow_ups(self) -> None:
        """See `engine.turn.loop.FollowUps`."""
        for run in self._queue.confirm_follow_ups():
            self._registry.run_settled(run)


class Worker:
    """Takes runs to settled, for all sessions of one engine; it keeps histories, and what could not be saved."""

    def __init__(
        self,
        store: Store,
        broker: Broker,
        open_turn: TurnFactory,
        registry: RunRegistry,
        *,
        save_seconds: float,
        concurrency: int,
    ) -> None:
        self._store = store
        self._broker = broker
        self._open_turn = open_turn
        self._registry = registry
        self._save_seconds = save_seconds
        self._owed: dict[str, list[tuple[int, RunComplete, Sequence[Message]]]] = {}
        self._histories: dict[str, Earlier] = {}
        self._places = anyio.CapacityLimiter(concurrency)

    async def work(self, queue: SessionQueue, run: LiveRun) -> None:
        """Run after run of this session, until nothing waits."""
        following: LiveRun | None = run
        while following is not None:
            following = await self._run_to_settled(queue, following)
        self._histories.pop(queue.session_id, None)

    async def settle_unstarted(self, run: LiveRun, *, with_messages: bool) -> None:
        """Complete a run that never had its turn: cancelled on entry (with its messages) or dropped (without)."""
        report = report_turn(run, Ending(), None) if with_messages else report_dropped(run)
        completion, is_saved = await self._save(run, report)
        await self._publish(run, completion, is_saved=is_saved)

    async def _run_to_settled(self, queue: SessionQueue, run: LiveRun) -> LiveRun | None:
        following: LiveRun | None = None
        opened: list[TurnParts] = []
        ending = Ending()
        try:
            ending = await self._attempt(queue, run, opened)
        except BaseException:
            # Only a cancellation that is not the run's own gets here: the engine is being torn down around us.
            run.stop.request(StopReason.SHUTDOWN)
            self._registry.torn_down()
            self._registry.runs_dropped(queue.clear(StopReason.SHUTDOWN))
            raise
        finally:
            for parts in opened:
                await self._wind_up(parts)
            report = report_turn(run, ending, opened[0].tool_context if opened else None)
            run.apply(report.trigger)
            completion, is_saved = await self._save(run, report)
            self._keep_history(run, is_saved=is_saved)
            following = queue.hand_over(run)
            if dropped := queue.take_dropped():
                self._registry.runs_dropped(dropped)
            await self._publish(run, completion, is_saved=is_saved)
        return following

    async def _attempt(self, queue: SessionQueue, run: LiveRun, opened: list[TurnParts]) -> Ending:
        """Give the run its turn. One of the three walls: nothing but a foreign cancellation leaves it (style, 6)."""
        try:
            with run.stop.open_scope():
                async with self._places:
                    run.stop.check()
                    return await self._turn(queue, run, opened)
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # the wall
            if _holds_cancellation(error):
                raise
            # Stopped is stopped, whatever the stop made fail on its way out (FIX-11).
            if run.stop.reason is None:
                logger.info("run %s failed", run.run_id, exc_info=error)
                return Ending(failure=error)
            if not isinstance(error, TurnStoppedError):
                logger.warning("run %s: while stopping", run.run_id, exc_info=error)
        return Ending()

    async def _turn(self, queue: SessionQueue, run: LiveRun, opened: list[TurnParts]) -> Ending:
        start = await self._start(run)
        if start is None:
            return Ending()
        run.record.earlier = await self._earlier(run, start.messages_before)
        parts = self._open_turn(run, QueueFollowUps(queue, self._registry))
        opened.append(parts)
        self._broker.publish(RunStarted(run.run_id, run.session_id, parts.model.name))
        return Ending(end=await Turn(parts, run.record).run())

    async def _earlier(self, run: LiveRun, messages_before: int) -> Earlier:
        """The history before this turn: kept from the last one, unless somebody else has written since."""
        kept = self._histories.get(run.session_id)
        if kept is not None and kept.saved == messages_before:
            return kept
        loaded = await self._store.load_history(run.session_id)
        earlier = self._histories[run.session_id] = Earlier()
        before = [message for message in loaded if message.message_id != run.user_message.message_id]
        earlier.add(before, saved=messages_before)
        return earlier

    def _keep_history(self, run: LiveRun, *, is_saved: bool) -> None:
        """The turn is over: its messages are history for the next one, if they are in the store."""
        kept = self._histories.get(run.session_id)
        if kept is None or kept is not run.record.earlier:
            return
        if is_saved:
            kept.add(run.record.history, saved=len(run.record.history))
        else:
            del self._histories[run.session_id]

    async def _start(self, run: LiveRun) -> Start | None:
        """Take the session in the store, waiting for runs of other processes; None if the run was stopped there."""
        await self._save_owed(run.session_id)
        told: RunRecord | None = None
        while True:
            stamp = self._store.change_stamp()
            start = await self._store.start_run(run.accept_seq, run.session_id, run.user_message)
            match start.outcome:
                case StartOutcome.STARTED:
                    run.is_user_saved = True
                    run.record.history.append(run.user_message)
                    run.started_at = now_utc()
                    self._broker.publish(MessageSaved(run.run_id, run.session_id, run.user_message))
                    return start
                case StartOutcome.COVERED:
                    run.stop.request(StopReason.CANCEL)
                    return None
                case StartOutcome.SETTLED:
                    run.stop.request(StopReason.LEASE_LOST)
                    return None
                case StartOutcome.BUSY:
                    if start.holder is not None and (told is None or told.accept_seq != start.holder.accept_seq):
                        told = start.holder
                        self._broker.publish(RunQueued(run.run_id, run.session_id, _who(told)))
                    await wait_change(self._store, stamp)

    async def _wind_up(self, parts: TurnParts) -> None:
        """End what the tools have left running, bounded (design, 8)."""
        for at_end in parts.tool_context.at_end:
            with anyio.move_on_after(WIND_UP_SECONDS, shield=True):
                try:
                    await at_end()
                except (Exception, SystemExit):  # nothing may come between a run and its completion
                    logger.exception("winding up a turn")

    async def _save(self, run: LiveRun, report: Report) -> tuple[RunComplete, bool]:
        """The last words: messages and terminal state in one transaction, shielded, within the bound."""
        problem = ""
        with anyio.move_on_after(self._save_seconds, shield=True) as saving:
            try:
                await self._store.finish_run(run.accept_seq, run.session_id, report.completion, report.messages)
            except StoreError as error:
                problem = str(error)
            except Exception as error:
                logger.exception("run %s: saving its completion failed", run.run_id)
                problem = f"{type(error).__name__}: {error}"
        if saving.cancelled_caught:
            problem = f"the store at {self._store.location} did not answer within {self._save_seconds:g} s"
        if not problem:
            return report.completion, True
        logger.error("run %s: %s", run.run_id, problem)
        completion = unsaved(report.completion, problem)
        self._owed.setdefault(run.session_id, []).append((run.accept_seq, completion, report.messages))
        return completion, False

    async def _save_owed(self, session_id: str) -> None:
        """Save what earlier runs of the session could not: to the store they still hold it.

        Raises:
            StoreError: it still cannot be saved; the run that comes now cannot start either.
        """
        while owed := self._owed.get(session_id):
            accept_seq, completion, messages = owed[0]
            await self._store.finish_run(accept_seq, session_id, completion, messages)
            del owed[0]
        self._owed.pop(session_id, None)

    async def _publish(self, run: LiveRun, completion: RunComplete, *, is_saved: bool) -> None:
        """Announce the completion; whoever has room has it before the first wait, also in a cancelled scope."""
        self._registry.run_settled(run, unsaved=None if is_saved else completion)
        if run.run_id is None:
            if completion.error is not None:
                self._broker.publish(Notice(None, run.session_id, f"follow-up: {completion.error}"))
            return
        with anyio.move_on_after(PUBLISH_SECONDS, shield=True):
            await self._broker.publish_must_deliver(RunCompleted(completion))


def _who(holder: RunRecord) -> str:
    host, _, rest = holder.owner.partition("/")
    pid = rest.partition("/")[0]
    since = holder.started_at or holder.created_at
    return f"run {holder.run_id or 'without an id'} of process {pid} on {host}, since {since}"


def _holds_cancellation(error: BaseException) -> bool:
    """Whether a group has a cancellation in it, which must travel on."""
    cancelled = anyio.get_cancelled_exc_class()
    return isinstance(error, BaseExceptionGroup) and error.subgroup(cancelled) is not None
