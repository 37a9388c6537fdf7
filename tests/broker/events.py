"""Events in short, and what a subscription holds."""

from __future__ import annotations

from engine.broker.broker import Subscription
from engine.event import Event, MessageSaved, RunCompleted, TextDelta
from engine.message import Message, Role, TextPart
from engine.run import RunComplete

RUN = "run-1"
SESSION = "ses-1"


def delta(text: str, run_id: str | None = RUN, session_id: str = SESSION) -> TextDelta:
    return TextDelta(run_id, session_id, text)


def saved(text: str, run_id: str | None = RUN, session_id: str = SESSION) -> MessageSaved:
    message = Message(f"msg-{text}", Role.ASSISTANT, (TextPart(text),), "2026-11-30T00:00:00.000000Z")
    return MessageSaved(run_id, session_id, message)


def completed(run_id: str = RUN, session_id: str = SESSION) -> RunCompleted:
    return RunCompleted(RunComplete(run_id=run_id, session_id=session_id))


def drain(subscription: Subscription) -> list[Event]:
    """All that is buffered, taken out without waiting."""
    events: list[Event] = []
    while (event := subscription.next_nowait()) is not None:
        events.append(event)
    return events


def words(events: list[Event]) -> list[str]:
    """The texts of deltas and messages, `complete` for a completion."""
    found: list[str] = []
    for event in events:
        match event:
            case TextDelta():
                found.append(event.text)
            case MessageSaved():
                found.append(event.message.text)
            case RunCompleted():
                found.append("complete")
            case _:
                found.append(event.type)
    return found
