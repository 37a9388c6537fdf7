"""The program that searches for `grep`: a regular expression can run for ever, and only a process can be killed.

Standard library only, and started without `site`, so that it is up in some 20 ms. Its one argument is JSON; lines of
the answer go to stdout; exit code 2 and a sentence mean that the request cannot be served.
"""

from __future__ import annotations

import json
import os
import re
import resource
import stat
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, BinaryIO

from engine.tools.walk import PathPattern, PatternError, Walk

MATCHES_MAX = 500
"""Matching lines shown."""

_LINE_CHARS_MAX = 400  # shown of one line, around the match
_LINE_BYTES_MAX = 8 << 20  # a longer line is searched in pieces, which keeps memory bounded
_PROBE_BYTES = 8192
_CPU_SECONDS = 120  # a belt: should the parent die without ending us, we end all the same


def main() -> None:
    """Search as the argument says."""
    with suppress(ValueError):  # a stricter limit is in force
        resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS + 1))
    request = json.loads(sys.argv[1])
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    try:
        search = _Search(request)
        search.run()
    except (re.error, PatternError, RecursionError, OverflowError) as error:
        print(f"invalid pattern: {error}")  # noqa: T201  stdout is how a worker answers
        sys.exit(2)


class _Search:
    """One search; prints as it goes, so that a limit of time keeps what was found."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._regex = re.compile(request["pattern"], re.IGNORECASE if request["ignore_case"] else 0)
        self._root: str = request["root"]
        self._prefix: str = request["prefix"]
        self._context: int = request["context"]
        include = request["include"]
        self._include = PathPattern(include if "/" in include else f"**/{include}")
        self._matches = 0
        self._binaries = 0

    def run(self) -> None:
        """Search all files; stop at the limit of matches."""
        walk = Walk(self._root, self._include)
        for shown, path in self._files(walk):
            self._search_file(shown, path)
            if self._matches >= MATCHES_MAX:
                self._tell(f"[cut: stopped at {MATCHES_MAX} matches; narrow the pattern, the path or include]")
                break
        if not self._matches:
            self._tell("[no matches]")
        if self._binaries:
            self._tell(f"[{self._binaries} binary files were left out]")
        if walk.unreadable:
            self._tell(f"[{walk.unreadable} folders could not be read]")

    def _files(self, walk: Walk) -> Iterator[tuple[str, str]]:
        if stat.S_ISREG(os.stat(self._root).st_mode):  # noqa: PTH116
            yield self._prefix, self._root
            return
        for relative, entry in walk.matches():
            try:
                if entry.is_file(follow_symlinks=False):
                    yield self._prefix + relative, entry.path
            except OSError:  # it vanished
                continue

    def _search_file(self, shown: str, path: str) -> None:
        try:
            # Non-blocking, because the file may have become a pipe since we looked.
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(fd, "rb", buffering=1 << 18) as file:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    return
                start = file.read(_PROBE_BYTES)
                file.seek(0)
                if b"\0" in start:
                    self._binaries += 1
                else:
                    self._search_lines(shown, file)
        except OSError as error:
            self._tell(f"[{shown}: {error.strerror or error}]")

    def _search_lines(self, shown: str, file: BinaryIO) -> None:
        before: deque[tuple[int, str]] = deque(maxlen=self._context)
        after, last = 0, 0
        for number, line in _numbered_lines(file):
            found = self._regex.search(line)
            if found is None or self._matches >= MATCHES_MAX:
                if after:
                    self._tell(f"{shown}-{number}-{_window(line, 0)}")
                    after, last = after - 1, number
                elif self._matches >= MATCHES_MAX:
                    return
                else:
                    before.append((number, line))
                continue
            first = before[0][0] if before else number
            if self._context and last and first > last + 1:
                self._tell("--")
            for earlier, text in before:
                self._tell(f"{shown}-{earlier}-{_window(text, 0)}")
            before.clear()
            self._tell(f"{shown}:{number}:{_window(line, found.start())}")
            self._matches += 1
            after, last = self._context, number

    def _tell(self, line: str) -> None:
        print(line, flush=True)  # noqa: T201


def _numbered_lines(file: BinaryIO) -> Iterator[tuple[int, str]]:
    """The lines without their ends; pieces of an overlong line share its number."""
    number, is_new = 0, True
    while raw := file.readline(_LINE_BYTES_MAX):
        number += is_new
        is_new = raw.endswith(b"\n")
        yield number, raw.decode("utf-8", "replace").rstrip("\r\n")


def _window(line: str, at: int) -> str:
    """At most `_LINE_CHARS_MAX` characters of `line`, those around `at`."""
    if len(line) <= _LINE_CHARS_MAX:
        return line
    start = max(0, min(at - _LINE_CHARS_MAX // 4, len(line) - _LINE_CHARS_MAX))
    end = start + _LINE_CHARS_MAX
    return ("[...]" if start else "") + line[start:end] + ("[...]" if end < len(line) else "")
