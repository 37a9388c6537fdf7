"""Responses in the dialects of many servers."""

from __future__ import annotations

from typing import Any

import pytest

from engine.model.base import ModelFinish, RawToolCall, ReasoningChunk, ResponseEnd, TextChunk, ToolCallChunk
from engine.model.chat_response import BrokenOffError, ChatResponse, MalformedResponseError
from engine.run import Usage
from tests.loopback.replies import chunk, usage, usage_chunk


def ended(*chunks: Any) -> ResponseEnd:
    response = ChatResponse()
    for each in chunks:
        response.take(each)
    return response.end()


def calls(*fragments: dict[str, Any]) -> dict[str, Any]:
    return chunk({"tool_calls": list(fragments)})


def call(name: str | None = None, arguments: Any = None, **more: Any) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {"function": function, **more}


STOP = chunk({}, "stop")


def test_text_and_reasoning_come_as_they_are_written() -> None:
    response = ChatResponse()
    assert response.take(chunk({"role": "assistant", "content": None})) == []
    assert response.take(chunk({"reasoning_content": "hm"})) == [ReasoningChunk("hm")]
    assert response.take(chunk({"reasoning": "so", "content": "yes"})) == [ReasoningChunk("so"), TextChunk("yes")]
    assert not response.is_finished
    response.take(STOP)
    assert response.end() == ResponseEnd(ModelFinish.STOP)


def test_reasoning_sent_under_both_names_is_taken_once() -> None:
    assert ChatResponse().take(chunk({"reasoning": "hm", "reasoning_content": "hm"})) == [ReasoningChunk("hm")]


def test_typed_parts_are_text_and_thoughts() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "yes"}]
    assert ChatResponse().take(chunk({"content": parts})) == [ReasoningChunk("hm"), TextChunk("yes")]


def test_a_refusal_is_the_answer() -> None:
    assert ChatResponse().take(chunk({"refusal": "I cannot."})) == [TextChunk("I cannot.")]


def test_parallel_calls_are_put_together_by_index() -> None:
    end = ended(
        calls(call("read", "", index=0, id="a")),
        calls(call("ls", '{"pa', index=1, id="b")),
        calls(call(None, '{"x":', index=0), call(None, 'th":1}', index=1)),
        calls(call(None, "1}", index=0)),
        chunk({}, "tool_calls"),
    )
    assert end.finish is ModelFinish.TOOL_CALLS
    assert end.tool_calls == (RawToolCall("a", "read", '{"x":1}'), RawToolCall("b", "ls", '{"path":1}'))


def test_a_call_that_is_being_written_shows_progress() -> None:
    response = ChatResponse()
    assert response.take(calls(call("read", "12", index=3, id="a"))) == [ToolCallChunk(0, 2)]
    assert response.take(calls(call(None, "345", index=3))) == [ToolCallChunk(0, 5)]


def test_calls_without_an_index_go_by_id_and_by_order() -> None:
    end = ended(
        calls(call("read", "1", id="a")), calls(call(None, "2")), calls(call("ls", "3", id="b")),
        calls(call(None, "4", id="a")), STOP,
    )  # fmt: skip
    assert end.tool_calls == (RawToolCall("a", "read", "124"), RawToolCall("b", "ls", "3"))


def test_whole_calls_under_one_index_stay_apart() -> None:
    end = ended(calls(call("read", "{}", index=0, id="a")), calls(call("ls", "{}", index=0, id="b")), STOP)
    assert [(each.call_id, each.name) for each in end.tool_calls] == [("a", "read"), ("b", "ls")]


def test_a_name_and_an_id_repeated_with_each_fragment_count_once() -> None:
    end = ended(calls(call("read", "1", index=0, id="a")), calls(call("read", "2", index=0, id="a")), STOP)
    assert end.tool_calls == (RawToolCall("a", "read", "12"),)


def test_a_call_without_an_id_gets_one_of_its_own() -> None:
    end = ended(calls(call("read", "{}", index=0)), calls(call("read", "{}", index=1)), STOP)
    ids = {each.call_id for each in end.tool_calls}
    assert len(ids) == 2
    assert all(ids)


def test_arguments_sent_as_an_object_become_text() -> None:
    assert ended(calls(call("read", {"a": [1]}, index=0, id="a")), STOP).tool_calls[0].arguments == '{"a":[1]}'


def test_a_legacy_function_call_is_a_tool_call() -> None:
    end = ended(
        chunk({"function_call": {"name": "read", "arguments": "{"}}),
        chunk({"function_call": {"arguments": "}"}}, "function_call"),
    )
    assert [(each.name, each.arguments) for each in end.tool_calls] == [("read", "{}")]
    assert end.finish is ModelFinish.TOOL_CALLS


