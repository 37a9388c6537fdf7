"""`--output-file`: there is the old file, then there is the whole new one; never half of it."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from engine.errors import ConfigurationError


def check_output_file(path: str) -> None:
    """Find out before the run whether the file can be written at its end.

    Raises:
        ConfigurationError: it cannot.
    """
    target = Path(path)
    try:
        if target.is_dir():
            raise ConfigurationError(f"--output-file {path}: this is a directory: name a file in it")
        folder = target.resolve().parent
        is_there = folder.is_dir()
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigurationError(f"--output-file {path}: {error}") from error
    if not is_there:
        raise ConfigurationError(f"--output-file {path}: there is no directory {folder}: make it first")
    if _is_special(target):
        if not os.access(target, os.W_OK):
            raise ConfigurationError(f"--output-file {path}: it cannot be written: choose another file")
    elif not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigurationError(f"--output-file {path}: {folder} cannot be written: choose another directory")


def write_output_file(path: str, data: bytes) -> None:
    """Put `data` in place of the file, in one step; a device or a pipe is written as it is.

    Raises:
        OSError: it cannot be written; the old file is untouched.
    """
    target = Path(path)
    if _is_special(target):
        target.write_bytes(data)
        return
    target = target.resolve()
    number, made = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:200]}.")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(made).chmod(_mode(target))
        Path(made).replace(target)
    except BaseException:
        Path(made).unlink(missing_ok=True)
        raise


def _is_special(target: Path) -> bool:
    return target.exists() and not target.is_file()


def _mode(target: Path) -> int:
    """The mode of the file that is replaced, else what the umask leaves."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
