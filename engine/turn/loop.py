"""The turn: a loop of steps, each one model call and the tool calls it asked for (design, 6).

`Turn.run` either returns how the turn ended by itself, or raises: stopped, a provider fault, a store error, a bug. In
each case `record` holds what was done, and the dispatcher saves it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.broker.broker import Broker
from engine.clock import now_utc
from engine.event import MessageSaved
from engine.ids import new_message_id
from engine.lifecycle import FinishReason
from engine.limits import RunLimits
from engine.message import Message, Role, TextPart
from engine.model.base import FaultKind, Model, ModelFault, ModelFinish, ModelRequest, ResponseEnd, ToolSpec
from engine.run import Prompt
from engine.store.base import Store
from engine.tools.base import Tool, ToolContext
from engine.turn.ask import Asker
from engine.turn.context import valid_history
from engine.turn.guard import GuardedModel
from engine.turn.record import CheckedCall, TurnRecord
from engine.turn.stop import StopSignal
from engine.turn.tool_calls import ToolRunner, check_calls

LOOP_WINDOW = 10
"""Steps that the loop detector looks back on."""

LOOP_REPEATS = 5
"""Equal steps within the window that are still no loop."""

CUT_CALL = "not run: the response was cut by the output limit; send the call again, shorter"
"""The result of a call in a response that is not whole (design, 6)."""


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A prompt that joins the active turn."""

    accept_seq: int
    prompt: Prompt


