from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from engine.limits import TOOL_TEXT_MAX
from engine.tools.base import ToolError
from engine.tools.children import is_any_live, kill_all_nowait
from engine.tools.processes import MARK_VARIABLE, read_member
from tests.tools.helpers import Rope, call, end_run, make_context

pytestmark = pytest.mark.anyio


async def test_output_comes_in_order_with_the_exit_code(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    output = await call("shell", context, command="echo out; echo err >&2; pwd; exit 3")
    assert output.text == f"out\nerr\n{context.cwd}\n[exit code 3]"
    assert output.is_error
    assert output.size == len(f"out\nerr\n{context.cwd}\n")
    assert not (await call("shell", context, command="true")).is_error
    assert (await call("shell", context, command="true")).text == "[no output, exit code 0]"
    assert (await call("shell", context, command="kill -SEGV $$")).text == "[killed by SIGSEGV]"
    assert not is_any_live()


async def test_there_is_no_input_and_no_terminal(tmp_path: Path) -> None:
    with anyio.fail_after(5):
        output = await call("shell", make_context(tmp_path), command="cat; tty; : < /dev/tty")
    assert "not a tty" in output.text
    assert "/dev/tty: " in output.text


async def test_keys_stay_here_and_the_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "SOME_TOKEN", "my_secret", "ANTHROPIC_AUTH", "OPENAI_BASE_URL", "PLAIN"):
        monkeypatch.setenv(name, f"value-of-{name}")
    context = make_context(tmp_path)
    context.env["AGENT_RUN_ID"] = "run-1"
    names = (await call("shell", context, command="env | grep -E 'value-of|AGENT_RUN' | sort")).text
    assert names.splitlines()[:-1] == [
        "AGENT_RUN_ID=run-1",
        "OPENAI_BASE_URL=value-of-OPENAI_BASE_URL",
        "PLAIN=value-of-PLAIN",
    ]


async def test_output_of_any_bytes_is_text(tmp_path: Path) -> None:
    output = await call("shell", make_context(tmp_path), command=r"printf 'a\xff\0b\xc3'")
    assert output.text == "a\ufffd\ufffdb\ufffd\n[exit code 0]"
    assert output.size == 5


