"""What the tests of tools share: a context, a call, and a rope that tells when the last process holding it died."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio

from engine.tools.base import ToolContext, ToolOutput
from engine.tools.registry import open_tools


def make_context(folder: Path) -> ToolContext:
    work = folder / "work"
    work.mkdir(exist_ok=True)
    return ToolContext(cwd=work, output_dir=folder / "outputs")


async def call(tool: str, context: ToolContext, /, **arguments: Any) -> ToolOutput:
    return await open_tools([tool])[tool].run(arguments, context)


async def end_run(context: ToolContext) -> None:
    """What the turn does at the end of a run."""
    for cleanup in context.at_end:
        await cleanup()


class Rope:
    """A named pipe that processes hold: a line in it says that they are up, its end that all of them are dead.

    A command holds it as descriptor 7 after `self.grab`; everything it starts inherits it.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "rope"
        os.mkfifo(self.path)
        self._fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        self.grab = f"exec 7>'{self.path}'"

    async def wait_word(self) -> str:
        """The next word that a holder wrote."""
        with anyio.fail_after(5):
            await anyio.wait_readable(self._fd)
        return os.read(self._fd, 4096).decode().strip()

    async def wait_dropped(self) -> None:
        """Until nobody holds it any more."""
        with anyio.fail_after(5):
            while await self._is_held():
                pass

    async def _is_held(self) -> bool:
        await anyio.wait_readable(self._fd)
        try:
            return bool(os.read(self._fd, 4096))
        except BlockingIOError:
            return True

    def is_dropped(self) -> bool:
        """Whether nobody holds it now."""
        try:
            while os.read(self._fd, 4096):
                pass
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        os.close(self._fd)
