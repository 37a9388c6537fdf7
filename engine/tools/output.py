"""Output of any size, bounded: head and tail are shown, the whole lies in a file that the notice names (design, 6).

`bound_text` is for a text at hand, `OutputSink` for bytes that come in pieces and may never end. Both keep memory
bounded, and both are the boundary at which foreign bytes become clean text.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.codec import clean_text, decode_text
from engine.ids import new_id
from engine.limits import TOOL_TEXT_MAX
from engine.tools.base import ToolOutput

if TYPE_CHECKING:
    from pathlib import Path

KEPT_BYTES_MAX = 4 * TOOL_TEXT_MAX
"""Bytes held in memory at each end: a character takes at most four, so both ends always fill what is shown."""

FILE_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of one output that are kept on disk: enough for any log a person would open, no threat to a CI disk."""


def bound_text(text: str, output_dir: Path, name: str, *, is_error: bool = False) -> ToolOutput:
    """`text` as a tool's output, cut in the middle when it is longer than the model is shown. Blocks on the disk."""
    clean = clean_text(text)
    if len(clean) <= TOOL_TEXT_MAX:
        return ToolOutput(clean, len(clean.encode()), is_error)
    raw = clean.encode()
    return ToolOutput(cut_middle(clean, clean, len(raw), save_whole(raw, output_dir, name)), len(raw), is_error)


def cut_middle(head: str, tail: str, size: int, where: str, *, chars_max: int = TOOL_TEXT_MAX) -> str:
    """The start of `head`, a notice with the true `size` in bytes, and the end of `tail`: `chars_max` characters."""
    notice = f"\n\n[... cut here: the output has {size:,} bytes in all; {where} ...]\n\n"
    room = max(chars_max - len(notice), 2)
    return head[: room - room // 2] + notice + tail[-(room // 2) :]


def save_whole(raw: bytes, output_dir: Path, name: str) -> str:
    """Keep `raw` in a file of its own and say where it is, or why it could not be kept."""
    spill = _SpillFile(output_dir, name)
    spill.write(raw)
    spill.close()
    return spill.where()


class OutputSink:
    """Takes an output piece by piece; small ones stay in memory, others go to a file as they come."""

    def __init__(self, output_dir: Path, name: str) -> None:
        self.size = 0
        self._output_dir = output_dir
        self._name = name
        self._head = bytearray()
        self._tail = bytearray()
        self._spill: _SpillFile | None = None

    def is_blocking(self, length: int) -> bool:
        """Whether a piece of this length goes to the disk, so that it is better fed from a worker thread."""
        return self.size + length > KEPT_BYTES_MAX

    def feed(self, piece: bytes) -> None:
        """Take the next piece."""
        if self.is_blocking(len(piece)):
            if self._spill is None:
                self._spill = _SpillFile(self._output_dir, self._name)
                self._spill.write(bytes(self._head))
                self._tail += self._head
            self._spill.write(piece)
            self._head += piece[: KEPT_BYTES_MAX - len(self._head)]
            self._tail += piece
            if len(self._tail) > 2 * KEPT_BYTES_MAX:
                del self._tail[:-KEPT_BYTES_MAX]
        else:
            self._head += piece
        self.size += len(piece)

    def close(self) -> None:
        """Close the file, if there is one; safe to call twice."""
        if self._spill is not None:
            self._spill.close()

    def finish(self, chars_max: int = TOOL_TEXT_MAX) -> str:
        """Close, and tell all of it, or its head and tail, in at most `chars_max` characters."""
        self.close()
        head = decode_text(bytes(self._head))
        if self._spill is not None:
            tail = bytes(self._tail[-KEPT_BYTES_MAX:])
            return cut_middle(head, decode_text(tail), self.size, self._spill.where(), chars_max=chars_max)
        if len(head) <= chars_max:
            return head
        where = save_whole(bytes(self._head), self._output_dir, self._name)
        return cut_middle(head, head, self.size, where, chars_max=chars_max)


class _SpillFile:
    """The file that keeps an output whole. A full disk costs the rest of the file, never the tool's result."""

    def __init__(self, output_dir: Path, name: str) -> None:
        self._path = output_dir / f"{new_id(name)}.txt"
        self._size = 0
        self._trouble = ""
        self._fd = -1
        try:
            output_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._fd = os.open(self._path, flags, 0o600)
        except OSError as error:
            self._trouble = error.strerror or str(error)

    def write(self, piece: bytes) -> None:
        """Append what there is room for."""
        rest = memoryview(piece)[: FILE_BYTES_MAX - self._size]
        if len(rest) < len(piece) and not self._trouble:
            self._trouble = f"no more than {FILE_BYTES_MAX // 1024 // 1024} MiB of an output are kept"
        try:
            while self._fd >= 0 and rest:
                written = os.write(self._fd, rest)
                self._size += written
                rest = rest[written:]
        except OSError as error:
            self._trouble = error.strerror or str(error)
            self.close()

    def close(self) -> None:
        """Close; safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def where(self) -> str:
        """Where the whole is, for the notice."""
        if not self._trouble:
            return f"the whole is in {self._path}"
        if self._size:
            return f"its first {self._size:,} bytes are in {self._path} ({self._trouble})"
        return f"the whole could not be kept in {self._path.parent}: {self._trouble}"
