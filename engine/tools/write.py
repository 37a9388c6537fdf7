"""The `write` tool: a whole file at once, old or new and nothing in between."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import anyio.to_thread

from engine.tools.atomic import replace_file
from engine.tools.base import ToolContext, ToolError
from engine.tools.function_tool import Arg, FunctionTool
from engine.tools.paths import os_trouble, resolve_path, show_path


async def write(
    context: ToolContext,
    path: Annotated[str, Arg("File to write, absolute or relative to the working folder; folders are made.")],
    content: Annotated[str, Arg("The whole new content of the file.")],
) -> str:
    """Write a file, replacing what it held. To change a part of a file use edit."""
    target = resolve_path(context, path)
    shown = show_path(context, target)
    # Not abandoned on a cancel: whether the file was written must be known.
    answer = await anyio.to_thread.run_sync(_write_file, target, content, shown)
    context.note_change(target)
    return answer


def _write_file(path: Path, content: str, shown: str) -> str:
    try:
        data = content.encode()
    except UnicodeEncodeError:
        raise ToolError("the content has lone surrogates, which no UTF-8 file can hold") from None
    try:
        existed = path.exists()
        replace_file(path, data, shown)
    except OSError as error:
        raise os_trouble("write", shown, error) from error
    return f"{'replaced' if existed else 'made'} {shown}: {len(data):,} bytes"


TOOL = FunctionTool(write, is_read_only=False)