async def test_a_long_output_keeps_both_ends_and_lies_whole_in_a_file(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    output = await call("shell", context, command="echo BEGIN; seq 1 200000; echo END; exit 4")
    assert len(output.text) <= TOOL_TEXT_MAX
    assert output.text.startswith("BEGIN\n1\n2\n")
    assert output.text.endswith("200000\nEND\n[exit code 4]")
    (kept,) = context.output_dir.iterdir()
    assert str(kept) in output.text
    whole = "BEGIN\n" + "".join(f"{n}\n" for n in range(1, 200_001)) + "END\n"
    assert kept.read_text() == whole
    assert output.size == len(whole)


def test_a_hundred_megabytes_cost_no_memory(tmp_path: Path) -> None:
    code = (
        "import anyio, resource, sys\n"
        "from pathlib import Path\n"
        "from engine.tools.base import ToolContext\n"
        "from engine.tools.shell import TOOL\n"
        "folder = Path(sys.argv[1])\n"
        "async def main():\n"
        "    context = ToolContext(folder, folder / 'out')\n"
        "    await TOOL.run({'command': 'true'}, context)\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "    output = await TOOL.run({'command': 'head -c 100000000 /dev/zero'}, context)\n"
        "    print(output.size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
        "anyio.run(main)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=root, capture_output=True, text=True, timeout=30, check=True
    )
    size, grown_kib = map(int, done.stdout.split())
    assert size == 100_000_000
    assert grown_kib < 16 * 1024
    (kept,) = (tmp_path / "out").iterdir()
    assert kept.stat().st_size == 64 * 1024 * 1024


async def test_a_limit_of_time_ends_the_command_with_all_it_started(tmp_path: Path) -> None:
    context, rope = make_context(tmp_path), Rope(tmp_path)
    command = f"{rope.grab}; echo said; (sleep 1000 & sleep 1000) & setsid sleep 1000 & wait"
    with anyio.fail_after(5):
        output = await call("shell", context, command=command, timeout=1)
    assert output.is_error
    assert output.text == "said\n[timed out after 1 s: the command and all that it started were ended]"
    await rope.wait_dropped()
    assert not is_any_live()
    assert context.unfinished == []


async def test_what_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    context, rope = make_context(tmp_path), Rope(tmp_path)
    command = f"{rope.grab}; trap '' TERM; setsid sleep 1000 & sleep 1000; sleep 1000"
    with anyio.fail_after(5):
        output = await call("shell", context, command=command, timeout=1)
    assert "timed out" in output.text
    await rope.wait_dropped()
    assert not is_any_live()


async def test_what_heeds_sigterm_has_its_last_word(tmp_path: Path) -> None:
    command = "trap 'echo cleaned; exit' TERM; sleep 1000 & wait"
    with anyio.fail_after(5):
        output = await call("shell", make_context(tmp_path), command=command, timeout=1)
    assert output.text.startswith("cleaned\n[timed out")


@pytest.mark.parametrize(
    "start", ["sleep 1000", "sleep 1000 & wait", "setsid sleep 1000 & wait", "(setsid sleep 1000 &)"]
)
async def test_a_cancel_kills_grandchildren(tmp_path: Path, start: str) -> None:
    context, rope = make_context(tmp_path), Rope(tmp_path)

    async def run() -> None:
        await call("shell", context, command=f"{rope.grab}; echo up >&7; {start}; sleep 1000")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            assert await rope.wait_word() == "up"
            tasks.cancel_scope.cancel()
    await rope.wait_dropped()
    assert not is_any_live()
    assert len(context.unfinished) == 1
    assert context.unfinished[0].startswith("shell: exec 7>")


async def test_a_cancel_before_the_call_starts_nothing(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await call("shell", context, command="touch made; sleep 1000")
    assert scope.cancelled_caught
    assert not is_any_live()
    assert not (context.cwd / "made").exists()


async def test_the_background_lives_until_the_run_ends_and_is_listed(tmp_path: Path) -> None:
    context, rope = make_context(tmp_path), Rope(tmp_path)
    command = f"{rope.grab}; sleep 1000 & setsid sleep 2000 & (setsid sh -c 'sleep 3000; true' &) ; echo started"
    with anyio.fail_after(5):
        output = await call("shell", context, command=command)
        assert output.text.startswith("started\n[exit code 0; still running in the background: pid ")
        assert not output.is_error
        assert (await call("shell", context, command="echo other")).text == "other\n[exit code 0]"
        assert not rope.is_dropped()
        await end_run(context)
    await rope.wait_dropped()
    listed = " ".join(context.unfinished)
    assert all(f"sleep {seconds}" in listed for seconds in (1000, 2000, 3000)), listed
    assert not is_any_live()
    await end_run(context)


async def test_a_server_in_the_background_may_go_on_printing(tmp_path: Path) -> None:
    context, rope = make_context(tmp_path), Rope(tmp_path)
    # More than a pipe holds, after the call returned: a closed or a full pipe would end or stop it.
    command = f"{rope.grab}; (read line < go; head -c 1000000 /dev/zero && echo printed >&7; sleep 1000) &"
    os.mkfifo(context.cwd / "go")
    with anyio.fail_after(5):
        await call("shell", context, command=command)
        await anyio.to_thread.run_sync((context.cwd / "go").write_text, "\n")
        assert await rope.wait_word() == "printed"
        await end_run(context)
    await rope.wait_dropped()


async def test_a_background_that_floods_the_pipe_holds_nobody_up(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    with anyio.fail_after(5):
        output = await call("shell", context, command="yes & echo done")
        assert "[exit code 0; still running" in output.text
        await end_run(context)
    assert not is_any_live()


async def test_ending_one_command_spares_the_background_of_another(tmp_path: Path) -> None:
    context, rope = make_context(tmp_path), Rope(tmp_path)
    with anyio.fail_after(5):
        await call("shell", context, command=f"{rope.grab}; setsid sleep 1000 & sleep 1000 &")
        await call("shell", context, command="sleep 1000", timeout=1)
        assert not rope.is_dropped()
        await end_run(context)
    await rope.wait_dropped()


async def test_commands_run_side_by_side(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    os.mkfifo(context.cwd / "a")
    texts = []

    async def run(command: str) -> None:
        texts.append((await call("shell", context, command=command)).text)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, "echo ping > a")
            tasks.start_soon(run, "cat a")
    assert sorted(texts) == ["[no output, exit code 0]", "ping\n[exit code 0]"]


def our_children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


async def test_no_zombie_is_left(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    with anyio.fail_after(5):
        for command in ("true", "sleep 0.01 &", "sleep 1000 & kill -9 $$"):
            await call("shell", context, command=command)
        await end_run(context)
    assert not [pid for pid in our_children() if (member := read_member(pid)) and member.is_zombie]


def test_orphans_that_fall_to_us_leave_no_zombies(tmp_path: Path) -> None:
    """As process 1 of a container we inherit orphans; a subreaper is in the same place."""
    code = (
        "import anyio, ctypes, sys, subprocess, os\n"
        "from pathlib import Path\n"
        "from engine.tools.base import ToolContext\n"
        "from engine.tools.shell import TOOL\n"
        "folder = Path(sys.argv[1])\n"
        "assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER\n"
        "async def main():\n"
        "    context = ToolContext(folder, folder / 'out')\n"
        "    await TOOL.run({'command': '(setsid sleep 1000 &) ; (sleep 1000 &) ; true'}, context)\n"
        "    for cleanup in context.at_end: await cleanup()\n"
        "    print(len(context.unfinished))\n"
        "anyio.run(main)\n"
        "print(Path(f'/proc/self/task/{os.getpid()}/children').read_text())\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=root, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.split() == ["2"]


async def test_a_second_interrupt_kills_all_at_once(tmp_path: Path) -> None:
    context, rope = make_context(tmp_path), Rope(tmp_path)

    async def run() -> None:
        command = f"{rope.grab}; trap '' TERM; setsid sleep 1000 & sleep 1000 & echo up >&7; wait"
        output = await call("shell", context, command=command)
        assert output.text == "[killed by SIGKILL]"

    with anyio.fail_after(5):
        await call("shell", context, command=f"{rope.grab}; (setsid sleep 1000 &)")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            assert await rope.wait_word() == "up"
            kill_all_nowait()
            await rope.wait_dropped()
        await end_run(context)
    assert not is_any_live()


async def test_an_agent_in_an_agent_is_found_by_both_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK_VARIABLE, "cmd-outer")
    output = await call("shell", make_context(tmp_path), command=f"echo ${MARK_VARIABLE}")
    outer, inner = output.text.splitlines()[0].split(":")
    assert outer == "cmd-outer"
    assert inner.startswith("cmd-")


@pytest.mark.parametrize("command", ["a\0b", "x" * 3_000_000])
async def test_a_command_that_cannot_start_is_an_error_text(tmp_path: Path, command: str) -> None:
    with pytest.raises(ToolError, match="cannot start shell"):
        await call("shell", make_context(tmp_path), command=command)
    assert not is_any_live()


async def test_a_working_folder_that_is_gone_is_an_error_text(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    context.cwd.rmdir()
    with pytest.raises(ToolError, match="No such file"):
        await call("shell", context, command="true")


@pytest.mark.parametrize("timeout", [0, 601])
async def test_a_limit_of_time_out_of_bounds_is_refused(tmp_path: Path, timeout: int) -> None:
    with pytest.raises(ToolError, match="'timeout'"):
        await call("shell", make_context(tmp_path), command="true", timeout=timeout)


async def test_children_have_the_default_signals(tmp_path: Path) -> None:
    output = await call("shell", make_context(tmp_path), command="yes | head -1; echo ${PIPESTATUS[0]}")
    assert output.text == f"y\n{128 + signal.SIGPIPE}\n[exit code 0]"
