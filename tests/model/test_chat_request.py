"""Requests as chat-completions servers take them."""

from __future__ import annotations

from typing import Any

from engine.codec import to_json
from engine.message import FilePart, Message, ReasoningPart, Role, TextPart, ToolCallPart, ToolResultPart
from engine.model.chat_request import IMAGE_TYPES, chat_payload
from tests.loopback.history import faults_of
from tests.model.asking import TOOL, asks, said, user

CALLED = (
    said(
        Role.ASSISTANT, TextPart("let me see"), ToolCallPart("a", "read", '{"path":"x"}'), ToolCallPart("b", "ls", "{}")
    ),
    said(Role.TOOL, ToolResultPart("a", "read", "text"), ToolResultPart("b", "ls", "")),
)


def payload(*messages: Message, takes_tools: bool = True, **more: Any) -> dict[str, Any]:
    request = asks(*messages, **more)
    body = chat_payload("some/model", request, takes_tools=takes_tools, media_types=IMAGE_TYPES)
    assert faults_of(to_json(body))[1] == []
    return body


def test_the_system_text_comes_first_and_the_stream_brings_its_usage() -> None:
    body = payload(user("hello"), system="be brief")
    assert body["messages"] == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    assert body["model"] == "some/model"
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert "tools" not in body


def test_tools_are_offered_with_their_schema() -> None:
    function = {"name": "read", "description": "Reads a file.", "parameters": TOOL.schema}
    assert payload(tools=(TOOL,))["tools"] == [{"type": "function", "function": function}]
    assert "tools" not in payload(tools=(TOOL,), takes_tools=False)


def test_calls_and_results_keep_their_ids_and_order() -> None:
    assistant, first, second = payload(user(), *CALLED)["messages"][1:]
    assert assistant["content"] == "let me see"
    assert [call["id"] for call in assistant["tool_calls"]] == ["a", "b"]
    assert assistant["tool_calls"][0]["function"] == {"name": "read", "arguments": '{"path":"x"}'}
    assert first == {"role": "tool", "tool_call_id": "a", "content": "text"}
    assert second == {"role": "tool", "tool_call_id": "b", "content": "(no output)"}


def test_reasoning_stays_here_and_empty_messages_too() -> None:
    history = (user(), said(Role.ASSISTANT, ReasoningPart("hm")), said(Role.ASSISTANT, TextPart(" ")), user("again"))
    assert [message["content"] for message in payload(*history)["messages"]] == ["hello", "again"]


def test_a_text_file_stands_under_its_name() -> None:
    file = FilePart("notes\n.txt", "text/plain", text="line one\nline two")
    content = payload(said(Role.USER, TextPart("summarise"), file))["messages"][0]["content"]
    assert content == (
        "summarise\n\n----- begin of file: notes .txt -----\nline one\nline two\n----- end of file: notes .txt -----"
    )


def test_an_image_goes_along_as_a_data_uri() -> None:
    image = FilePart("a.png", "image/png", data="aGk=")
    text, part = payload(said(Role.USER, TextPart("look"), image))["messages"][0]["content"]
    assert part == {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    assert text["text"].startswith("look")
    assert "a.png" in text["text"]


def test_a_file_that_the_model_cannot_read_is_named() -> None:
    sound = FilePart("a.wav", "audio/wav", data="aGk=")
    assert "a.wav" in payload(said(Role.USER, sound))["messages"][0]["content"]


def test_a_model_without_tools_is_told_of_calls_in_words() -> None:
    messages = payload(user(), *CALLED, takes_tools=False)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert "called read" in messages[1]["content"]
    assert "result of read" in messages[2]["content"]


def test_text_that_providers_refuse_is_replaced() -> None:
    broken = "a\x00b\ud800"
    call = ToolCallPart("i", "read", '{"a":"b"}')
    history = (
        user(broken),
        said(Role.ASSISTANT, TextPart(broken), call),
        said(Role.TOOL, ToolResultPart("i", "read", broken)),
    )
    body = payload(*history, system=broken)
    assert [message["content"] for message in body["messages"]] == ["a\ufffdb\ufffd"] * 4
