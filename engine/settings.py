"""Settings of one engine: where its data lies and how long it may wait (design, 7)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.errors import ConfigurationError
from engine.limits import SAVE_SECONDS, STORE_WAIT_SECONDS


@dataclass(frozen=True, slots=True)
class Settings:
    """What an engine is opened with. `ephemeral`: nothing is kept; `concurrency`: turns at once, over sessions."""

    data_dir: Path
    ephemeral: bool = False
    save_seconds: float = SAVE_SECONDS
    store_wait_seconds: float = STORE_WAIT_SECONDS
    concurrency: int = 4
    base_url: str | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @property
    def store_path(self) -> Path:
        """The SQLite file."""
        return self.data_dir / "agent.db"

    @classmethod
    def from_environment(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        data_dir: Path | None = None,
        ephemeral: bool = False,
        save_seconds: float = SAVE_SECONDS,
        concurrency: int = 4,
        base_url: str | None = None,
    ) -> Settings:
        """Settings from what the caller gave, then the environment, then the defaults.

        Raises:
            ConfigurationError: there is no directory to keep data in.
        """
        given = os.environ if environ is None else environ
        return cls(
            data_dir=data_dir.expanduser() if data_dir is not None else default_data_dir(given, ephemeral=ephemeral),
            ephemeral=ephemeral,
            save_seconds=save_seconds,
            concurrency=concurrency,
            base_url=base_url,
            environ=given,
        )


def default_data_dir(environ: Mapping[str, str], *, ephemeral: bool = False) -> Path:
    """`$AGENT_HOME`, else `$XDG_DATA_HOME/agent`, else `~/.local/share/agent`.

    Raises:
        ConfigurationError: HOME is not set, or cannot hold the directory.
    """
    if home := environ.get("AGENT_HOME"):
        return Path(home)
    # The XDG specification has relative paths ignored.
    if (data := environ.get("XDG_DATA_HOME", "")) and Path(data).is_absolute():
        return Path(data) / "agent"
    home = environ.get("HOME", "")
    if not home:
        if ephemeral:
            return Path("/nonexistent/agent")
        raise ConfigurationError(
            "HOME is not set, so sessions have no place: give --data-dir PATH, or --ephemeral to keep nothing"
        )
    path = Path(home) / ".local" / "share" / "agent"
    if not ephemeral and not _can_hold(path):
        raise ConfigurationError(f"{path} cannot be written: give --data-dir PATH, or --ephemeral to keep nothing")
    return path


def _can_hold(path: Path) -> bool:
    """Whether `path` is, or could be made, a directory that we can write to."""
    for place in (path, *path.parents):
        if place.exists():
            return place.is_dir() and os.access(place, os.W_OK | os.X_OK)
    return False