@pytest.mark.parametrize(
    ("word", "finish"),
    [
        ("stop", ModelFinish.STOP),
        ("tool_calls", ModelFinish.STOP),  # it says so, but none came
        ("length", ModelFinish.LENGTH),
        ("content_filter", ModelFinish.CONTENT_FILTER),
        ("something_new", ModelFinish.STOP),
    ],
)
def test_finish_words_without_calls(word: str, finish: ModelFinish) -> None:
    assert ended(chunk({"content": "x"}, word)).finish is finish


@pytest.mark.parametrize(
    ("word", "finish"),
    [
        ("stop", ModelFinish.TOOL_CALLS),
        ("tool_calls", ModelFinish.TOOL_CALLS),
        ("length", ModelFinish.LENGTH),
        ("content_filter", ModelFinish.CONTENT_FILTER),
    ],
)
def test_finish_words_with_calls(word: str, finish: ModelFinish) -> None:
    assert ended(calls(call("read", "{}", index=0, id="a")), chunk({}, word)).finish is finish


def test_calls_with_an_unknown_finish_are_not_passed_on() -> None:
    with pytest.raises(MalformedResponseError, match="something_new"):
        ended(calls(call("read", "{}", index=0, id="a")), chunk({}, "something_new"))


@pytest.mark.parametrize("word", ["", "null", None])
def test_empty_finish_words_are_no_end(word: str | None) -> None:
    response = ChatResponse()
    response.take(chunk({"content": "x"}, word))
    assert not response.is_finished


def test_a_server_that_gives_up_is_no_end() -> None:
    with pytest.raises(BrokenOffError):
        ChatResponse().take(chunk({}, "error"))


def test_usage_is_counted_once_wherever_it_stands() -> None:
    full = {"cached": 3, "reasoning": 2}
    expected = Usage(10, 5, 3, 2)
    behind = ended(STOP, usage_chunk(10, 5, **full))
    on_last = ended({**STOP, "usage": usage(10, 5, **full)})
    repeated = ended({**chunk({"content": "x"}), "usage": usage(10, 1)}, STOP, usage_chunk(10, 5, **full))
    nulled = ended({**chunk({"content": "x"}), "usage": None}, STOP, usage_chunk(10, 5, **full), {"choices": []})
    assert behind.usage == on_last.usage == repeated.usage == nulled.usage == expected


def test_usage_that_makes_no_sense_counts_as_nothing() -> None:
    odd = {"prompt_tokens": "many", "completion_tokens": -3, "prompt_tokens_details": 7}
    assert ended(STOP, {"choices": [], "usage": odd}).usage == Usage()
    assert ended(STOP).usage is None


def test_halves_of_a_surrogate_pair_meet_again() -> None:
    response = ChatResponse()
    first = response.take(chunk({"content": "a\ud83d"}))
    second = response.take(chunk({"content": "\ude00b"}))
    assert first == [TextChunk("a")]
    assert second == [TextChunk("\U0001f600b")]
    assert response.take(chunk({"content": "x\ud83dy\x00"})) == [TextChunk("x\ufffdy\ufffd")]


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": None}, {"choices": "x"}, {"choices": [None, 3]}, {"choices": [{"delta": []}]}, {},
        {"choices": [{"index": 1, "delta": {"content": "another"}, "finish_reason": "stop"}]},
        {"choices": [{"delta": {"content": 7, "tool_calls": {"a": 1}}}]},
        {"choices": [{"delta": {"tool_calls": [None, "x"]}}]},
    ],
)  # fmt: skip
def test_chunks_that_say_nothing_are_passed_over(odd: dict[str, Any]) -> None:
    response = ChatResponse()
    assert response.take(odd) == []
    assert not response.is_finished


@pytest.mark.parametrize("odd", [None, 3, "text", ["list"]])
def test_what_is_no_object_is_malformed(odd: Any) -> None:
    with pytest.raises(MalformedResponseError):
        ChatResponse().take(odd)


def test_a_response_has_a_bound() -> None:
    response = ChatResponse(response_max=100)
    for _ in range(10):
        response.take(calls(call("read", "x" * 10, index=0)))
    with pytest.raises(MalformedResponseError, match="longer"):
        response.take(chunk({"content": "x"}))
    with pytest.raises(MalformedResponseError, match="tool calls"):
        ended(*(calls(call("read", index=number)) for number in range(1001)))
