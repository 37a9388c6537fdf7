"""What `agent run` costs beside its model: the whole process against a server that answers at once (issue 2).

    .venv/bin/python scripts/bench/overhead.py [--rounds 15] [--instructions] [--agent PATH]
        [--cli 'name=command with {url}']...

All commands take turns, round by round, so that a busy moment of the machine hits them alike; compare within one
table only. `{url}` in a command becomes the server's base URL, `{data}` a data directory of its own. Use an
environment without the extra `dev`: where trio is installed, httpx2 imports it.
"""

from __future__ import annotations

import argparse
import compileall
import shlex
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from processes import Cost, child_environment, count_instructions, run_once

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BARE, NAIVE, RUN, RUN_NEW, VERSION, HELP = (
    "python -c pass",
    "naive.py",
    "agent run",
    "agent run, new data dir",
    "agent --version",
    "agent --help",
)

NAIVE_RATIO_MAX = 0.7
PEAK_MIB_MAX = 90.0
START_SECONDS_MAX = 0.25


def main() -> int:
    """Measure, print, and say which targets are missed; exits 1 when one is."""
    options = parse_options()
    if find_spec("trio") is not None:
        print("trio is installed and will be imported by httpx2: not what users run", file=sys.stderr)
    compile_everything()
    with tempfile.TemporaryDirectory() as folder, open_server() as url:
        commands = build_commands(options, url, Path(folder))
        costs = measure(commands, options.rounds, Path(folder))
        counts = count_all(commands, Path(folder)) if options.instructions else {}
    print_table(costs, counts)
    return print_targets(costs, counts)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="whole-process cost of `agent run`, as ratios")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--agent", default=str(Path(sys.executable).with_name("agent")), help="the agent to measure")
    parser.add_argument("--cli", action="append", default=[], metavar="NAME=COMMAND", help="another CLI to run beside")
    parser.add_argument("--instructions", action="store_true", help="count them too, with valgrind")
    return parser.parse_args()


def compile_everything() -> None:
    """Bytecode for all that is measured: an uncompiled install is another measurement."""
    for folder in {sysconfig.get_path("purelib"), str(ROOT / "cli"), str(ROOT / "engine"), str(HERE)}:
        compileall.compile_dir(folder, quiet=2)


@contextmanager
def open_server() -> Iterator[str]:
    """The loopback server in a process of its own; gives its base URL."""
    command = [sys.executable, str(HERE / "sse_server.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


def build_commands(options: argparse.Namespace, url: str, folder: Path) -> dict[str, list[str]]:
    """What to run, by name; `{data}` is filled in for each run."""
    python, agent = sys.executable, options.agent
    run = [agent, "run", "--no-tools", "--model", "openai/x", "--base-url", url, "--data-dir"]
    commands = {
        BARE: [python, "-c", "pass"],
        NAIVE: [python, str(HERE / "naive.py"), "Say hello.", "--base-url", url, "--data-dir", str(folder / "naive")],
        RUN: [*run, str(folder / "warm"), "Say hello."],
        RUN_NEW: [*run, "{data}", "Say hello."],
        VERSION: [agent, "--version"],
        HELP: [agent, "--help"],
    }
    for given in options.cli:
        name, _, command = given.partition("=")
        commands[name] = [word.replace("{url}", url) for word in shlex.split(command)]
    return commands


def with_data_dir(command: list[str], folder: Path) -> list[str]:
    """The command with a data directory that does not exist yet."""
    return [word.replace("{data}", tempfile.mktemp(dir=folder)) for word in command]


def measure(commands: dict[str, list[str]], rounds: int, folder: Path) -> dict[str, list[Cost]]:
    """Each command once for warmth, then `rounds` times in turns."""
    environment = child_environment(OPENAI_API_KEY="bench")
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            cost = run_once(with_data_dir(command, folder), environment)
            if number:
                costs[name].append(cost)
    return costs


def count_all(commands: dict[str, list[str]], folder: Path) -> dict[str, float]:
    """Instructions of each command, in millions; empty where valgrind is missing."""
    if shutil.which("valgrind") is None:
        print("valgrind is not installed: no instruction counts", file=sys.stderr)
        return {}
    environment = child_environment(OPENAI_API_KEY="bench")
    return {name: count_instructions(with_data_dir(each, folder), environment) for name, each in commands.items()}


def median_wall(costs: list[Cost]) -> float:
    return statistics.median(cost.wall_seconds for cost in costs)


def print_table(costs: dict[str, list[Cost]], counts: dict[str, float]) -> None:
    """Medians, minima, and how each stands to the naive script and to the bare interpreter."""
    naive, bare = median_wall(costs[NAIVE]), median_wall(costs[BARE])
    print(
        f"{'command':26} {'median s':>9} {'min s':>7} {'x naive':>8} {'s over bare':>12} {'peak MiB':>9} {'Minstr':>7}"
    )
    for name, each in costs.items():
        median, least = median_wall(each), min(cost.wall_seconds for cost in each)
        peak = max(cost.peak_mib for cost in each)
        count = f"{counts[name]:7.0f}" if name in counts else f"{'':>7}"
        print(f"{name:26} {median:9.3f} {least:7.3f} {median / naive:8.2f} {median - bare:12.3f} {peak:9.1f} {count}")


def print_targets(costs: dict[str, list[Cost]], counts: dict[str, float]) -> int:
    """Each target with its figure; returns 1 when one is missed."""
    naive, bare = median_wall(costs[NAIVE]), median_wall(costs[BARE])
    targets = [
        ("agent run / naive.py, wall", median_wall(costs[RUN]) / naive, NAIVE_RATIO_MAX),
        ("agent run, peak MiB", max(cost.peak_mib for cost in [*costs[RUN], *costs[RUN_NEW]]), PEAK_MIB_MAX),
        ("--version, s over bare", median_wall(costs[VERSION]) - bare, START_SECONDS_MAX),
        ("--help, s over bare", median_wall(costs[HELP]) - bare, START_SECONDS_MAX),
    ]
    print()
    for name, figure, bound in targets:
        print(f"{'met' if figure <= bound else 'MISSED':7} {name}: {figure:.2f} (at most {bound})")
    if counts:
        print(f"        agent run / naive.py, instructions: {counts[RUN] / counts[NAIVE]:.2f}")
    return int(any(figure > bound for _, figure, bound in targets))


if __name__ == "__main__":
    sys.exit(main())
