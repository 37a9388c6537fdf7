"""The one reporter: from how a run ended, its status, its exit code and its completion (design, 4).

No other place decides an outcome. It is derived from the reason that was recorded when the run was stopped and from
whether its turn returned, never from an exception's type (style, 6).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.clock import now_utc
from engine.codec import clean_text
from engine.dispatch.live_run import LiveRun
from engine.errors import EngineError
from engine.lifecycle import FinishReason, RunState, Trigger
from engine.message import Message
from engine.run import RunComplete, StopReason
from engine.tools.base import ToolContext
from engine.turn.loop import TurnEnd

STOP_EXIT_CODES = {
    StopReason.CANCEL: 4,
    StopReason.SIGINT: 130,
    StopReason.SIGTERM: 143,
    StopReason.SIGHUP: 129,
    StopReason.DEADLINE: 124,
    StopReason.SHUTDOWN: 4,
    StopReason.STDOUT_CLOSED: 141,
    StopReason.LEASE_LOST: 1,
}
"""The exit code of a run that was stopped, by reason (design, 8)."""

FINISH_EXIT_CODES = {
    FinishReason.END_TURN: 0,
    FinishReason.MAX_TOKENS: 5,
    FinishReason.MAX_STEPS: 5,
    FinishReason.LIMIT: 5,
    FinishReason.CANCELLED: 4,
    FinishReason.ERROR: 1,
    FinishReason.NEEDS_INPUT: 3,
}
"""The exit code of a run whose turn ended by itself. A cut answer is no answer: 5, not 0."""

_STOP_TEXTS = {
    StopReason.CANCEL: "cancelled",
    StopReason.SIGINT: "cancelled by SIGINT",
    StopReason.SIGTERM: "cancelled by SIGTERM",
    StopReason.SIGHUP: "cancelled by SIGHUP",
    StopReason.DEADLINE: "timed out",
    StopReason.SHUTDOWN: "cancelled: the engine was closed",
    StopReason.STDOUT_CLOSED: "cancelled: nobody reads the output any more",
    StopReason.LEASE_LOST: "interrupted: another process took this run for dead",
}


@dataclass(frozen=True, slots=True)
class Ending:
    """How the work on a run ended: by itself (`end`), stopped (the run's signal has the reason), or by `failure`."""

    end: TurnEnd | None = None
    failure: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The arrow of the life cycle, the completion, and the messages to be saved with it in one transaction."""

    trigger: Trigger
    completion: RunComplete
    messages: tuple[Message, ...]


def report_turn(run: LiveRun, ending: Ending, context: ToolContext | None) -> Report:
    """The outcome of a run that was given its turn."""
    if ending.end is not None:
        trigger, finish, error = _ended(ending.end)
        message, exit_code = ending.end.message, FINISH_EXIT_CODES[finish]
    else:
        if ending.failure is not None:
            trigger, finish, exit_code = Trigger.FAIL, FinishReason.ERROR, 1
            error = clean_text(failure_text(ending.failure))
        else:
            trigger, finish, exit_code, error = _stopped(run)
        message = run.record.closing(finish, error)
    opening = () if run.is_user_saved else (run.user_message,)
    completion = _completion(run, trigger, finish, error, exit_code)
    completion = replace(
        completion,
        message_id=message.message_id,
        text=message.text,
        usage=run.record.usage,
        steps=run.record.steps,
        retries=run.record.retries,
        files_changed=tuple(map(clean_text, context.files_changed)) if context else (),
        unfinished=tuple(map(clean_text, context.unfinished)) if context else (),
    )
    return Report(trigger, completion, (*opening, *run.record.unsaved))


def report_dropped(run: LiveRun) -> Report:
    """The outcome of a run that was dropped from the queue: no message, its prompt stays in its row (design, 3.2)."""
    trigger, finish, exit_code, error = _stopped(run)
    return Report(trigger, _completion(run, trigger, finish, error, exit_code), ())


def unsaved(completion: RunComplete, problem: str) -> RunComplete:
    """The completion of a run whose terminal state could not be saved: it says so, and success it was not."""
    text = f"{completion.error}; not saved: {problem}" if completion.error else f"not saved: {problem}"
    if completion.status is not RunState.COMPLETED:
        return replace(completion, error=text)
    return replace(completion, error=text, status=RunState.FAILED, finish_reason=FinishReason.ERROR, exit_code=1)


def failure_text(error: BaseException) -> str:
    """One line for a person: an error of the world speaks for itself, a bug is named as one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, EngineError):
        return str(error)
    return f"internal error: {type(error).__name__}: {error}".rstrip(": ")


def _ended(end: TurnEnd) -> tuple[Trigger, FinishReason, str | None]:
    trigger = Trigger.COMPLETE if end.finish is FinishReason.END_TURN else Trigger.FAIL
    return trigger, end.finish, end.error


def _stopped(run: LiveRun) -> tuple[Trigger, FinishReason, int, str]:
    reason = run.stop.reason
    assert reason is not None, "a run that was not stopped has an end or a failure"
    text = _STOP_TEXTS[reason]
    if reason is StopReason.DEADLINE:
        text = f"{text} after {run.request.limits.timeout_seconds:g} s (--timeout)"
        return Trigger.FAIL, FinishReason.LIMIT, STOP_EXIT_CODES[reason], text
    if reason is StopReason.LEASE_LOST:
        return Trigger.FAIL, FinishReason.ERROR, STOP_EXIT_CODES[reason], text
    return Trigger.CANCEL, FinishReason.CANCELLED, STOP_EXIT_CODES[reason], text


_STATUS = {
    Trigger.COMPLETE: RunState.COMPLETED,
    Trigger.FAIL: RunState.FAILED,
    Trigger.CANCEL: RunState.CANCELLED,
    Trigger.PARK: RunState.NEEDS_INPUT,
}


def _completion(run: LiveRun, trigger: Trigger, finish: FinishReason, error: str | None, exit_code: int) -> RunComplete:
    return RunComplete(
        run_id=run.run_id or "",
        session_id=run.session_id,
        status=_STATUS[trigger],
        finish_reason=finish,
        error=error,
        cancelled=trigger is Trigger.CANCEL,
        exit_code=exit_code,
        started_at=run.started_at,
        ended_at=now_utc(),
    )
