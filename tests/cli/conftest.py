"""The command line with a fake client wired in at its one seam."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli import interrupt, wiring
from engine.model.catalog import ModelChoice
from tests.cli.commands import Agent


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Agent:
    for name in ("AGENT_STDIN", "XDG_DATA_HOME", "NO_COLOR", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AGENT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    # A second signal would take the test runner with it.
    monkeypatch.setattr(interrupt, "leave_now", pytest.fail)
    caller = Agent(tmp_path)
    monkeypatch.setattr(wiring, "open_client", caller.client.open)
    monkeypatch.setattr(wiring, "resolve_model", lambda settings, name: ModelChoice(name or "openai/test", None))
    return caller
