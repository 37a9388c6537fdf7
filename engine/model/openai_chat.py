"""Chat completions over server-sent events: OpenAI itself, and every server that speaks its dialect.

One request, no retry, no time limit but for connecting: the turn judges stalls and tries again (design, 6). Nothing is
an end but a finish reason: after it `[DONE]`, the end of the stream and even a reset are all the same.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

import anyio

from engine.codec import clean_text, from_json, to_json
from engine.errors import ConfigurationError
from engine.model.base import FaultKind, ModelEvent, ModelRequest
from engine.model.chat_request import IMAGE_TYPES, chat_payload
from engine.model.chat_response import RESPONSE_MAX, BrokenOffError, ChatResponse, MalformedResponseError
from engine.model.faults import Endpoint
from engine.model.sse import EventTooLargeError, ServerEvent, SseDecoder
from engine.model.transport import clean_base_url, join_url, open_http_client, shown_url

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

ERROR_BODY_MAX = 64 * 1024
"""Bytes of an error's body that are read: what it says stands at its start."""

TAIL_SECONDS = 5.0
"""How long a finished response may keep us waiting for its usage: it is whole, only the count is missing."""

DONE_TAIL_SECONDS = 0.2
"""How long after `[DONE]` the end of the body is awaited: with it the connection can serve the next step."""

CLOSE_SECONDS = 2.0
"""How long closing the connections may take."""


