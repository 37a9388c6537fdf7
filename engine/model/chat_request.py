"""The chat-completions form of a request: messages, attachments and tools as OpenAI-compatible servers take them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from engine.codec import clean_text
from engine.message import FilePart, Message, Role, TextPart, ToolCallPart, ToolResultPart
from engine.model.base import ModelRequest, ToolSpec

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The images that chat-completions servers with a vision model take."""


def chat_payload(
    model_id: str, request: ModelRequest, *, takes_tools: bool, media_types: frozenset[str]
) -> dict[str, Any]:
    """The body of a streamed request."""
    payload: dict[str, Any] = {
        "model": clean_text(model_id),
        "messages": chat_messages(request, takes_tools=takes_tools, media_types=media_types),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if takes_tools and request.tools:
        payload["tools"] = [_tool(spec) for spec in request.tools]
    return payload


def chat_messages(request: ModelRequest, *, takes_tools: bool, media_types: frozenset[str]) -> list[dict[str, Any]]:
    """System text and history. What would be empty is left out: providers refuse it."""
    messages: list[dict[str, Any]] = []
    if request.system.strip():
        messages.append({"role": "system", "content": clean_text(request.system)})
    for message in request.messages:
        match message.role:
            case Role.USER:
                messages += _user(message, media_types)
            case Role.ASSISTANT:
                messages += _assistant(message) if takes_tools else _assistant_in_words(message)
            case Role.TOOL:
                messages += _tool_results(message) if takes_tools else _results_in_words(message)
    return messages


def _user(message: Message, media_types: frozenset[str]) -> Iterator[dict[str, Any]]:
    """Plain text where there is no image: every server takes that, not every one a list of parts."""
    words: list[str] = []
    images: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, TextPart) and part.text:
            words.append(part.text)
        elif isinstance(part, FilePart) and part.data and part.media_type in media_types:
            url = f"data:{part.media_type};base64,{part.data}"
            images.append({"type": "image_url", "image_url": {"url": url}})
            words.append(f"[attached image: {_one_line(part.name)}]")
        elif isinstance(part, FilePart):
            words.append(_file_in_words(part))
    text = clean_text("\n\n".join(words))
    if images:
        yield {"role": "user", "content": [{"type": "text", "text": text}, *images]}
    elif text.strip():
        yield {"role": "user", "content": text}


def _file_in_words(part: FilePart) -> str:
    """A text file between lines that name it; of a binary one that the model does not take, only that it was there."""
    name = _one_line(part.name)
    if part.data:
        return f"[attached file {name} of type {_one_line(part.media_type)}, which this model cannot read]"
    end = "" if part.text.endswith("\n") else "\n"
    return f"----- begin of file: {name} -----\n{part.text}{end}----- end of file: {name} -----"


def _assistant(message: Message) -> Iterator[dict[str, Any]]:
    """Text and calls; reasoning is kept for people and not sent back."""
    text = clean_text(message.text)
    calls = [
        {
            "id": clean_text(call.call_id),
            "type": "function",
            "function": {"name": call.name, "arguments": clean_text(call.arguments) or "{}"},
        }
        for call in message.parts_of(ToolCallPart)
    ]
    if calls:
        yield {"role": "assistant", "content": text if text.strip() else None, "tool_calls": calls}
    elif text.strip():
        yield {"role": "assistant", "content": text}


def _tool_results(message: Message) -> Iterator[dict[str, Any]]:
    for result in message.parts_of(ToolResultPart):
        text = clean_text(result.text)
        yield {
            "role": "tool",
            "tool_call_id": clean_text(result.call_id),
            "content": text if text.strip() else "(no output)",
        }


def _assistant_in_words(message: Message) -> Iterator[dict[str, Any]]:
    """For a model without tools that goes on with a session that used them."""
    calls: Sequence[ToolCallPart] = message.parts_of(ToolCallPart)
    words = [message.text, *(f"[called {call.name} with {call.arguments}]" for call in calls)]
    text = clean_text("\n".join(word for word in words if word))
    if text.strip():
        yield {"role": "assistant", "content": text}


def _results_in_words(message: Message) -> Iterator[dict[str, Any]]:
    results = message.parts_of(ToolResultPart)
    if results:
        words = [f"[result of {result.name}]\n{result.text}" for result in results]
        yield {"role": "user", "content": clean_text("\n\n".join(words))}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": clean_text(spec.description), "parameters": spec.schema}
    return {"type": "function", "function": function}


def _one_line(text: str) -> str:
    return " ".join(text.split())
