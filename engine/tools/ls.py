"""The `ls` tool: what is in one folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import anyio.to_thread

from engine.tools.base import ToolContext
from engine.tools.function_tool import Arg, FunctionTool
from engine.tools.paths import os_trouble, resolve_path, show_path

ENTRIES_MAX = 1000
"""Entries shown of one folder; a model that needs more is better served by `glob`."""


async def ls(
    context: ToolContext,
    path: Annotated[str, Arg("Folder to list, absolute or relative to the working folder.")] = ".",
) -> str:
    """List a folder in order of name: folders end in a slash, files come with their size, links with their target."""
    target = resolve_path(context, path)
    shown = show_path(context, target)
    return await anyio.to_thread.run_sync(_list_folder, target, shown, abandon_on_cancel=True)


def _list_folder(path: Path, shown: str) -> str:
    try:
        with os.scandir(path) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        raise os_trouble("list", shown, error) from error
    lines = [_describe(entry) for entry in entries[:ENTRIES_MAX]]
    if len(entries) > ENTRIES_MAX:
        lines.append(f"[cut: {ENTRIES_MAX:,} of {len(entries):,} entries are shown; use glob for a choice of them]")
    return "\n".join(lines) or "[the folder is empty]"


def _describe(entry: os.DirEntry[str]) -> str:
    try:
        if entry.is_symlink():
            return f"{entry.name} -> {os.readlink(entry.path)}"  # noqa: PTH115  as it stands, not normalised
        if entry.is_dir(follow_symlinks=False):
            return f"{entry.name}/"
        if entry.is_file(follow_symlinks=False):
            return f"{entry.name}  {entry.stat(follow_symlinks=False).st_size:,}"
    except OSError:  # it vanished while we looked
        return f"{entry.name}  [gone or unreadable]"
    return f"{entry.name}  [neither file nor folder]"


TOOL = FunctionTool(ls, is_read_only=True)
