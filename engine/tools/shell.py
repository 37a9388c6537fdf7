"""The `shell` tool: a command line, its output bounded, its processes ended with it or, at the latest, with the run."""

from __future__ import annotations

import os
import shutil
import signal
from typing import Annotated

import anyio.to_thread

from engine.limits import TOOL_TEXT_MAX
from engine.tools.base import ToolContext, ToolOutput
from engine.tools.command import Command, CommandResult, run_command
from engine.tools.function_tool import Arg, FunctionTool

TIMEOUT_SECONDS = 120
"""How long a command may run unless the model asks for another limit."""

TIMEOUT_SECONDS_MAX = 600
"""The longest limit that a model may ask for."""

_SECRET_ENDS = ("_API_KEY", "_APIKEY", "_TOKEN", "_SECRET", "_SECRET_KEY", "_ACCESS_KEY", "_PASSWORD")
_PROVIDER_STARTS = ("OPENAI_", "ANTHROPIC_")
_KEPT_ENDS = ("_BASE_URL",)  # an address is no secret, and an agent started by a tool needs it


async def shell(
    context: ToolContext,
    command: Annotated[str, Arg("Command line for the shell (bash where there is one, else sh).")],
    timeout: Annotated[
        int, Arg("Seconds after which the command is ended.", ge=1, le=TIMEOUT_SECONDS_MAX)
    ] = TIMEOUT_SECONDS,
) -> ToolOutput:
    """Run a shell command in the working folder, without input or terminal; tells its output and exit code."""
    title = " ".join(f"shell: {command}".split())
    argv = [shutil.which("bash") or "/bin/sh", "-c", command]
    started = Command(title if len(title) <= 200 else title[:197] + "...", argv, context.cwd, child_env(context))
    result = await run_command(started, context, timeout_seconds=timeout)
    status = _status(result, timeout)
    text = await anyio.to_thread.run_sync(result.output.finish, TOOL_TEXT_MAX - len(status) - 1)
    gap = "" if not text or text.endswith("\n") else "\n"
    return ToolOutput(f"{text}{gap}{status}", result.output.size, is_error=result.exit_code != 0)


def child_env(context: ToolContext) -> dict[str, str]:
    """Our environment without keys and passwords, and with what the run adds."""
    return {name: value for name, value in os.environ.items() if not _is_secret(name)} | context.env


def _is_secret(name: str) -> bool:
    upper = name.upper()
    return upper.endswith(_SECRET_ENDS) or (upper.startswith(_PROVIDER_STARTS) and not upper.endswith(_KEPT_ENDS))


def _status(result: CommandResult, timeout_seconds: int) -> str:
    """The last line of the answer: how the command ended and what it left."""
    code = result.exit_code
    if code is None:
        return f"[timed out after {timeout_seconds} s: the command and all that it started were ended]"
    if code < 0:
        how = f"killed by {_signal_name(-code)}"
    else:
        how = f"exit code {code}" if result.output.size else f"no output, exit code {code}"
    if result.background:
        pids = ", ".join(str(member.pid) for member in result.background[:10])
        how += (
            f"; still running in the background: pid {pids}. It is ended with the run, "
            "and what it prints from now on is not kept"
        )
    return f"[{how}]"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


TOOL = FunctionTool(shell, is_read_only=False)
