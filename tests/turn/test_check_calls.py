"""The calls of a response before they are run: what is wrong with each, and what goes into the history (design, 6)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.broker.broker import Broker
from engine.message import Message, Role, ToolResultPart
from engine.model.base import RawToolCall
from engine.tools.base import Tool, ToolContext
from engine.turn.record import CheckedCall
from engine.turn.stop import StopSignal
from engine.turn.tool_calls import ToolRunner, check_calls
from tests.fakes import FakeTool, echo
from tests.turn.provider import refusals

TOOLS: dict[str, Tool] = {
    "look": FakeTool("look", echo),
    "find": FakeTool("find", echo),
    "change": FakeTool("change", echo, is_read_only=False),
}

raw_calls = st.builds(
    RawToolCall,
    st.sampled_from(["", "a", "b", "a\x00", "b\ud800"]),
    st.sampled_from(["look", "change", "nothing", "", "no spaces", "x" * 99, "look\ud800"]),
    st.sampled_from(
        ["", " ", "{}", '{"a": 1}', "[1]", "7", "null", '{"a": ', '{"a": NaN}', '{"a": "\\ud800"}', "\x00"]
    ),
)


def check(*raw: RawToolCall, used: set[str] | None = None) -> list[CheckedCall]:
    return check_calls(raw, TOOLS, set() if used is None else used)


@given(st.lists(raw_calls, max_size=6), st.sets(st.sampled_from(["a", "b"])))
def test_whatever_was_called_goes_into_a_history_that_a_provider_takes(raw: list[RawToolCall], used: set[str]) -> None:
    before = set(used)
    checked = check_calls(raw, TOOLS, used)
    assert len(checked) == len(raw)
    history = []
    if checked:
        answers = [ToolResultPart(call.part.call_id, call.part.name, "ok") for call in checked]
        history = [
            Message("m1", Role.ASSISTANT, tuple(call.part for call in checked), "now"),
            Message("m2", Role.TOOL, tuple(answers), "now"),
        ]
    assert refusals(history) == []
    ids = {call.part.call_id for call in checked}
    assert not ids & before, "an id of an earlier turn is not used again"
    assert used == before | ids


@given(st.lists(raw_calls, max_size=6))
def test_what_may_run_is_a_known_tool_with_an_object(raw: list[RawToolCall]) -> None:
    for call, given_call in zip(check(*raw), raw, strict=True):
        if call.problem is None:
            assert call.part.name == given_call.name
            assert call.part.name in TOOLS


def test_good_call_is_left_as_it_is() -> None:
    (call,) = check(RawToolCall("a", "look", '{"at": "h\u00e9re"}'))
    assert (call.problem, call.part.call_id, call.part.arguments) == (None, "a", '{"at": "h\u00e9re"}')
    assert call.arguments == {"at": "h\u00e9re"}


def test_call_without_arguments_has_none() -> None:
    for nothing in ("", "  "):
        (call,) = check(RawToolCall("a", "look", nothing))
        assert (call.problem, call.arguments, call.part.arguments) == (None, {}, "{}")


@pytest.mark.parametrize("bad", ['{"a": ', "nonsense", '{"a": NaN}', '{"a": "\\ud800"}', '{"a": "\x00"}', "\ud800"])
def test_arguments_that_do_not_parse_are_told_and_kept_out_of_the_history(bad: str) -> None:
    """E10."""
    (call,) = check(RawToolCall("a", "look", bad))
    assert "not valid JSON" in (call.problem or "")
    assert (call.part.arguments, call.arguments) == ("{}", {})


@pytest.mark.parametrize("bad", ["[1]", '"text"', "7", "null", "true"])
def test_arguments_that_are_no_object_are_told(bad: str) -> None:
    (call,) = check(RawToolCall("a", "look", bad))
    assert "not a JSON object" in (call.problem or "")
    assert call.part.arguments == "{}"


def test_unknown_tool_is_told_with_those_there_are() -> None:
    (call,) = check(RawToolCall("a", "no such\ud800", "{}"))
    assert call.problem == "there is no tool 'no such\ufffd'; the tools are: look, find, change"
    assert call.part.name == "unknown_tool"
    (call,) = check_calls([RawToolCall("a", "look", "{}")], {}, set())
    assert (call.problem or "").endswith("the tools are: none")


def test_second_call_with_an_id_is_not_run_the_first_is() -> None:
    first, second, third = check(*[RawToolCall("a", "change", "{}")] * 3)
    assert first.problem is None
    for other in (second, third):
        assert "duplicate call id 'a'" in (other.problem or "")
    assert len({first.part.call_id, second.part.call_id, third.part.call_id}) == 3


def test_ids_that_differ_in_what_cannot_be_sent_are_duplicates() -> None:
    _, second = check(RawToolCall("a\x00", "look", "{}"), RawToolCall("a\ud800", "look", "{}"))
    assert "duplicate" in (second.problem or "")


def test_calls_without_an_id_get_one_each_and_run() -> None:
    calls = check(*[RawToolCall("", "look", "{}")] * 2)
    assert [call.problem for call in calls] == [None, None]
    assert len({call.part.call_id for call in calls}) == 2


def test_id_of_an_earlier_turn_is_no_fault_but_its_duplicate_is() -> None:
    """Some providers count from one again in each response."""
    first, second = check(*[RawToolCall("a", "look", "{}")] * 2, used={"a"})
    assert first.problem is None
    assert first.part.call_id != "a"
    assert "duplicate" in (second.problem or "")


def shape(*names: str) -> list[list[str]]:
    runner = ToolRunner(TOOLS, ToolContext(Path(), Path()), StopSignal(), Broker(), run_id="r1", session_id="s1")
    calls = check(*[RawToolCall(str(number), name, "{}") for number, name in enumerate(names)])
    return [[call.part.name for call in batch] for batch in runner.batches(calls)]


def test_neighbours_that_change_nothing_go_together_the_rest_alone() -> None:
    assert shape() == []
    assert shape("look", "find") == [["look", "find"]]
    assert shape("change", "change") == [["change"], ["change"]]
    assert shape("look", "find", "change", "look", "change", "find") == [
        ["look", "find"],
        ["change"],
        ["look"],
        ["change"],
        ["find"],
    ]


def test_call_that_is_only_told_its_problem_changes_nothing() -> None:
    assert shape("look", "nothing", "find", "change") == [["look", "nothing", "find"], ["change"]]
