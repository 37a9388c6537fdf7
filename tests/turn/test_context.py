"""What the model is shown: whatever lies in the store, a provider takes it, and nobody's words are lost (J81, J82)."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from engine.codec import clean_text
from engine.lifecycle import FinishReason
from engine.message import (
    FilePart,
    FinishPart,
    Message,
    Part,
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from engine.turn.context import INTERRUPTED, Earlier, valid_history
from tests.turn.provider import refusals

words = st.one_of(
    st.sampled_from(["", " ", "\n\t", "hello", "\x00", "a\x00b", "\ud800", "caf\u00e9 \ud83d\ude00"]),
    st.text(st.characters(), max_size=8),
)
call_ids = st.sampled_from(["", "a", "b", "c", "c\x00", "c\ud800", "c\ufffd"])
tool_names = st.sampled_from(["read", "write", "", "no spaces", "\u00e9t\u00e9", "x" * 65, "a.b", "read\x00"])
raw_arguments = st.sampled_from(
    ["{}", '{"a": 1}', " {} ", "", "[1]", "null", '{"a": ', "nonsense", '{"a": NaN}', '{"a": "\x00"}']
    + ['{"a": "\ud800"}', '{"a": "\\ud800"}', '{"\u00e9": "\u2028"}', "{" * 3000, '{"a":' * 3000]
)
parts = st.one_of(
    st.builds(TextPart, words),
    st.builds(ReasoningPart, words),
    st.builds(ToolCallPart, call_ids, tool_names, raw_arguments),
    st.builds(ToolResultPart, call_ids, tool_names, words, st.booleans()),
    st.builds(FilePart, words, words, words, st.sampled_from(["", "aGVsbG8="])),
    st.builds(FinishPart, st.sampled_from(FinishReason), st.booleans(), words),
)
any_message = st.builds(
    Message, st.just("m"), st.sampled_from(Role), st.lists(parts, max_size=5).map(tuple), st.just("now")
)
any_history = st.lists(any_message, max_size=8)


def message(role: Role, *spoken: Part) -> Message:
    return Message("m", role, spoken, "now")


def user(text: str) -> Message:
    return message(Role.USER, TextPart(text))


def assistant(*spoken: Part) -> Message:
    return message(Role.ASSISTANT, *spoken)


def call(call_id: str, name: str = "read", arguments: str = "{}") -> ToolCallPart:
    return ToolCallPart(call_id, name, arguments)


def result(call_id: str, text: str = "ok", name: str = "read") -> Message:
    return message(Role.TOOL, ToolResultPart(call_id, name, text))


def results_of(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(part.call_id, part.text) for each in messages for part in each.parts_of(ToolResultPart)]


def said_by(role: Role, messages: Sequence[Message]) -> list[str]:
    return [
        clean_text(part.text)
        for each in messages
        if each.role is role
        for part in each.parts_of(TextPart)
        if part.text.strip()
    ]


@given(any_history)
def test_any_history_becomes_one_that_a_provider_takes(history: list[Message]) -> None:
    assert refusals(valid_history(history)) == []


@given(any_history)
def test_valid_history_is_left_as_it_is(history: list[Message]) -> None:
    valid = valid_history(history)
    assert valid_history(valid) == valid


@given(any_history)
def test_nothing_that_was_said_is_dropped_or_moved(history: list[Message]) -> None:
    valid = valid_history(history)
    for role in (Role.USER, Role.ASSISTANT):
        assert said_by(role, valid) == said_by(role, history)
    attached = [len(each.parts_of(FilePart)) for each in history if each.role is Role.USER]
    assert sum(len(each.parts_of(FilePart)) for each in valid) == sum(attached)


@given(any_history)
def test_each_call_is_shown_once_with_one_result(history: list[Message]) -> None:
    asked = sum(len(each.parts_of(ToolCallPart)) for each in history if each.role is Role.ASSISTANT)
    valid = valid_history(history)
    assert len([part for each in valid for part in each.parts_of(ToolCallPart)]) == asked
    assert len(results_of(valid)) == asked


@given(st.lists(st.tuples(words, any_history), max_size=3))
def test_view_kept_from_turn_to_turn_is_the_view_of_the_whole(turns: list[tuple[str, list[Message]]]) -> None:
    """`Earlier` takes one turn after the other; each begins with a prompt, so no group is cut in two."""
    whole = [each for prompt, rest in turns for each in (user(prompt), *rest)]
    kept = Earlier()
    for prompt, rest in turns:
        kept.add([user(prompt), *rest], saved=1 + len(rest))
    assert refusals(kept.messages) == []
    assert [(each.role, each.text) for each in kept.messages] == [
        (each.role, each.text) for each in valid_history(whole)
    ]
    assert kept.saved == len(whole)
    assert kept.call_ids == {part.call_id for each in kept.messages for part in each.parts_of(ToolCallPart)}


def test_checker_refuses_what_providers_refuse() -> None:
    """The control: a checker that takes all proves nothing."""
    for bad in [
        [user(" ")],
        [message(Role.USER)],
        [user("\x00")],
        [user("\ud800")],
        [result("a")],
        [assistant(call("a"))],
        [assistant(call("a")), user("next")],
        [assistant(call("a")), result("b")],
        [assistant(call("a")), result("a", name="write")],
        [assistant(call("a")), result("a", text="")],
        [assistant(call("a"), call("a")), message(Role.TOOL, *2 * (ToolResultPart("a", "read", "ok"),))],
        [assistant(call("", "read")), result("")],
        [assistant(call("a", "no spaces")), result("a", name="no spaces")],
        [assistant(call("a", arguments="[]")), result("a")],
        [assistant(call("a", arguments='{"x": NaN}')), result("a")],
        [assistant(ReasoningPart("hm"))],
    ]:
        assert refusals(bad), bad
    assert refusals([user("hi"), assistant(TextPart("ok"), call("a")), result("a"), assistant(TextPart("bye"))]) == []


def test_call_without_a_result_gets_one_that_says_interrupted() -> None:
    """J81: after a crash, between the call and its result."""
    valid = valid_history([user("go"), assistant(call("a")), user("again")])
    assert [each.role for each in valid] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.USER]
    (answer,) = valid[2].parts_of(ToolResultPart)
    assert (answer.call_id, answer.text, answer.is_error) == ("a", INTERRUPTED, True)


def test_only_the_missing_results_are_made_up() -> None:
    """J82: the others stand as they are, in call order whatever the order they were saved in."""
    valid = valid_history([assistant(call("a"), call("b"), call("c")), result("c", "three"), result("a", "one")])
    assert results_of(valid) == [("a", "one"), ("b", INTERRUPTED), ("c", "three")]


def test_id_that_comes_again_in_a_later_turn_is_paired_with_its_own_result() -> None:
    """E8: providers count from one again; a lookup over the whole history would mask the missing result."""
    history = [user("one"), assistant(call("a")), result("a", "first"), user("two"), assistant(call("a")), user("3")]
    assert results_of(valid_history(history)) == [("a", "first"), ("a", INTERRUPTED)]
    late = [assistant(call("a")), user("so?"), result("a", "too late")]
    assert results_of(valid_history(late)) == [("a", INTERRUPTED)]


def test_second_call_with_the_same_id_in_a_message_gets_an_id_of_its_own_and_no_result_of_the_other() -> None:
    valid = valid_history([assistant(call("a"), call("a", "write")), result("a", "mine"), result("a", "whose?")])
    (first_id, first), (second_id, second) = results_of(valid)
    assert (first_id, first, second) == ("a", "mine", INTERRUPTED)
    assert second_id != "a"


def test_result_that_says_nothing_is_shown_as_no_output() -> None:
    for text in ("", " \n"):
        assert results_of(valid_history([assistant(call("a")), result("a", text)])) == [("a", "(no output)")]


def test_turn_cancelled_on_entry_sends_its_prompt_and_no_empty_answer() -> None:
    cancelled = assistant(FinishPart(FinishReason.CANCELLED, detail="cancelled"))
    assert [each.text for each in valid_history([user("one"), cancelled, user("two")])] == ["one", "two"]


def test_reasoning_is_kept_for_people_and_not_sent_back() -> None:
    (sent,) = valid_history([assistant(ReasoningPart("hm"), TextPart("so"), FinishPart(FinishReason.END_TURN))])
    assert [type(part) for part in sent.parts if not isinstance(part, FinishPart)] == [TextPart]


def test_arguments_that_are_no_object_are_sent_as_an_empty_one() -> None:
    for bad in ("[1]", "", "{", '{"a": NaN}'):
        (sent, _) = valid_history([assistant(call("a", arguments=bad))])
        assert sent.parts_of(ToolCallPart)[0].arguments == "{}"
