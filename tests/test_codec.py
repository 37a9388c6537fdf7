"""The boundary for text and JSON: what passes it can be stored and sent anywhere (design, 6 and 8)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.codec import clean_text, decode_text, from_json, is_clean, to_json
from engine.run import Usage

anything = st.text(st.characters(), max_size=30)


@given(anything)
def test_clean_text_can_be_encoded_and_holds_no_nul(text: str) -> None:
    cleaned = clean_text(text)
    assert b"\0" not in cleaned.encode("utf-8")
    assert len(cleaned) == len(text), "a character is replaced, never dropped"
    assert is_clean(cleaned)
    assert clean_text(cleaned) == cleaned


@given(anything)
def test_text_that_is_clean_is_left_as_it_is(text: str) -> None:
    assert is_clean(text) == (clean_text(text) == text)


def test_replacement_is_seen() -> None:
    assert clean_text("a\x00b\ud800c\udfff") == "a\ufffdb\ufffdc\ufffd"
    assert clean_text("caf\u00e9 \U0001f600\u2028") == "caf\u00e9 \U0001f600\u2028"


@given(st.binary(max_size=40))
def test_any_bytes_become_clean_text(raw: bytes) -> None:
    assert is_clean(decode_text(raw))


def test_bytes_that_are_utf_8_are_read_as_they_are() -> None:
    assert decode_text("caf\u00e9 \U0001f600".encode()) == "caf\u00e9 \U0001f600"
    assert decode_text(b"a\xff\x00b\xed\xa0\x80") == "a\ufffd\ufffdb\ufffd\ufffd\ufffd"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab\u00e9"), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_json_comes_back_as_it_went(value: object) -> None:
    raw = to_json(value)
    assert from_json(raw) == value
    assert from_json(raw.decode()) == value
    assert json.loads(raw) == value, "any other reader reads the same"


def test_dataclasses_are_json_objects() -> None:
    assert json.loads(to_json(Usage(1, 2))) == {
        "input_tokens": 1,
        "output_tokens": 2,
        "cached_tokens": 0,
        "reasoning_tokens": 0,
    }


@pytest.mark.parametrize(
    "raw", ["", "{", "[1,]", "NaN", '{"a": Infinity}', '"\ud800"', '"\\ud800"', "{'a': 1}", b"\xff"]
)
def test_what_is_no_json_is_a_value_error(raw: str | bytes) -> None:
    with pytest.raises(ValueError):
        from_json(raw)
