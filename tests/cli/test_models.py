"""`agent models`: the list, and what is refused."""

from __future__ import annotations

import orjson
import pytest

from tests.cli.commands import Agent


def test_models_lists_every_provider_with_the_way_to_it(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    result = agent("models")
    assert result.code == 0
    assert [line.split()[0] for line in result.out.splitlines()] == ["PROVIDER", "openai", "local", "script"]
    assert "sk-secret" not in result.out
    rows = orjson.loads(agent("models", "--output", "json").out)
    assert {row["provider"]: row["is_ready"] for row in rows}["openai"] is True


def test_an_unknown_model_to_install_is_refused(agent: Agent) -> None:
    result = agent("models", "install", "gpt-5")
    assert (result.code, result.err.count("\n")) == (2, 1)
