"""`script/FILE`: answers replayed from a file, for dry runs of pipelines and, with gates, for tests.

The answers are used up in order by whoever asks, over all steps and runs of the process. A call is recorded the moment
`stream` is called, before anything can strike, so that a call that should not have been made is always seen (K4, H17).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import anyio
from anyio.lowlevel import checkpoint

from engine.errors import ConfigurationError
from engine.ids import new_id
from engine.message import FilePart, Role, TextPart, ToolResultPart
from engine.model.base import (
    FaultKind,
    ModelEvent,
    ModelFault,
    ModelFinish,
    ModelRequest,
    RawToolCall,
    ReasoningChunk,
    ResponseEnd,
    TextChunk,
    ToolCallChunk,
)
from engine.model.chat_request import IMAGE_TYPES
from engine.model.script_file import ScriptedResponse, parse_script


class ScriptModel:
    """A model that says what it was told to.

    It takes one call at a time, and a second one is a bug of the caller's, unless `allows_concurrent`.
    """

    def __init__(
        self,
        responses: Sequence[ScriptedResponse],
        *,
        name: str = "script/inline",
        repeats: bool = False,
        takes_tools: bool = True,
        media_types: frozenset[str] = IMAGE_TYPES,
        allows_concurrent: bool = False,
    ) -> None:
        self.name = name
        self.takes_tools = takes_tools
        self.media_types = media_types
        self.requests: list[ModelRequest] = []
        self.is_closed = False
        self._responses = tuple(responses)
        self._repeats = repeats
        self._allows_concurrent = allows_concurrent
        self._used = 0
        self._in_flight = 0

    @classmethod
    def from_file(cls, path: Path, *, name: str = "", allows_concurrent: bool = True) -> ScriptModel:
        """The model of a script file; runs of several sessions may share it.

        Raises:
            ConfigurationError: the file cannot be read or is no script; the text names the place.
        """
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"cannot read the script {path}: {error.strerror}") from error
        responses, repeats = parse_script(raw, str(path))
        name = name or f"script/{path}"
        return cls(responses, name=name, repeats=repeats, allows_concurrent=allows_concurrent)

    @property
    def calls(self) -> int:
        """How many calls were made."""
        return len(self.requests)

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `Model.stream`."""
        self.requests.append(request)
        return self._stream(request)

    async def aclose(self) -> None:
        """See `Model.aclose`."""
        self.is_closed = True

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        assert self._allows_concurrent or not self._in_flight, f"{self.name}: a second call while one is in flight"
        response = self._next_response()
        self._in_flight += 1
        try:
            await checkpoint()
            self._check_expected(response, request)
            emitted = 0
            while True:
                if (gate := response.hold.get(emitted)) is not None:
                    await gate.wait()
                if (fault := response.fault) is not None and emitted >= min(fault.after_chunks, len(response.chunks)):
                    raise ModelFault(fault.kind, fault.message, retry_after_seconds=fault.retry_after_seconds)
                if not emitted:
                    await anyio.sleep(response.delay_seconds)
                    if response.reasoning:
                        yield ReasoningChunk(response.reasoning)
                elif emitted < len(response.chunks):
                    await anyio.sleep(response.chunk_delay_seconds)
                if emitted == len(response.chunks):
                    break
                yield TextChunk(response.chunks[emitted])
                emitted += 1
            for index, call in enumerate(response.tool_calls):
                yield ToolCallChunk(index, len(call.arguments))
            yield _end_of(response)
        finally:
            self._in_flight -= 1

    def _next_response(self) -> ScriptedResponse:
        if self._used >= len(self._responses) and self._repeats and self._responses:
            self._used = 0
        if self._used >= len(self._responses):
            had = len(self._responses)
            raise ModelFault(
                FaultKind.CONFIG,
                f"{self.name}: the script has {had} response{'' if had == 1 else 's'} and all are used: "
                'add one for each model call, or set "repeat": true',
            )
        self._used += 1
        return self._responses[self._used - 1]

    def _check_expected(self, response: ScriptedResponse, request: ModelRequest) -> None:
        if response.expect and response.expect not in _last_words(request):
            raise ModelFault(
                FaultKind.CONFIG,
                f"{self.name}: response {self._used} expects {response.expect[:80]!r} in the last message, "
                f"which is {_last_words(request)[:80]!r}",
            )


def _end_of(response: ScriptedResponse) -> ResponseEnd:
    calls = tuple(
        RawToolCall(call.call_id or new_id("call"), call.name, call.arguments) for call in response.tool_calls
    )
    finish = response.finish or (ModelFinish.TOOL_CALLS if calls else ModelFinish.STOP)
    return ResponseEnd(finish, calls, response.usage)


def _last_words(request: ModelRequest) -> str:
    """The last user message, its files included, or the last tool results, whichever came later."""
    for message in reversed(request.messages):
        if message.role is not Role.ASSISTANT:
            parts = (part for part in message.parts if isinstance(part, TextPart | ToolResultPart | FilePart))
            return "\n".join(part.text for part in parts)
    return ""
