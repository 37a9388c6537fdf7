"""Where the command line meets the engine: the one file that opens it. Tests put their client in its place."""

from __future__ import annotations

import gc
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from engine.client import Client
    from engine.model.catalog import ModelChoice, ProviderStatus
    from engine.settings import Settings

T = TypeVar("T")


def make_settings(
    *,
    data_dir: str | None,
    ephemeral: bool = False,
    save_seconds: float | None = None,
    concurrency: int = 4,
    base_url: str | None = None,
) -> Settings:
    """Settings from flags and the environment; nothing is created yet.

    Raises:
        ConfigurationError: there is no place to keep data.
    """
    from engine.limits import SAVE_SECONDS
    from engine.settings import Settings

    return Settings.from_environment(
        os.environ,
        data_dir=Path(data_dir) if data_dir else None,
        ephemeral=ephemeral,
        save_seconds=SAVE_SECONDS if save_seconds is None else save_seconds,
        concurrency=concurrency,
        base_url=base_url,
    )


def open_client(settings: Settings) -> AbstractAsyncContextManager[Client]:
    """The engine, open."""
    from engine.app import open_engine

    return open_engine(settings)


def resolve_model(settings: Settings, name: str | None) -> ModelChoice:
    """The model that a name, or nothing, stands for.

    Raises:
        ConfigurationError: there is no such model, or none at all.
    """
    from engine.model.catalog import choose_model

    return choose_model(name, environ=settings.environ, data_dir=settings.data_dir, base_url=settings.base_url)


def run_async(main: Callable[[], Awaitable[T]]) -> T:
    """Run a command's async part to its end."""
    import anyio

    return anyio.run(main)


def end_startup() -> None:
    """Everything that this run imports is imported: collect garbage again, but not among what came so far."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def set_up_logging(*, is_verbose: bool) -> None:
    """The engine's log goes to standard error: what went wrong, or with `--verbose` everything."""
    import logging

    logging.basicConfig(format="agent: %(message)s", level=logging.WARNING)
    logging.getLogger("engine").setLevel(logging.DEBUG if is_verbose else logging.WARNING)
    logging.raiseExceptions = False  # a closed standard error is nobody's problem


def with_client(data_dir: str | None, body: Callable[[Client], Awaitable[int]]) -> int:
    """Run `body` with the engine open; a signal ends it and whatever it waits for, and leaves all runs alone."""
    settings = make_settings(data_dir=data_dir)

    async def main() -> int:
        from cli.interrupt import open_interrupts

        code: list[int] = []
        async with open_interrupts(settings.save_seconds) as interrupts, open_client(settings) as client:
            end_startup()
            code.append(await body(client))
        return code[0] if code else interrupts.exit_code

    return run_async(main)


def list_models(settings: Settings) -> list[ProviderStatus]:
    """What can serve, and what could."""
    from engine.model import catalog

    return catalog.list_models(environ=settings.environ, data_dir=settings.data_dir, base_url=settings.base_url)


def find_embedded(settings: Settings) -> str:
    """Where the embedded model is.

    Raises:
        ConfigurationError: it cannot serve.
    """
    from engine.errors import ConfigurationError

    local = next(each for each in list_models(settings) if each.provider == "local")
    if not local.is_ready:
        raise ConfigurationError(f"{local.detail}: {local.how}")
    return local.detail


def install_smollm2(settings: Settings, progress: Callable[[str], None]) -> Path:
    """Fetch the embedded model into the data directory, unless it is there."""
    from engine.model.install import install_smollm2 as install

    return install(settings.data_dir, progress)