class OpenAIChatModel:
    """A model behind `POST {base_url}/chat/completions`. `extra_body` goes into every request.

    Raises:
        ConfigurationError: the base URL or the key cannot be used.
    """

    def __init__(
        self,
        name: str,
        model_id: str,
        base_url: str,
        api_key: str | None,
        *,
        takes_tools: bool = True,
        media_types: frozenset[str] = IMAGE_TYPES,
        extra_headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        key_variable: str = "OPENAI_API_KEY",
    ) -> None:
        self.name = name
        self.takes_tools = takes_tools
        self.media_types = media_types
        self._model_id = model_id
        self._base_url = clean_base_url(base_url)
        key = (api_key or "").strip()  # a secret read from a file often brings its line break along
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise ConfigurationError(f"{key_variable} holds characters that no key has: set it again")
        self._headers = {
            "accept": "text/event-stream",
            "accept-encoding": "identity",  # compression makes servers and proxies hold events back
            "content-type": "application/json",
            "user-agent": "agent-runner",
        }
        if self._base_url.startswith("http:"):
            # llama.cpp closes each connection behind its answer without saying so, and the next request then runs into
            # the close. A new connection costs nothing without TLS.
            self._headers["connection"] = "close"
        if key:
            self._headers["authorization"] = f"Bearer {key}"
        self._headers |= extra_headers or {}
        self._extra_body = dict(extra_body or {})
        self._endpoint = Endpoint(name, shown_url(self._base_url), key_variable, key)
        self._client: AsyncClient | None = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `Model.stream`."""
        import httpx2

        payload = chat_payload(self._model_id, request, takes_tools=self.takes_tools, media_types=self.media_types)
        body = to_json(payload | self._extra_body)
        if self._client is None:
            self._client = open_http_client(self._base_url)
        url = join_url(self._base_url, "/chat/completions")
        received = ChatResponse()
        try:
            async with self._client.stream("POST", url, content=body, headers=self._headers) as response:
                if not 200 <= response.status_code < 300:
                    said = await _read_start(response, ERROR_BODY_MAX)
                    raise self._endpoint.status_fault(response.status_code, response.headers, said)
                async with aclosing(self._events(response, received)) as events:
                    async for event in events:
                        yield event
        except httpx2.InvalidURL as error:
            raise self._endpoint.fault(FaultKind.CONFIG, f"the base URL is not usable: {error}") from error
        except httpx2.RequestError as error:
            if not received.is_finished:
                raise self._endpoint.transport_fault(error) from error
        if not received.is_finished:
            raise self._endpoint.fault(FaultKind.CUT, "the response ended before it was whole")
        try:
            yield received.end()
        except MalformedResponseError as error:
            raise self._endpoint.fault(FaultKind.MALFORMED, str(error)) from error

    async def aclose(self) -> None:
        """See `Model.aclose`."""
        client, self._client = self._client, None
        if client is not None:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await client.aclose()

    async def _events(self, response: Response, received: ChatResponse) -> AsyncGenerator[ModelEvent, None]:
        """What the body holds, fed into `received`; ends when nothing more is to come."""
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type == "text/html":
            text = f"{self._endpoint.shown} answered with a web page instead of a completion"
            raise self._endpoint.fault(FaultKind.CONFIG, text)
        try:
            if media_type == "application/json":
                for event in self._take(await self._read_json(response), received):
                    yield event
                return
            async with aclosing(_server_events(response)) as frames:
                while (frame := await self._next_frame(frames, received)) is not None:
                    for event in self._take_frame(frame, received):
                        yield event
        except (MalformedResponseError, EventTooLargeError) as error:
            raise self._endpoint.fault(FaultKind.MALFORMED, str(error)) from error
        except BrokenOffError as error:
            raise self._endpoint.fault(FaultKind.SERVER, str(error)) from error

    async def _next_frame(self, frames: AsyncIterator[ServerEvent], received: ChatResponse) -> ServerEvent | None:
        """The next event, None at the end; a response that is whole is waited for only so long."""
        if not received.is_finished:
            frame = await anext(frames, None)
        else:
            frame = None
            with anyio.move_on_after(TAIL_SECONDS):
                frame = await anext(frames, None)
        if frame is None or frame.data.strip() != "[DONE]":
            return frame
        with anyio.move_on_after(DONE_TAIL_SECONDS):
            await anext(frames, None)
        return None

    def _take_frame(self, frame: ServerEvent, received: ChatResponse) -> list[ModelEvent]:
        """The model events of one server event; keep-alives and events of other names say nothing of the response."""
        if frame.name not in {"", "message", "error"} or not frame.data.strip():
            return []
        try:
            chunk = _parse(frame.data)
        except ValueError as error:
            if frame.name == "error":
                raise self._endpoint.error_fault(frame.data) from error
            if not frame.is_whole:
                return []  # cut off by the end of the stream, which says the rest
            raise MalformedResponseError(f"the stream holds invalid JSON ({error})") from error
        if frame.name == "error" and isinstance(chunk, dict):
            raise self._endpoint.error_fault(chunk)
        return self._take(chunk, received)

    def _take(self, chunk: Any, received: ChatResponse) -> list[ModelEvent]:
        if isinstance(chunk, dict) and chunk.get("error"):
            raise self._endpoint.error_fault(chunk)
        return received.take(chunk)

    async def _read_json(self, response: Response) -> Any:
        """A whole completion from a server that does not stream."""
        body = await _read_start(response, RESPONSE_MAX + 1)
        if len(body) > RESPONSE_MAX:
            raise MalformedResponseError(f"the response is longer than {RESPONSE_MAX} bytes")
        try:
            whole = _parse(body.decode("utf-8", "replace"))
        except ValueError as error:
            raise MalformedResponseError(f"the response is no valid JSON ({error})") from error
        if not isinstance(whole, dict) or not (whole.get("choices") or whole.get("error")):
            raise MalformedResponseError("the response is no chat completion")
        return whole


async def _server_events(response: Response) -> AsyncGenerator[ServerEvent, None]:
    decoder = SseDecoder()
    async with aclosing(_chunks(response)) as chunks:
        async for chunk in chunks:
            for event in decoder.feed(chunk):
                yield event
    for event in decoder.finish():
        yield event


async def _chunks(response: Response) -> AsyncGenerator[bytes, None]:
    """The body as it comes; the connection is closed when this is left early."""
    import httpx2

    chunks = response.aiter_bytes()
    try:
        async for chunk in chunks:
            yield chunk
    finally:
        # One of httpx2's generators does not close the one it reads from, which trio reports when it is collected.
        # Behind a closed connection they all come to their own end.
        with anyio.move_on_after(CLOSE_SECONDS, shield=True), suppress(httpx2.RequestError, httpx2.StreamError):
            await response.aclose()
            async for _ in chunks:
                pass


async def _read_start(response: Response, size_max: int) -> bytes:
    """The first bytes of a body; what came before a reset of an error's body still says what was wrong."""
    import httpx2

    body = bytearray()
    try:
        async with aclosing(_chunks(response)) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) >= size_max:
                    break
    except httpx2.RequestError:
        if response.status_code < 300:
            raise
    return bytes(body[:size_max])


def _parse(text: str) -> Any:
    """JSON; escapes of lone surrogates, which orjson refuses, are kept for `mend_text` to join or replace."""
    try:
        return from_json(clean_text(text))
    except ValueError:
        if "\\ud" not in text.lower():
            raise
        import json

        try:
            return json.loads(text)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
