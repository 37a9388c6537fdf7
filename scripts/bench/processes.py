"""Runs a command to its end and says what it cost: wall time, peak memory, instructions."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SYSTEM_IS_DARWIN = os.uname().sysname == "Darwin"


@dataclass(slots=True)
class Cost:
    """Of one whole process, its start and its end included."""

    wall_seconds: float
    peak_mib: float


class CommandFailedError(Exception):
    """The command did not end with 0: its time means nothing."""


def child_environment(**more: str) -> dict[str, str]:
    """Ours without what would change the measurement: bytecode switches, and an agent's settings of the caller."""
    dropped = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONPATH", "PYTHONPYCACHEPREFIX", "AGENT_HOME")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return kept | more


def run_once(command: list[str], environment: dict[str, str]) -> Cost:
    """Run with nothing on standard input.

    Raises:
        CommandFailedError: it ended with something else than 0.
    """
    with tempfile.TemporaryFile() as output:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        _, status, usage = os.wait4(process.pid, 0)  # the peak of this child alone, not of all there were
        wall_seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            output.seek(0)
            words = output.read().decode("utf-8", "replace")[-2000:]
            raise CommandFailedError(f"{command} ended with {process.returncode}:\n{words}")
    return Cost(wall_seconds, usage.ru_maxrss / (1024 * 1024 if SYSTEM_IS_DARWIN else 1024))


def count_instructions(command: list[str], environment: dict[str, str]) -> float:
    """Millions of user instructions by valgrind's cachegrind: the same from run to run, whatever else runs here.

    Raises:
        CommandFailedError: it ended with something else than 0, or valgrind said no figure.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        prefix = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
        done = subprocess.run(
            [*prefix, f"--log-file={log}", *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment | {"PYTHONHASHSEED": "0"},
            check=False,
        )
        found = re.search(r"I\s+refs:\s+([\d,]+)", log.read_text(encoding="utf-8"))
        if done.returncode != 0 or found is None:
            raise CommandFailedError(f"{command} under valgrind: {done.stderr.decode('utf-8', 'replace')[-2000:]}")
    return int(found[1].replace(",", "")) / 1e6
