"""Replacing a file's content: readers see the old or the new, never a half, and a failure leaves the old.

The way is a new file beside the old one, synced, then renamed over it. Where that would lose something (other hard
links, an owner that we cannot give) or is refused (a folder not writable, a file that is a mount point, as in
containers), the content is overwritten in place: room is claimed first, so that a full disk still leaves the old.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from engine.ids import new_id
from engine.tools.base import ToolError
from engine.tools.paths import require_regular

_NO_RENAME = {errno.EACCES, errno.EPERM, errno.EBUSY, errno.EXDEV}
_NO_FALLOCATE = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}


class _OwnerLostError(PermissionError):
    """The new file cannot be given to the old one's owner."""


def replace_file(path: Path, data: bytes, shown: str, *, seen: os.stat_result | None = None) -> None:
    """Make `data` the content of `path`, or of what it links to; folders on the way are made. Blocks.

    Mode, owner, links and extended attributes stay. With `seen`, the file must not have changed since then.

    Raises:
        ToolError: it is no regular file, or changed since `seen`.
        OSError: it could not be written; it is as it was.
    """
    old = _status(path)
    if old is not None:
        require_regular(old, shown)
    target = Path(os.path.realpath(path))
    if seen is not None and (old is None or _identity(old) != _identity(seen)):
        raise ToolError(f"{shown} was changed by somebody else in the meantime: read it again")
    if old is None:
        target.parent.mkdir(parents=True, exist_ok=True)
    elif old.st_nlink > 1:
        _overwrite(target, data)
        return
    try:
        _replace_by_rename(target, data, old)
    except OSError as error:
        if old is None or (error.errno not in _NO_RENAME and not isinstance(error, _OwnerLostError)):
            raise
        _overwrite(target, data)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _replace_by_rename(target: Path, data: bytes, old: os.stat_result | None) -> None:
    mode = 0o666 if old is None else stat.S_IMODE(old.st_mode) & 0o777  # 0o666: the umask has its say
    temporary = target.parent / f".{new_id('agent')}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        try:
            if old is not None:
                _copy_identity(fd, target, old, mode)
            _write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(target.parent)


def _copy_identity(fd: int, target: Path, old: os.stat_result, mode: int) -> None:
    """Owner first, because a change of owner may clear bits of the mode."""
    new = os.fstat(fd)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(fd, old.st_uid, old.st_gid)
        except OSError as error:
            raise _OwnerLostError(errno.EPERM, "the owner cannot be kept") from error
    os.fchmod(fd, mode)
    if hasattr(os, "listxattr"):
        with suppress(OSError):  # no such attributes on this file system, or not ours to set
            for name in os.listxattr(target):
                os.setxattr(fd, name, os.getxattr(target, name))


def _overwrite(target: Path, data: bytes) -> None:
    fd = os.open(target, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _claim_room(fd, len(data))
        _write_all(fd, data)
        os.ftruncate(fd, len(data))
        os.fsync(fd)
    finally:
        os.close(fd)


def _claim_room(fd: int, size: int) -> None:
    """Get the blocks before a byte is changed; on failure the file is as it was."""
    before = os.fstat(fd).st_size
    if size <= before or not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        os.ftruncate(fd, before)
        if error.errno not in _NO_FALLOCATE:
            raise


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _sync_folder(folder: Path) -> None:
    """Make the rename durable, where the file system can."""
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
