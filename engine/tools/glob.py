"""The `glob` tool: files and folders by a pattern of their paths."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import anyio.from_thread
import anyio.to_thread

from engine.tools.base import ToolContext, ToolError
from engine.tools.function_tool import Arg, FunctionTool
from engine.tools.paths import resolve_path, show_path
from engine.tools.walk import PathPattern, PatternError, Walk

MATCHES_MAX = 1000
"""Paths shown; the walk stops there, so that a pattern over a whole disk stays cheap."""


async def glob(
    context: ToolContext,
    pattern: Annotated[str, Arg("Such as '**/*.py', 'src/*.{c,h}' or 'tests/**/test_*.py'; ** is any folders.")],
    path: Annotated[str, Arg("Folder to search, absolute or relative to the working folder.")] = ".",
) -> str:
    """Find files and folders by a pattern, in order of path; folders end in a slash, .git is left out."""
    root = resolve_path(context, path)
    try:
        compiled = PathPattern(pattern)
    except PatternError as error:
        raise ToolError(str(error)) from None
    shown = show_path(context, root)
    return await anyio.to_thread.run_sync(_find, root, shown, compiled, abandon_on_cancel=True)


def _find(root: Path, shown: str, pattern: PathPattern) -> str:
    if not root.is_dir():
        raise ToolError(f"{shown} is not a folder: give a folder as path, and the rest as pattern")
    walk = Walk(str(root), pattern, anyio.from_thread.check_cancelled)
    prefix = "" if shown == "." else shown.rstrip("/") + "/"
    lines: list[str] = []
    for relative, entry in walk.matches():
        if len(lines) == MATCHES_MAX:
            lines.append(f"[cut: the first {MATCHES_MAX:,} matches are shown; narrow the pattern or the path]")
            break
        lines.append(f"{prefix}{relative}/" if entry.is_dir(follow_symlinks=False) else f"{prefix}{relative}")
    if walk.unreadable:
        lines.append(f"[{walk.unreadable} folders could not be read]")
    return "\n".join(lines) or "[no matches]"


TOOL = FunctionTool(glob, is_read_only=True)
