"""Lines of standard input as they come, of any source, one at a time and bounded."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator

from cli.request_line import LINE_MAX
from cli.stdin import StdinKind, find_kind, read_object, read_some

_CHUNK = 65_536


async def read_lines() -> AsyncGenerator[tuple[int, bytes], None]:
    """Numbered lines without their ends, empty ones left out.

    Of a line that is too long, only so much is kept that its reader can tell.
    """
    number = 1
    pending = bytearray()
    async for piece in _pieces():
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            line = bytes(pending) + piece[start:end]
            pending.clear()
            if line.strip():
                yield number, line
            number += 1
            start = end + 1
        if len(pending) <= LINE_MAX:
            pending += piece[start:]
    if pending.strip():
        yield number, bytes(pending)


async def _pieces() -> AsyncGenerator[bytes, None]:
    kind, source = find_kind()
    match kind:
        case StdinKind.CLOSED:
            return
        case StdinKind.OBJECT:
            yield read_object()
        case StdinKind.FILE:
            while piece := os.read(source, _CHUNK):
                yield piece
        case StdinKind.PIPE | StdinKind.TERMINAL:
            while piece := await read_some(source):
                yield piece
