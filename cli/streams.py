"""The three standard streams as file descriptors: what is written is whole, UTF-8, and never ends in a traceback.

Answers go straight to the descriptor: there is no buffer whose flush could fail while the interpreter shuts down, and
the locale has no say. A stream that is not a file (a test runner's, an embedding program's) is written through its
object.
"""

from __future__ import annotations

import io
import os
import re
import stat
import sys
from typing import IO

from engine.errors import EngineError

PIPE_ROOM = 4096
"""Bytes that a pipe takes at once when it says that it is writable (POSIX's least PIPE_BUF is 512, Linux's 4096)."""

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class StdoutError(EngineError):
    """Standard output cannot be written: the device is full, or the caller has closed it."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write to standard output: {error.strerror or error}")


def fill_missing() -> None:
    """Put something harmless in place of standard streams that the caller closed.

    Else the next file that is opened, maybe the store, would get the number and the answer would be written into it.
    Standard output is opened for reading only, so that writing to it still fails as it should.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is taken, which is this one: those below it are open by now.
            os.set_inheritable(os.open(os.devnull, flags), True)


def descriptor(stream: IO[str] | None, number: int) -> int | None:
    """The stream's file descriptor; `number` when the interpreter found it closed; None when it has none."""
    if stream is None:
        return number
    try:
        return stream.fileno()
    except (io.UnsupportedOperation, ValueError):
        return None


def write_all(data: bytes) -> None:
    """Write to standard output until all is gone, however slow its reader is.

    Raises:
        BrokenPipeError: the reader has gone.
        StdoutError: it cannot be written for another reason.
    """
    target = descriptor(sys.stdout, 1)
    if target is None:
        assert sys.stdout is not None
        sys.stdout.write(data.decode("utf-8"))
        sys.stdout.flush()
        return
    try:
        write_descriptor(target, data)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StdoutError(error) from error


def write_descriptor(target: int, data: bytes) -> None:
    """Write all of `data`, also to a descriptor that somebody has made non-blocking."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(target, rest) :]
        except BlockingIOError:
            _wait_writable(target)


async def write(data: bytes) -> None:
    """Write all to standard output while signals and other tasks go on; raises as `write_all` does."""
    target = descriptor(sys.stdout, 1)
    if target is None or takes_at_once(target, len(data)):
        write_all(data)
        return
    from anyio import to_thread

    # Left to itself when the command is told to leave: the thread hangs on a reader, it holds nothing of ours.
    await to_thread.run_sync(write_all, data, abandon_on_cancel=True)


def takes_at_once(target: int, size: int) -> bool:
    """Whether writing `size` bytes will not wait: files always, a pipe or socket that has room for a small piece."""
    import select

    mode = os.fstat(target).st_mode
    if stat.S_ISREG(mode):
        return True
    if stat.S_ISCHR(mode):
        return not os.isatty(target)
    poll = select.poll()
    poll.register(target, select.POLLOUT)
    return size <= PIPE_ROOM and bool(poll.poll(0))


def _wait_writable(target: int) -> None:
    import select

    poll = select.poll()
    poll.register(target, select.POLLOUT)
    poll.poll()


def one_line(text: str) -> str:
    """`text` in one line and without control characters, which could steer a terminal."""
    return _CONTROL.sub("\ufffd", " ".join(text.split()))


def say(line: str) -> None:
    """A line on standard error; a standard error that is closed or full is nobody's problem."""
    say_raw(f"{one_line(line)}\n")


def say_raw(text: str) -> None:
    """Text on standard error as it stands."""
    target = descriptor(sys.stderr, 2)
    try:
        if target is None:
            assert sys.stderr is not None
            sys.stderr.write(text)
            sys.stderr.flush()
        else:
            write_descriptor(target, text.encode("utf-8", "replace"))
    except OSError:
        pass


def say_error(text: str) -> None:
    """The one line that says what is wrong and what to do."""
    say(f"agent: {text}")
