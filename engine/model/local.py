"""`local/...`: a GGUF file served by xllamacpp on loopback, asked through the chat-completions adapter.

The server is a child process. Loading holds the interpreter's lock from start to end (measured: 0.4 s for SmolLM2 on
an idle machine, 4.7 s on a busy one, more for larger files), so in a thread it would freeze timers, signals and every
other run; a child can be killed at any moment, takes its memory along, and a crash in native code is a fault, not our
end.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from engine.codec import from_json, to_json
from engine.errors import ConfigurationError
from engine.model.base import FaultKind, ModelEvent, ModelFault, ModelRequest
from engine.model.openai_chat import OpenAIChatModel

if TYPE_CHECKING:
    from anyio.abc import Process

CONTEXT_TOKENS = 4096
"""Room for prompt and answer: what small models were trained on, and some tens of megabytes."""

ANSWER_TOKENS = 1024
"""The longest answer: a small model that finds no end repeats itself, at 60 tokens a second."""

THREADS_MAX = 8
"""More threads than this only fight over the memory bus."""

CLOSE_SECONDS = 2.0
"""How long the killed server may take to be gone."""

LINE_MAX = 64 * 1024
"""Bytes of the server's answer line."""

INSTALL_HINT = "pip install 'agent-runner[local]'"


class LocalModel:
    """A GGUF file as a model without tools. The server is started by the first call and kept until `aclose`.

    Raises:
        ConfigurationError: xllamacpp is not installed, or there is no such file.
    """

    def __init__(self, name: str, path: Path) -> None:
        if not is_runtime_installed():
            raise ConfigurationError(f"{name} needs xllamacpp, which is not installed: {INSTALL_HINT}")
        if not path.is_file():
            raise ConfigurationError(f"{name}: there is no file {path}")
        self.name = name
        self.takes_tools = False
        self.media_types: frozenset[str] = frozenset()
        self._path = path.resolve()
        self._process: Process | None = None
        self._chat: OpenAIChatModel | None = None
        self._starting = anyio.Lock()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `Model.stream`. Closing it closes the connection, which stops the server's generation."""
        chat = await self._ready()
        async with aclosing(chat.stream(request)) as events:
            async for event in events:
                yield event

    async def aclose(self) -> None:
        """See `Model.aclose`."""
        chat, self._chat = self._chat, None
        process, self._process = self._process, None
        if chat is not None:
            await chat.aclose()
        if process is not None:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await _end(process)

    async def _ready(self) -> OpenAIChatModel:
        """The adapter of the running server, which is started if there is none (any more)."""
        async with self._starting:
            if self._chat is None or self._process is None or self._process.returncode is not None:
                await self.aclose()
                process, address, key = await self._start()
                self._process = process
                body = {"temperature": 0.0, "seed": 42, "max_tokens": ANSWER_TOKENS}
                self._chat = OpenAIChatModel(
                    self.name,
                    self._path.stem,
                    f"{address}/v1",
                    key,
                    takes_tools=False,
                    media_types=frozenset(),
                    extra_body=body,
                )
            return self._chat

    async def _start(self) -> tuple[Process, str, str]:
        """The server's process, its address and its key.

        Raises:
            ModelFault: the file cannot be loaded.
        """
        import subprocess

        process = await anyio.open_process(
            [sys.executable, "-P", str(Path(__file__).with_name("local_server.py"))],
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the engine, which then ends the server
        )
        try:
            address, key = await self._load(process)
        except BaseException:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await _end(process)
            raise
        return process, address, key

    async def _load(self, process: Process) -> tuple[str, str]:
        assert process.stdin is not None
        assert process.stdout is not None
        key = os.urandom(16).hex()
        wanted = {
            "path": str(self._path),
            "context_tokens": CONTEXT_TOKENS,
            "answer_tokens": ANSWER_TOKENS,
            "threads": min(
                len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1, THREADS_MAX
            ),
            "key": key,
        }
        try:
            await process.stdin.send(to_json(wanted) + b"\n")
            line = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", LINE_MAX)
            said = from_json(line)
        except (anyio.BrokenResourceError, anyio.IncompleteRead, anyio.DelimiterNotFound, ValueError) as error:
            raise ModelFault(
                FaultKind.CONFIG, f"{self.name}: the process that loads {self._path} died: is there enough memory?"
            ) from error
        if "error" in said:
            raise ModelFault(
                FaultKind.CONFIG,
                f"{self.name}: {self._path} cannot be loaded, is it a whole GGUF file? ({said['error']})",
            )
        return said["address"], key


def is_runtime_installed() -> bool:
    """Whether xllamacpp is there; it is not imported for that."""
    return find_spec("xllamacpp") is not None


async def _end(process: Process) -> None:
    """Kill it, as it has nothing to save, and wait until it is gone."""
    if process.returncode is None:
        process.kill()
    await process.aclose()
