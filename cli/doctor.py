"""`agent doctor`: check that everything a run needs is there, and say what to do about what is not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cli import wiring
from cli.options import DataDir, OutputTextJson, Verbose
from cli.parse import parse_choice

if TYPE_CHECKING:
    from engine.settings import Settings


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. `is_essential`: no run can work without it."""

    name: str
    is_ok: bool
    text: str
    is_essential: bool = True


def doctor(output: OutputTextJson = None, data_dir: DataDir = None, is_verbose: Verbose = False) -> int:
    """Check interpreter, data directory, store, model and PATH. Exit code 1 when something essential is broken.

    \b
    Examples:
      agent doctor
      agent doctor --output json | jq '.[] | select(.is_ok | not)'
    """
    from cli import exit_code, streams
    from cli.output_json import json_line

    is_json = parse_choice("--output", output, ("text", "json")) == "json"
    wiring.set_up_logging(is_verbose=is_verbose)
    findings = examine(data_dir)
    if is_json:
        streams.write_all(json_line(findings))
    else:
        streams.write_all("".join(_line(finding) for finding in findings).encode("utf-8", "replace"))
    is_broken = any(finding.is_essential and not finding.is_ok for finding in findings)
    return exit_code.FAILED if is_broken else exit_code.OK


def examine(data_dir: str | None) -> list[Finding]:
    """All findings; a check that fails does not keep the others from being made."""
    version = ".".join(str(number) for number in sys.version_info[:3])
    findings = [
        Finding("python", sys.version_info >= (3, 11), f"{version} at {sys.executable}"),
    ]
    settings: list[Settings] = []

    def find_directory() -> str:
        settings.append(wiring.make_settings(data_dir=data_dir))
        return _check_directory(settings[0].data_dir)

    findings.append(_check("data directory", find_directory))
    if settings:
        findings.append(_check("store", lambda: _check_store(settings[0])))
        findings.append(_check("model", lambda: _check_model(settings[0])))
        findings.append(_check("embedded model", lambda: _check_embedded(settings[0]), is_essential=False))
    findings.append(_check("command", _check_path, is_essential=False))
    return findings


def _check(name: str, check: Callable[[], str], *, is_essential: bool = True) -> Finding:
    from engine.errors import EngineError

    try:
        return Finding(name, True, check(), is_essential)
    except (EngineError, OSError) as error:
        return Finding(name, False, str(error), is_essential)


def _check_directory(path: Path) -> str:
    import tempfile

    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path):
        return f"{path} can be written"


def _check_store(settings: Settings) -> str:
    async def open_and_look() -> str:
        async with wiring.open_client(settings) as client:
            wiring.end_startup()
            is_used = bool(await client.list_runs(limit=1))
        return f"{settings.store_path} opens, {'there are runs in it' if is_used else 'no run in it yet'}"

    return wiring.run_async(open_and_look)


def _check_model(settings: Settings) -> str:
    choice = wiring.resolve_model(settings, None)
    return f"{choice.name} serves when --model names no other" + (f" ({choice.notice})" if choice.notice else "")


def _check_embedded(settings: Settings) -> str:
    return wiring.find_embedded(settings)


def _check_path() -> str:
    import shutil

    from engine.errors import ConfigurationError

    found = shutil.which("agent")
    if found is None:
        raise ConfigurationError("no `agent` on PATH: scripts and tools that call it by name will not find it")
    return found


def _line(finding: Finding) -> str:
    from cli.streams import one_line

    mark = "ok" if finding.is_ok else "BROKEN" if finding.is_essential else "missing"
    return f"{mark:<8}{finding.name + ':':<16}{one_line(finding.text)}\n"
