"""What went wrong with a database or its disk, said once and for people: every foreign error becomes a `StoreError`."""

from __future__ import annotations

import errno
import sqlite3

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from engine.errors import StoreError, StoreTimeoutError

FOREIGN_ERRORS = (SQLAlchemyError, sqlite3.Error, OSError, ValueError)
"""What a job may meet; ValueError is stored JSON that is none."""

_ELSEWHERE = "choose another place with --data-dir PATH or AGENT_HOME, or keep nothing with --ephemeral"
_FULL = "the disk is full or a size limit is met: free some space and try again"
_READ_ONLY = f"it is read-only: {_ELSEWHERE}"
_DENIED = f"permission denied: {_ELSEWHERE}"
_DAMAGED = f"it is damaged or no database; it was left as it is: move it away, or {_ELSEWHERE}"

_BY_SQLITE_CODE = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _DENIED,
    sqlite3.SQLITE_AUTH: _DENIED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CANTOPEN: f"it cannot be opened: {_ELSEWHERE}",
}
_BY_ERRNO = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.ENOTDIR: f"a part of its path is a file, not a directory: {_ELSEWHERE}",
    errno.EEXIST: f"a part of its path is a file, not a directory: {_ELSEWHERE}",
    errno.ENOENT: f"its directory is not there and cannot be made: {_ELSEWHERE}",
}


def is_busy(error: Exception) -> bool:
    """Whether another connection holds a lock, so that trying again may help."""
    return _primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def translate(error: Exception, location: str, waited_seconds: float) -> StoreError:
    """The store's error for a foreign one: names the store, says what is wrong and how to go on, in one line."""
    if is_busy(error):
        return StoreTimeoutError(
            f"the store {location} stayed locked by another process for {waited_seconds:g} s: "
            "try again, or end that process"
        )
    reason = _BY_SQLITE_CODE.get(_primary_code(error))
    if reason is None and isinstance(error, OSError):
        reason = _BY_ERRNO.get(error.errno or 0, f"{error.strerror or error}")
    if reason is None and isinstance(error, ValueError) and not isinstance(error, SQLAlchemyError):
        reason = f"it holds a record that cannot be read: {_one_line(error)}"
    return StoreError(f"the store {location} cannot be used: {reason or _one_line(_origin(error))}")


def _origin(error: BaseException) -> BaseException:
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def _primary_code(error: BaseException) -> int:
    """SQLite's result code without its extension, -1 if there is none."""
    code = getattr(_origin(error), "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else -1


def _one_line(error: BaseException) -> str:
    name = getattr(error, "sqlite_errorname", None)
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{text} ({name})" if name else text
