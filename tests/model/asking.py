"""What tests of adapters share: a request, and the whole of an answer."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import anyio

from engine.message import Message, Part, Role, TextPart
from engine.model.base import Model, ModelEvent, ModelFault, ModelRequest, ResponseEnd, TextChunk, ToolSpec
from engine.model.openai_chat import OpenAIChatModel
from tests.loopback import LoopbackProvider

TOOL = ToolSpec("read", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})


def said(role: Role, *parts: Part) -> Message:
    return Message("msg-1", role, parts, "2026-11-30T10:00:00.000000Z")


def user(text: str = "hello") -> Message:
    return said(Role.USER, TextPart(text))


def asks(*messages: Message, system: str = "", tools: tuple[ToolSpec, ...] = ()) -> ModelRequest:
    return ModelRequest(messages or (user(),), system, tools)


def chat_model(provider: LoopbackProvider, **more: Any) -> OpenAIChatModel:
    return OpenAIChatModel("openai/test", "test", provider.url, "sk-test-key-0001", **more)


async def events_of(model: Model, request: ModelRequest | None = None) -> list[ModelEvent]:
    """All events of one call."""
    with anyio.fail_after(5):
        async with aclosing(model.stream(request or asks())) as events:
            return [event async for event in events]


async def answer_of(model: Model, request: ModelRequest | None = None) -> tuple[str, ResponseEnd]:
    """The text of one call, and its end."""
    events = await events_of(model, request)
    end = events[-1]
    assert isinstance(end, ResponseEnd)
    return "".join(event.text for event in events if isinstance(event, TextChunk)), end


async def fault_of(model: Model, request: ModelRequest | None = None) -> tuple[ModelFault, str]:
    """The fault that one call ends with, and the text that came before it."""
    text = ""
    with anyio.fail_after(5):
        try:
            async with aclosing(model.stream(request or asks())) as events:
                async for event in events:
                    assert not isinstance(event, ResponseEnd), "a response with a fault has no end"
                    text += event.text if isinstance(event, TextChunk) else ""
        except ModelFault as fault:
            return fault, text
    raise AssertionError(f"no fault; the text is {text!r}")