class FollowUps(Protocol):
    """Where a turn gets the prompts that came in for it meanwhile."""

    def take_follow_ups(self) -> list[FollowUp]:
        """Take them out, oldest first; at a step this also drops what a cancel covers."""
        ...

    def restore_follow_ups(self, follow_ups: Sequence[FollowUp]) -> None:
        """Put back those that could not be saved."""
        ...

    def confirm_follow_ups(self) -> None:
        """Those taken last are saved: they are this turn's now."""
        ...


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How a turn ended by itself. `message` is its last assistant message, not saved yet."""

    finish: FinishReason
    message: Message
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TurnParts:
    """What a turn is made of; one object, so that whoever assembles it names each piece once."""

    run_id: str | None
    session_id: str
    accept_seq: int
    system: str
    limits: RunLimits
    model: Model
    tools: Mapping[str, Tool]
    tool_context: ToolContext
    stop: StopSignal
    store: Store
    broker: Broker
    follow_ups: FollowUps
    remaining: Callable[[], float | None]


class Turn:
    """One run's turn."""

    def __init__(self, parts: TurnParts, record: TurnRecord) -> None:
        self._parts = parts
        self.record = record
        guarded = GuardedModel(parts.model, parts.stop)
        self._asker = Asker(
            guarded,
            parts.broker,
            record,
            parts.limits,
            run_id=parts.run_id,
            session_id=parts.session_id,
            remaining=parts.remaining,
        )
        self._runner = ToolRunner(
            parts.tools,
            parts.tool_context,
            parts.stop,
            parts.broker,
            run_id=parts.run_id,
            session_id=parts.session_id,
        )
        # Schemas cost an import of pydantic: made only for a model that is offered tools.
        self._specs = (
            tuple(ToolSpec(tool.name, tool.description, tool.schema) for tool in parts.tools.values())
            if parts.model.takes_tools
            else ()
        )
        self._used_ids = set(record.earlier.call_ids)
        self._recent: deque[tuple[object, ...]] = deque(maxlen=LOOP_WINDOW)

    async def run(self) -> TurnEnd:
        """Step until the model stops asking for tools or a limit is met.

        Raises:
            TurnStoppedError: it was stopped.
            ModelFault: the model did not answer.
            StoreError: a message could not be saved.
        """
        limits = self._parts.limits
        while self.record.steps < limits.max_steps:
            await self._fold_follow_ups()
            end = await self._ask()
            finish = _finish_of(end)
            # What the content filter stopped is not whole, and there is nobody to tell: its calls are dropped.
            raw_calls = () if end.finish is ModelFinish.CONTENT_FILTER else end.tool_calls
            calls = check_calls(raw_calls, self._parts.tools, self._used_ids)
            if not calls:
                return self._ended(finish, end)
            if end.finish is ModelFinish.LENGTH:
                for call in calls:
                    call.problem = CUT_CALL
            self.record.close_draft(calls, finish if end.finish is ModelFinish.LENGTH else None)
            await self._save()
            for batch in self._runner.batches(calls):
                await self._runner.run_batch(batch)
                self.record.tell_results()
                await self._save()
            if self._is_looping(calls):
                problem = "loop: the same call with the same arguments came again and again"
                return TurnEnd(FinishReason.LIMIT, self.record.closing(FinishReason.LIMIT, problem), problem)
        problem = f"the limit of {limits.max_steps} steps was met (--max-steps)"
        return TurnEnd(FinishReason.MAX_STEPS, self.record.closing(FinishReason.MAX_STEPS, problem), problem)

    async def _ask(self) -> ResponseEnd:
        """One step's response; an answer with nothing in it is asked for once more, then it is a failure."""
        messages = (*self.record.earlier.messages, *valid_history(self.record.history))
        request = ModelRequest(messages, self._parts.system, self._specs)
        self.record.steps += 1
        for is_last in (False, True):
            end = await self._asker.ask(request)
            has_content = bool(end.tool_calls) or bool("".join(self.record.draft_text).strip())
            if has_content or end.finish in (ModelFinish.LENGTH, ModelFinish.CONTENT_FILTER):
                return end
            if not is_last:
                self._asker.note_retry("empty response")
        raise ModelFault(FaultKind.REFUSED, f"empty response: {self._parts.model.name} twice gave no text and no call")

    async def _fold_follow_ups(self) -> None:
        """Join what came in meanwhile as user messages; what cannot be saved goes back to the queue (FIX-19)."""
        waiting = self._parts.follow_ups.take_follow_ups()
        if not waiting:
            return
        messages = [user_message(each.prompt) for each in waiting]
        try:
            await self._parts.store.add_messages(
                self._parts.accept_seq,
                self._parts.session_id,
                messages,
                folded=[each.accept_seq for each in waiting],
            )
        except BaseException:
            self._parts.follow_ups.restore_follow_ups(waiting)
            raise
        self._parts.follow_ups.confirm_follow_ups()
        self.record.history += messages
        self._announce(messages)

    async def _save(self) -> None:
        """Persist the finished messages; they stay in `unsaved` until they are known to be in the store."""
        waiting = list(self.record.unsaved)
        if not waiting:
            return
        await self._parts.store.add_messages(self._parts.accept_seq, self._parts.session_id, waiting)
        del self.record.unsaved[: len(waiting)]
        self._announce(waiting)

    def _announce(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._parts.broker.publish(MessageSaved(self._parts.run_id, self._parts.session_id, message))

    def _ended(self, finish: FinishReason, end: ResponseEnd) -> TurnEnd:
        """The model asked for nothing more."""
        error = None
        if end.finish is ModelFinish.CONTENT_FILTER:
            error = "the provider's content filter stopped the answer"
        elif end.finish is ModelFinish.LENGTH:
            error = "the answer was cut by the model's output limit"
        return TurnEnd(finish, self.record.close_draft([], finish, error or ""), error)

    def _is_looping(self, calls: Sequence[CheckedCall]) -> bool:
        signature = tuple(
            (call.part.name, call.part.arguments, call.result.text if call.result else "") for call in calls
        )
        self._recent.append(signature)
        return Counter(self._recent)[signature] > LOOP_REPEATS


def user_message(prompt: Prompt) -> Message:
    """The prompt as a message of the history."""
    parts = ((TextPart(prompt.text),) if prompt.text else ()) + prompt.files
    return Message(new_message_id(), Role.USER, parts, now_utc())


def _finish_of(end: ResponseEnd) -> FinishReason:
    match end.finish:
        case ModelFinish.LENGTH:
            return FinishReason.MAX_TOKENS
        case ModelFinish.CONTENT_FILTER:
            return FinishReason.ERROR
        case ModelFinish.STOP | ModelFinish.TOOL_CALLS:
            return FinishReason.END_TURN
