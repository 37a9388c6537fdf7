"""The `read` tool: a window of lines from a text file, as they are, so that `edit` can take them back literally."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, BinaryIO

import anyio.from_thread
import anyio.to_thread

from engine.codec import clean_text
from engine.limits import TOOL_TEXT_MAX
from engine.tools.base import ToolContext, ToolError, ToolOutput
from engine.tools.function_tool import Arg, FunctionTool
from engine.tools.paths import open_regular, os_trouble, resolve_path, show_path

LINES_MAX = 2000
"""Lines shown unless the model asks for fewer or more; the characters are bounded in any case."""

_ROOM = TOOL_TEXT_MAX - 500  # characters of the file, the rest is for the notice
_LINE_BYTES_MAX = 4 * TOOL_TEXT_MAX  # a longer line fills the room anyway
_PROBE_BYTES = 8192  # where a binary file is expected to show a NUL byte, as git and grep do
_CHECK_PIECES = 256  # lines, or pieces of a long one, between two looks at whether anybody still waits

_BOM = b"\xef\xbb\xbf"
_MAGIC = (
    (b"\x89PNG", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"%PDF", "PDF document"),
    (b"PK\x03\x04", "ZIP archive (or an office document, wheel or jar)"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x7fELF", "ELF program"),
    (b"SQLite format 3", "SQLite database"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)


async def read(
    context: ToolContext,
    path: Annotated[str, Arg("File to read, absolute or relative to the working folder.")],
    offset: Annotated[int, Arg("First line to show, counted from 1.", ge=1)] = 1,
    limit: Annotated[int, Arg("Number of lines to show at most.", ge=1)] = LINES_MAX,
) -> ToolOutput:
    """Read a text file and return its lines as they are. Long files are cut, with a notice saying how to go on."""
    target = resolve_path(context, path)
    shown = show_path(context, target)
    return await anyio.to_thread.run_sync(_read_file, target, shown, offset, limit, abandon_on_cancel=True)


def _read_file(path: Path, shown: str, offset: int, limit: int) -> ToolOutput:
    try:
        with os.fdopen(open_regular(path, shown), "rb", buffering=1 << 20) as file:
            size = os.fstat(file.fileno()).st_size
            _refuse_binary(file, shown, size)
            skipped = _skip_lines(file, offset - 1)
            if skipped < offset - 1:
                raise ToolError(f"{shown} has only {skipped} lines: offset {offset} is behind its end")
            return _Window(shown, offset, size).take(file, limit)
    except OSError as error:
        raise os_trouble("read", shown, error) from error


def _refuse_binary(file: BinaryIO, shown: str, size: int) -> None:
    """Refuse what is no text, by its first bytes, which stay unread; a byte order mark is dropped."""
    start = file.read(_PROBE_BYTES)
    file.seek(len(_BOM) if start.startswith(_BOM) else 0)
    if b"\0" in start or start.startswith(b"%PDF"):
        kind = next((name for magic, name in _MAGIC if start.startswith(magic)), "binary data")
        raise ToolError(f"{shown} is no text file: {kind}, {size:,} bytes")


def _skip_lines(file: BinaryIO, count: int) -> int:
    """Read over `count` lines, or all there are; how many it were. A last line without its end counts."""
    seen, pieces, is_midline = 0, 0, False
    while seen < count:
        piece = file.readline(_LINE_BYTES_MAX)
        if not piece:
            return seen + is_midline
        is_midline = not piece.endswith(b"\n")
        seen += not is_midline
        pieces += 1
        if pieces % _CHECK_PIECES == 0:
            anyio.from_thread.check_cancelled()
    return seen


class _Window:
    """The lines taken so far, and what to say about those left out."""

    def __init__(self, shown: str, offset: int, size: int) -> None:
        self._shown = shown
        self._offset = offset
        self._size = size
        self._lines: list[str] = []
        self._chars = 0
        self._is_lossy = False

    def take(self, file: BinaryIO, limit: int) -> ToolOutput:
        """Take lines until `limit`, the room for characters or the end."""
        while len(self._lines) < limit:
            raw = file.readline(_LINE_BYTES_MAX)
            if not raw:
                return self._output("")
            line = self._decode(raw)
            if self._chars + len(line) > _ROOM:
                return self._output(self._cut(line))
            self._lines.append(line)
            self._chars += len(line)
        return self._output(self._go_on(f"{limit} lines are shown") if file.read(1) else "")

    def _decode(self, raw: bytes) -> str:
        try:
            return clean_text(raw.decode())
        except UnicodeDecodeError:
            self._is_lossy = True
            return clean_text(raw.decode("utf-8", "replace"))

    def _cut(self, line: str) -> str:
        """The notice for a window that is full before `line`; a single line too long for it is shown in part."""
        if self._lines:
            return self._go_on(f"{self._chars:,} characters are shown")
        self._lines.append(line[:_ROOM])
        return (
            f"cut: line {self._offset} is longer than {_ROOM:,} characters, the file has {self._size:,} bytes. "
            f"For the lines behind it go on with offset={self._offset + 1}"
        )

    def _go_on(self, why: str) -> str:
        following = self._offset + len(self._lines)
        return f"cut: {why}, the file has {self._size:,} bytes. Go on with offset={following}"

    def _output(self, notice: str) -> ToolOutput:
        text = "".join(self._lines)
        size = self._size if notice else len(text.encode())
        notices = [notice] if notice else []
        if self._is_lossy:
            notices.append("bytes that are not valid UTF-8 are shown as U+FFFD")
        if not text:
            at_start = self._offset == 1
            notices.append("the file is empty" if at_start else f"there are no lines from {self._offset} on")
        if not notices:
            return ToolOutput(text, size)
        gap = "" if not text or text.endswith("\n") else "\n"
        return ToolOutput(f"{text}{gap}[{'; '.join(notices)}]", size)


TOOL = FunctionTool(read, is_read_only=True)
