"""The `grep` tool: lines of files by a regular expression, searched in a process that can be ended at any moment."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import anyio.to_thread

from engine.limits import TOOL_TEXT_MAX
from engine.tools.base import ToolContext, ToolError, ToolOutput
from engine.tools.command import Command, run_command
from engine.tools.function_tool import Arg, FunctionTool
from engine.tools.paths import os_trouble, require_regular, resolve_path, show_path

SEARCH_SECONDS = 60.0
"""How long one search may take: a regular expression that backtracks for ever ends here at the latest."""

_PATTERN_CHARS_MAX = 10_000  # the worker is told by its argument list, and no honest pattern comes near
_NOTICE_ROOM = 200
_ROOT = str(Path(__file__).parents[2])
_START = f"import sys; sys.path.insert(0, {_ROOT!r}); from engine.tools.grep_worker import main; main()"


async def grep(
    context: ToolContext,
    pattern: Annotated[str, Arg("Regular expression, Python syntax, matched against each line.")],
    path: Annotated[str, Arg("File or folder to search, absolute or relative to the working folder.")] = ".",
    include: Annotated[str, Arg("Only files matching this, such as '*.py' or 'src/**/*.{c,h}'.")] = "*",
    context_lines: Annotated[int, Arg("Lines to show before and after each match.", ge=0, le=20)] = 0,
    ignore_case: Annotated[bool, Arg("Whether upper and lower case are the same.")] = False,
) -> ToolOutput:
    """Search text files for lines matching a regular expression; each is told as path:line:text, in order of path."""
    if len(pattern) > _PATTERN_CHARS_MAX or len(include) > _PATTERN_CHARS_MAX:
        raise ToolError(f"the pattern is longer than {_PATTERN_CHARS_MAX:,} characters: search for less")
    root = resolve_path(context, path)
    shown = show_path(context, root)
    is_folder = await anyio.to_thread.run_sync(_check_root, root, shown, abandon_on_cancel=True)
    prefix = ("" if shown == "." else shown.rstrip("/") + "/") if is_folder else shown
    request = json.dumps(
        {
            "pattern": pattern,
            "root": str(root),
            "prefix": prefix,
            "include": include,
            "context": context_lines,
            "ignore_case": ignore_case,
        }
    )
    command = Command("grep", [sys.executable, "-I", "-S", "-c", _START, request], Path("/"), dict(os.environ))
    result = await run_command(command, context, timeout_seconds=SEARCH_SECONDS)
    text = result.output.finish(TOOL_TEXT_MAX - _NOTICE_ROOM)
    size = result.output.size
    match result.exit_code:
        case 0:
            return ToolOutput(text.removesuffix("\n"), size)
        case None:
            notice = f"[stopped after {SEARCH_SECONDS:g} s: simplify the pattern, or narrow path or include]"
            return ToolOutput(text + notice, size, is_error=True)
        case _:
            raise ToolError(f"grep: {text.strip() or 'the search ended without an answer'}")


def _check_root(root: Path, shown: str) -> bool:
    """Whether `root` is a folder; refuses what is neither folder nor regular file."""
    try:
        if root.is_dir():
            return True
        require_regular(root.stat(), shown)
    except OSError as error:
        raise os_trouble("search", shown, error) from error
    return False


TOOL = FunctionTool(grep, is_read_only=True)
