"""Ids: which a caller may bring, and which we mint."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.ids import ID_MAX, is_legal_id, new_id, new_message_id, new_run_id, new_session_id

LEGAL = string.ascii_letters + string.digits + "._:@+-"


@pytest.mark.parametrize("text", ["a", "7", "build-17", "a.b_c:d@e+f-g", "x" * ID_MAX])
def test_what_may_serve_as_an_id(text: str) -> None:
    assert is_legal_id(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-a",
        ".hidden",
        "--run-id",
        "a b",
        "a/b",
        "a\n",
        "\na",
        "caf\u00e9",
        "a\x00",
        "\u0661",
        "x" * (ID_MAX + 1),
    ],
)
def test_what_may_not(text: str) -> None:
    assert not is_legal_id(text)


@given(st.text(max_size=ID_MAX + 2))
def test_legal_ids_are_what_they_are_said_to_be(text: str) -> None:
    expected = 0 < len(text) <= ID_MAX and set(text) <= set(LEGAL) and text[0] in LEGAL[:62]
    assert is_legal_id(text) == expected


def test_minted_ids_are_legal_unlike_and_say_what_they_are_of() -> None:
    for make, prefix in ((new_run_id, "run-"), (new_session_id, "ses-"), (new_message_id, "msg-")):
        ids = [make() for _ in range(1000)]
        assert len(set(ids)) == 1000
        assert all(is_legal_id(each) and each.startswith(prefix) and len(each) == 24 for each in ids)


def test_minted_ids_sort_by_age(monkeypatch: pytest.MonkeyPatch) -> None:
    minted = []
    for milliseconds in (1, 2, 33, 1_800_000_000_000, 1_800_000_000_001, 9_000_000_000_000):
        monkeypatch.setattr("time.time_ns", lambda at=milliseconds: at * 1_000_000)
        minted.append(new_id("x"))
    assert minted == sorted(minted)
