"""The ledger of a turn: however it ends, `closing` leaves a history that goes on (design, 6; M10)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.clock import now_utc
from engine.lifecycle import FinishReason
from engine.message import (
    FinishPart,
    Message,
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from engine.turn.context import valid_history
from engine.turn.record import INTERRUPTED, NOT_STARTED, CheckedCall, TurnRecord
from tests.turn.provider import refusals

RESULTS = {"not started": NOT_STARTED, "begun": INTERRUPTED, "ended": "real"}


def checked(number: int, state: str = "not started") -> CheckedCall:
    call = CheckedCall(ToolCallPart(f"call-{number}", "read", "{}"), has_begun=state != "not started")
    if state == "ended":
        call.result = ToolResultPart(call.part.call_id, "read", "real", size=4)
    return call


def asked() -> TurnRecord:
    record = TurnRecord()
    record.history.append(Message("m0", Role.USER, (TextPart("go"),), now_utc()))
    return record


def finish_of(message: Message) -> FinishPart:
    (finish,) = message.parts_of(FinishPart)
    return finish


@given(st.lists(st.sampled_from(sorted(RESULTS)), max_size=5), st.booleans(), st.sampled_from(["", "half a sen"]))
def test_closing_gives_each_call_its_one_result_in_call_order(states: list[str], is_told: bool, draft: str) -> None:
    record = asked()
    if states:
        record.close_draft([checked(number, state) for number, state in enumerate(states)], None)
    if is_told:
        record.tell_results()
    record.draft_text.append(draft)
    last = record.closing(FinishReason.CANCELLED, "cancelled")
    told = [part for message in record.history for part in message.parts_of(ToolResultPart)]
    assert [part.call_id for part in told] == [f"call-{number}" for number in range(len(states))]
    assert [part.text for part in told] == [RESULTS[state] for state in states]
    assert [part.is_error for part in told] == [state != "ended" for state in states]
    assert record.history[-1] is last
    assert record.unsaved == record.history[1:], "all of it is still to be saved, once"
    assert refusals(valid_history(record.history)) == []
    assert len(valid_history(record.history)) == 1 + 2 * bool(states) + bool(draft)


def test_closing_with_nothing_done_leaves_an_empty_message_that_says_why() -> None:
    record = TurnRecord()
    message = record.closing(FinishReason.ERROR, "no model")
    assert message.parts == (FinishPart(FinishReason.ERROR, detail="no model"),)


def test_closing_keeps_unfinished_text_and_marks_it() -> None:
    record = asked()
    record.draft_reasoning.append("hm")
    record.draft_text += ["Hel", "lo"]
    message = record.closing(FinishReason.CANCELLED, "cancelled")
    assert message.text == "Hello"
    assert finish_of(message) == FinishPart(FinishReason.CANCELLED, is_partial=True, detail="cancelled")
    assert message.parts_of(ReasoningPart) == [ReasoningPart("hm")]


def test_closing_between_steps_does_not_repeat_the_finished_text() -> None:
    record = asked()
    record.draft_text.append("I will look")
    record.close_draft([checked(0, "ended")], None)
    record.tell_results()
    message = record.closing(FinishReason.MAX_STEPS, "enough")
    assert message.text == ""
    assert not finish_of(message).is_partial
    assert [each.text for each in record.history if each.role is Role.ASSISTANT] == ["I will look", ""]


def test_closing_cleans_what_the_model_wrote() -> None:
    record = asked()
    record.draft_text += ["a\x00", "\ud83d"]
    assert record.closing(FinishReason.ERROR, "cut").text == "a\ufffd\ufffd"


def test_results_are_told_up_to_the_first_gap_and_the_rest_later() -> None:
    record = asked()
    record.close_draft([checked(0, "ended"), checked(1, "begun"), checked(2, "ended")], None)
    record.tell_results()
    assert record.calls_told == 1
    record.calls[1].result = ToolResultPart("call-1", "read", "late", size=4)
    record.tell_results()
    record.tell_results()
    told = [part.text for message in record.history for part in message.parts_of(ToolResultPart)]
    assert told == ["real", "late", "real"]


@pytest.mark.parametrize("finish", [None, FinishReason.END_TURN])
def test_whole_response_is_no_partial_one(finish: FinishReason | None) -> None:
    record = asked()
    record.draft_text.append("all of it")
    message = record.close_draft([], finish)
    assert [part.is_partial for part in message.parts_of(FinishPart)] == [False] * (finish is not None)
    assert record.draft_text == []


def test_new_attempt_drops_what_the_last_one_left() -> None:
    record = asked()
    record.draft_text.append("first attempt")
    record.draft_reasoning.append("hm")
    record.open_draft()
    record.draft_text.append("second")
    assert record.close_draft([], FinishReason.END_TURN).parts[0] == TextPart("second")
