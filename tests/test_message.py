"""Messages and their parts: one JSON form, there and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.codec import from_json, to_json
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
    part_from_json,
)

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
parts = st.one_of(
    st.builds(TextPart, words),
    st.builds(ReasoningPart, words),
    st.builds(ToolCallPart, words, words, words),
    st.builds(ToolResultPart, words, words, words, st.booleans(), st.integers(0, 2**40)),
    st.builds(FilePart, words, words, words, words),
    st.builds(FinishPart, st.sampled_from(FinishReason), st.booleans(), words),
)


@given(parts)
def test_part_comes_back_as_it_went(part: Part) -> None:
    back = part_from_json(from_json(to_json(part)))
    assert back == part
    assert type(back) is type(part)


def test_finish_comes_back_with_its_reason_and_not_a_word() -> None:
    back = part_from_json(from_json(to_json(FinishPart(FinishReason.CANCELLED))))
    assert isinstance(back, FinishPart)
    assert back.reason is FinishReason.CANCELLED


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"type": "smell"},
        {"type": "text"},
        {"type": "text", "text": "x", "colour": "red"},
        {"type": "finish"},
        {"type": "finish", "reason": "bored"},
    ],
)
def test_what_is_no_part_is_a_value_error(data: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        part_from_json(data)


def test_parts_of_one_kind_keep_their_order_and_text_is_joined() -> None:
    message = Message(
        "m1", Role.ASSISTANT, (TextPart("a"), ReasoningPart("hm"), TextPart("b"), ToolCallPart("c", "x", "{}")), "now"
    )
    assert message.text == "ab"
    assert message.parts_of(TextPart) == [TextPart("a"), TextPart("b")]
    assert message.parts_of(FinishPart) == []
