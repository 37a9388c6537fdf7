"""Server-sent events out of bytes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.sse import EventTooLargeError, ServerEvent, SseDecoder

STREAM = (
    b"\xef\xbb\xbfdata: first\n\n: a comment\nevent: error\r\ndata:second\r\ndata: line two\r\n\r\nretry: 10\n\n"
    b"data: \xe2\x80\xa8 is no line end\r\rid: 7\ndata\n\ndata: cut"
)
EVENTS = [
    ServerEvent("", "first"),
    ServerEvent("error", "second\nline two"),
    ServerEvent("", "\u2028 is no line end"),
    ServerEvent("", ""),
    ServerEvent("", "cut", is_whole=False),
]


def decoded(chunks: list[bytes], decoder: SseDecoder) -> list[ServerEvent]:
    return [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.finish()


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_events_do_not_depend_on_how_the_stream_is_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[start:end] for start, end in itertools.pairwise(places)]
    assert decoded(chunks, SseDecoder()) == EVENTS


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    assert decoded([b"data: a\xffb\n\n"], SseDecoder()) == [ServerEvent("", "a\ufffdb")]


def test_comments_and_blank_lines_give_nothing() -> None:
    assert decoded([b": ping\n\n" * 3, b"\n\n"], SseDecoder()) == []


@pytest.mark.parametrize("chunk", [b"x" * 10, b"data: " + b"x" * 10 + b"\n", b"data:\n"])
def test_an_event_over_its_bound_is_refused(chunk: bytes) -> None:
    decoder = SseDecoder(event_max=64)
    with pytest.raises(EventTooLargeError):
        decoded([chunk] * 100, decoder)


def test_many_small_events_are_not_over_the_bound_of_one() -> None:
    assert len(decoded([b"data: 0123456789\n\n"] * 100, SseDecoder(event_max=64))) == 100


def test_a_large_line_in_small_pieces_is_taken_in_linear_time() -> None:
    pieces = [b"data: ", *[b"x" * 16] * 200_000, b"\n\n"]
    assert len(decoded(pieces, SseDecoder())[0].data) == 3_200_000
