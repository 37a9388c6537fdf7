"""The `edit` tool: an exact piece of a file is replaced, and no other byte of it changes.

It works on bytes: line ends, a byte order mark and bytes that are no UTF-8 stay as they are. One courtesy: models
write line ends as `\\n`, so in a file whose line ends are all CRLF a lone `\\n` of the arguments means CRLF.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import anyio.to_thread

from engine.tools.atomic import replace_file
from engine.tools.base import ToolContext, ToolError
from engine.tools.function_tool import Arg, FunctionTool
from engine.tools.paths import open_regular, os_trouble, resolve_path, show_path

FILE_BYTES_MAX = 64 * 1024 * 1024
"""The largest file that is edited: it is held in memory twice."""

_PLACES_MAX = 10  # places whose line numbers are named
_LONE_LF = re.compile(rb"(?<!\r)\n")


async def edit(
    context: ToolContext,
    path: Annotated[str, Arg("File to edit, absolute or relative to the working folder.")],
    old_string: Annotated[str, Arg("The exact text to replace, white space included; must be in the file once.")],
    new_string: Annotated[str, Arg("The text to put in its place.")],
    replace_all: Annotated[bool, Arg("Replace every place where old_string is, not a single one.")] = False,
) -> str:
    """Replace an exact piece of a text file. The rest of the file stays as it is, byte for byte."""
    target = resolve_path(context, path)
    shown = show_path(context, target)
    # Not abandoned on a cancel: whether the file was changed must be known.
    answer = await anyio.to_thread.run_sync(_edit_file, target, shown, old_string, new_string, replace_all)
    context.note_change(target)
    return answer


def replace_piece(data: bytes, old_string: str, new_string: str, *, replace_all: bool) -> tuple[bytes, str]:
    """`data` with the piece replaced, and in words where it was.

    Raises:
        ToolError: the piece is not there, is there more than once, or there is nothing to do.
    """
    try:
        old, new = old_string.encode(), new_string.encode()
    except UnicodeEncodeError:
        raise ToolError("old_string or new_string has lone surrogates, which no UTF-8 file can hold") from None
    if not old:
        raise ToolError("old_string is empty: give the text to replace, or use write to make a file")
    if _is_crlf(data):
        old, new = _LONE_LF.sub(b"\r\n", old), _LONE_LF.sub(b"\r\n", new)
    if old == new:
        raise ToolError("old_string and new_string are the same: there is nothing to change")
    lines = _line_numbers(data, old)
    if not lines:
        raise ToolError(f"old_string was not found: {_why_not_found(data, old_string)}")
    if len(lines) > 1 and not replace_all:
        named = ", ".join(map(str, lines[:_PLACES_MAX])) + (", ..." if len(lines) > _PLACES_MAX else "")
        times = f"{len(lines)} times" if len(lines) <= _PLACES_MAX else f"more than {_PLACES_MAX} times"
        raise ToolError(
            f"old_string was found {times} (lines {named}): add text around it until it is unique, or set replace_all"
        )
    count = data.count(old) if replace_all else 1
    if len(data) + count * (len(new) - len(old)) > FILE_BYTES_MAX:
        raise ToolError(f"the file would grow beyond {FILE_BYTES_MAX:,} bytes")
    return data.replace(old, new), f"line {lines[0]}" if count == 1 else f"{count} places"


def _edit_file(path: Path, shown: str, old_string: str, new_string: str, replace_all: bool) -> str:
    try:
        with os.fdopen(open_regular(path, shown), "rb") as file:
            seen = os.fstat(file.fileno())
            if seen.st_size > FILE_BYTES_MAX:
                raise ToolError(f"{shown} has {seen.st_size:,} bytes: edit takes files up to {FILE_BYTES_MAX:,}")
            data = file.read(FILE_BYTES_MAX)
        changed, where = replace_piece(data, old_string, new_string, replace_all=replace_all)
        replace_file(path, changed, shown, seen=seen)
    except OSError as error:
        raise os_trouble("edit", shown, error) from error
    return f"edited {shown} at {where}"


def _is_crlf(data: bytes) -> bool:
    """Whether there are line ends and all are CRLF."""
    return b"\r\n" in data and _LONE_LF.search(data) is None


def _line_numbers(data: bytes, piece: bytes) -> list[int]:
    """The lines where `piece` begins, one more than are named at most.

    Overlapping places count too: which of them is meant cannot be told.
    """
    numbers: list[int] = []
    line, counted, at = 1, 0, data.find(piece)
    while at >= 0 and len(numbers) <= _PLACES_MAX:
        line += data.count(b"\n", counted, at)
        counted = at
        numbers.append(line)
        at = data.find(piece, at + 1)
    return numbers


def _why_not_found(data: bytes, old_string: str) -> str:
    """What most likely went wrong, as a hint for the next try."""
    if "\ufffd" in old_string:
        return "it has U+FFFD, which stands for bytes that are no valid UTF-8; leave those out"
    words = old_string.encode().split()
    if words:
        at = re.search(rb"\s+".join(map(re.escape, words)), data)
        if at is not None:
            line = data.count(b"\n", 0, at.start()) + 1
            return f"at line {line} the same words stand with other white space; copy it exactly as read shows it"
    return "read the file again and copy the text exactly"


TOOL = FunctionTool(edit, is_read_only=False)
