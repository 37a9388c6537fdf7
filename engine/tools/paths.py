"""Paths that a model names: the one place where they become paths of this machine."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from engine.tools.base import ToolContext, ToolError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


def resolve_path(context: ToolContext, path: str) -> Path:
    """The path meant by `path`: relative to the run's folder, `~` the user's home. Every tool path comes through here.

    Raises:
        ToolError: it cannot be a path.
    """
    if not path or "\0" in path:
        raise ToolError("the path is empty or has a NUL character: give the path of a file or folder")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise ToolError("the path has characters that no file name can have") from None
    return context.cwd / (os.path.expanduser(path) if path.startswith("~") else path)  # noqa: PTH111  Path's raises


def show_path(context: ToolContext, path: Path) -> str:
    """`path` as the model is told it: relative to the run's folder where below it, so that it can be given back."""
    return str(path.relative_to(context.cwd)) if path.is_relative_to(context.cwd) else str(path)


def os_trouble(doing: str, shown: str, error: OSError) -> ToolError:
    """The operating system's refusal as a text for the model."""
    return ToolError(f"cannot {doing} {shown}: {error.strerror or error}")


def open_regular(path: Path, shown: str) -> int:
    """A descriptor to read `path` from, when it is a regular file. Never blocks on a pipe or a device.

    Looked at before it is opened, because opening alone disturbs a pipe's writer or rewinds a tape; looked at again
    after, because it may have been exchanged in between.

    Raises:
        ToolError: it is something else, or cannot be opened.
    """
    try:
        require_regular(path.stat(), shown)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise os_trouble("read", shown, error) from error
    try:
        require_regular(os.fstat(fd), shown)
    except ToolError:
        os.close(fd)
        raise
    return fd


def require_regular(status: os.stat_result, shown: str) -> None:
    """Refuse everything but a regular file.

    Raises:
        ToolError: it is a folder, a pipe, a device or a socket.
    """
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no regular file")
        hint = ": use ls to see what is in it" if stat.S_ISDIR(status.st_mode) else ": only regular files are opened"
        raise ToolError(f"{shown} is {kind}{hint}")
