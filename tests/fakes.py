"""Fakes that tests of the engine share: a model whose every step a test can hold, and an engine around it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import orjson

from engine.app import Engine
from engine.broker.broker import Broker
from engine.limits import RunLimits
from engine.model.base import ModelEvent, ModelFinish, ModelRequest, RawToolCall, ResponseEnd, TextChunk
from engine.run import Prompt, RunRequest, Usage
from engine.settings import Settings
from engine.store.base import Store
from engine.store.memory import MemoryStore
from engine.tools.base import Tool, ToolContext, ToolOutput

USAGE = Usage(input_tokens=10, output_tokens=5)


class Gate:
    """A place where the model stops until the test lets it go on."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self._opened = anyio.Event()

    def open(self) -> None:
        self._opened.set()

    async def hold(self) -> None:
        self.reached.set()
        await self._opened.wait()


Item = ModelEvent | Gate | BaseException


def says(text: str, *, finish: ModelFinish = ModelFinish.STOP) -> list[Item]:
    """A whole answer."""
    return [TextChunk(text), ResponseEnd(finish, usage=USAGE)]


def held(text: str) -> tuple[Gate, list[Item]]:
    """An answer that stops half-way until its gate is opened."""
    gate = Gate()
    return gate, [
        TextChunk(text[: len(text) // 2]),
        gate,
        TextChunk(text[len(text) // 2 :]),
        ResponseEnd(ModelFinish.STOP, usage=USAGE),
    ]


def calls(*named: tuple[str, Any] | tuple[str, Any, str], finish: ModelFinish = ModelFinish.TOOL_CALLS) -> list[Item]:
    """A response that asks for tools: (name, arguments[, call id])."""
    raw = []
    for number, (name, arguments, *rest) in enumerate(named):
        text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
        raw.append(RawToolCall(rest[0] if rest else f"call-{name}-{number}", name, text))
    return [ResponseEnd(finish, tuple(raw), USAGE)]


class FakeModel:
    """Answers from a list, counting each call at its very entry, before anything can strike (K4, H17)."""

    def __init__(self, *answers: list[Item], takes_tools: bool = True) -> None:
        self.answers = list(answers)
        self.requests: list[ModelRequest] = []
        self.name = "fake/model"
        self.takes_tools = takes_tools
        self.media_types: frozenset[str] = frozenset()
        self.in_flight = 0
        self.most_in_flight = 0
        self.is_closed = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        assert self.answers, "one call more than the test expects"
        answer = self.answers.pop(0)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await anyio.lowlevel.checkpoint()
            for item in answer:
                if isinstance(item, Gate):
                    await item.hold()
                elif isinstance(item, BaseException):
                    raise item
                else:
                    yield item
        finally:
            self.in_flight -= 1

    async def aclose(self) -> None:
        self.is_closed = True


@dataclass
class FakeTool:
    """A tool made of a function."""

    name: str
    function: Callable[[dict[str, Any]], Awaitable[str]]
    is_read_only: bool = True
    description: str = "a fake"
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "object"})
    started: int = 0

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        self.started += 1
        text = await self.function(arguments)
        return ToolOutput(text, len(text))


async def echo(arguments: dict[str, Any]) -> str:
    return f"echo {arguments}"


def request(
    text: str = "hello",
    *,
    run_id: str | None = "r1",
    session_id: str | None = None,
    tools: Sequence[str] = (),
    **limits: Any,
) -> RunRequest:
    return RunRequest(
        Prompt(text),
        run_id=run_id,
        session_id=session_id,
        model="fake/model",
        tools=tuple(tools),
        limits=RunLimits(**limits),
        cwd="/",
    )


@asynccontextmanager
async def opened(
    model: FakeModel,
    *tools: Tool,
    store: Store | None = None,
    broker: Broker | None = None,
    save_seconds: float = 5.0,
    concurrency: int = 100,
    owner: str | None = None,
) -> AsyncIterator[Engine]:
    """An engine on a store in memory, with the fake model and these tools."""
    by_name = {tool.name: tool for tool in tools}

    def open_tools(names: Sequence[str]) -> Mapping[str, Tool]:
        return {name: by_name[name] for name in names}

    settings = Settings(Path("/nonexistent"), save_seconds=save_seconds, concurrency=concurrency, environ={})
    async with Engine(
        settings,
        MemoryStore() if store is None else store,
        open_model=lambda _name: model,
        open_tools=open_tools,
        broker=broker,
        owner=owner,
    ) as engine:
        yield engine
