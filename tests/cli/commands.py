"""Run command lines in this process: typer's runner over the real command tree, with a fake client wired in."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from typer.testing import CliRunner

from cli.app import make_app
from tests.cli.fake_client import FakeClient, Script


@dataclass(frozen=True)
class Result:
    """What a caller sees."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in self.out.splitlines()]


@dataclass
class Agent:
    """A caller of `agent` without a terminal."""

    home: Path
    client: FakeClient = field(default_factory=FakeClient)

    def __call__(self, *args: str, stdin: str | bytes = b"") -> Result:
        done = CliRunner().invoke(make_app(), list(args), input=stdin)
        return Result(done.exit_code, done.stdout, done.stderr)

    def answers(self, prompt: str, **script: Any) -> None:
        self.client.scripts[prompt] = Script(**script)

    @property
    def was_opened(self) -> bool:
        return self.client.opened > 0
