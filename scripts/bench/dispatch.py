"""Dispatch under load, through the engine: submits a second, and 10,000 queued runs of one session draining.

The model answers at once, so what is measured is ours: acceptance, decisions, saves, hand-overs, completions. A drain
is timed at several sizes: in linear time the growth factor (how much slower than n times the smallest) stays near 1,
and in constant stack the deepest stack seen inside the model stays the same. "no history" drains over a store that
gives each turn an empty history, and "cancelled" drops the queue: what remains there is the dispatcher alone.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from engine.app import Engine
from engine.lifecycle import FinishReason
from engine.limits import RunLimits
from engine.message import FinishPart, Message, Role, TextPart
from engine.model.base import ModelEvent, ModelFinish, ModelRequest, ResponseEnd, TextChunk
from engine.run import Prompt, RunRequest, Usage
from engine.settings import Settings
from engine.store.base import Start, Store
from engine.store.memory import MemoryStore
from engine.turn.context import valid_history

STORES = ("memory", "sqlite")
USAGE = Usage(input_tokens=1, output_tokens=1)


class InstantModel:
    """Answers at once when `gate` is open, and remembers the deepest stack that it was called on."""

    name = "instant/model"
    takes_tools = False
    media_types: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.gate = anyio.Event()
        self.stack_max = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.stack_max = max(self.stack_max, _stack_depth())
        await self.gate.wait()
        yield TextChunk("ok")
        yield ResponseEnd(ModelFinish.STOP, usage=USAGE)

    async def aclose(self) -> None:
        """Nothing to release."""


class ForgetfulStore(MemoryStore):
    """A store in memory whose turns all begin with an empty history."""

    async def start_run(self, accept_seq: int, session_id: str, user_message: Message) -> Start:
        # No count is ever the expected one: the worker's own copy of the history is not used either.
        return replace(await super().start_run(accept_seq, session_id, user_message), messages_before=-1)

    async def load_history(self, session_id: str) -> list[Message]:
        await anyio.lowlevel.checkpoint()
        return []


@asynccontextmanager
async def open_bench(store_name: str) -> AsyncIterator[tuple[Engine, InstantModel]]:
    """An engine on a fresh store of this kind."""
    model = InstantModel()
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(Path(folder), save_seconds=60.0, concurrency=100_000, environ={})
        store = _make_store(store_name, settings)
        async with Engine(settings, store, open_model=lambda _name: model, open_tools=lambda _names: {}) as engine:
            yield engine, model


def _make_store(name: str, settings: Settings) -> Store:
    if name == "sqlite":
        from engine.store.sql import SqliteStore

        return SqliteStore(settings.store_path)
    return ForgetfulStore() if name == "no history" else MemoryStore()


def _stack_depth() -> int:
    depth, frame = 0, sys._getframe()  # noqa: SLF001
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


def _request(number: int, session_id: str | None = None) -> RunRequest:
    limits = RunLimits(max_steps=1)
    return RunRequest(Prompt("go"), f"run-{number}", session_id, model="instant/model", limits=limits, cwd="/")


async def measure_submits(store_name: str, submits: int, sessions: int) -> None:
    """Hand in `submits` prompts, one after another, spread over `sessions`; then let all of them run."""
    async with open_bench(store_name) as (engine, model):
        ids = [(await engine.submit(_request(number))).session_id for number in range(sessions)]
        started = time.perf_counter()
        for number in range(submits):
            await engine.submit(_request(sessions + number, ids[number % sessions]))
        submit_seconds = time.perf_counter() - started
        model.gate.set()
        started = time.perf_counter()
        await engine.dispatcher.wait_settled()
        seconds = time.perf_counter() - started
    print(
        f"{store_name:10} {submits:6} submits into {sessions:5} sessions: {submits / submit_seconds:8,.0f} submits/s, "
        f"then {(submits + sessions) / seconds:8,.0f} runs/s"
    )


async def _drain_runs(engine: Engine, model: InstantModel, session_id: str) -> None:
    model.gate.set()
    await engine.dispatcher.wait_settled()


async def _drain_cancelled(engine: Engine, model: InstantModel, session_id: str) -> None:
    await engine.cancel(session_id)
    await engine.dispatcher.wait_settled()


async def drain(
    store_name: str, runs: int, how: Callable[[Engine, InstantModel, str], Awaitable[None]]
) -> tuple[float, int]:
    """Seconds that `runs` queued runs of one session take to settle, and the deepest stack seen meanwhile."""
    async with open_bench(store_name) as (engine, model):
        session_id = (await engine.submit(_request(0))).session_id
        for number in range(1, runs):
            await engine.submit(_request(number, session_id))
        started = time.perf_counter()
        await how(engine, model, session_id)
        return time.perf_counter() - started, model.stack_max


async def measure_drains(label: str, store_name: str, sizes: list[int], *, is_cancelled: bool = False) -> None:
    """Drain at each size; the growth factor is the time per run over that of the first size."""
    first: float | None = None
    for runs in sizes:
        seconds, stack = await drain(store_name, runs, _drain_cancelled if is_cancelled else _drain_runs)
        first = first or seconds / runs
        print(
            f"{store_name:10} {label:9} {runs:6} runs: {seconds:8.2f} s, {1e6 * seconds / runs:8.0f} us/run, "
            f"growth {seconds / runs / first:5.2f}, stack {stack}",
            flush=True,
        )


def measure_view(size: int) -> None:
    """What looking through a history costs, before a request: this part of a turn grows with its session."""
    finish = FinishPart(FinishReason.END_TURN)
    history = [
        Message(f"m{number}", Role.ASSISTANT if number % 2 else Role.USER, (TextPart("ok"), finish), "")
        for number in range(size)
    ]
    started = time.perf_counter()
    valid_history(history)
    seconds = time.perf_counter() - started
    print(f"a view of {size} messages: {1000 * seconds:.2f} ms, {1e9 * seconds / size:.0f} ns/message")


async def measure(options: argparse.Namespace) -> None:
    """All parts, one after another."""
    sizes = [int(size) for size in options.sizes.split(",")]
    stores = STORES if options.store == "both" else (options.store,)
    for store_name in stores:
        for sessions in (1, 1000):
            await measure_submits(store_name, options.submits, sessions)
    for store_name in stores:
        await measure_drains("cancelled", store_name, sizes, is_cancelled=True)
    await measure_drains("drained", "no history", sizes)
    for store_name in stores:
        await measure_drains("drained", store_name, sizes)
    measure_view(2 * sizes[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description="submits a second, and how a long queue drains")
    parser.add_argument("--submits", type=int, default=2000)
    parser.add_argument("--sizes", default="1000,2000,5000,10000", help="queue lengths, comma-separated")
    parser.add_argument("--store", choices=[*STORES, "both"], default="both")
    parser.add_argument("--backend", choices=["asyncio", "trio"], default="asyncio")
    options = parser.parse_args()
    logging.disable()
    anyio.run(measure, options, backend=options.backend)


if __name__ == "__main__":
    main()
