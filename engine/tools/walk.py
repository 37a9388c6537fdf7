"""Walking a tree of files by a pattern such as `src/**/*.{py,pyi}`: in order of path, without loops.

Standard library only: grep's worker process runs this as well. A pattern is a small machine over the names on the
way down, so that folders which cannot lead to a match are never opened, and no pattern can take exponential time.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator

SKIPPED = frozenset({".git"})
"""Folders never entered: a repository's own store, large and never meant."""

_BRACES_MAX = 64  # patterns that braces may multiply into
_FOLDERS = "**"

States = frozenset[tuple[int, int]]


class PatternError(ValueError):
    """The pattern cannot be used; the text says why."""


class PathPattern:
    """`*`, `?`, `[...]` within a name, `**` for any folders, `{a,b}` for alternatives.

    States are (alternative, next segment): all the ways in which the names so far fit.
    """

    def __init__(self, pattern: str) -> None:
        self._matchers: list[list[Callable[[str], object] | None]] = []
        for text in _expand_braces(pattern):
            segments = [segment for segment in text.split("/") if segment not in ("", ".")]
            if not segments or ".." in segments:
                raise PatternError(f"pattern {pattern!r} is empty or has '..': name the folder as path instead")
            self._matchers.append([None if part == _FOLDERS else _name_matcher(part) for part in segments])

    def start(self) -> States:
        """The states before any name."""
        return self._skip_folders({(number, 0) for number in range(len(self._matchers))})

    def step(self, states: States, name: str) -> States:
        """The states after `name`; empty when nothing below it can match."""
        after = set()
        for number, at in states:
            segments = self._matchers[number]
            if at < len(segments):
                matcher = segments[at]
                if matcher is None:
                    after.add((number, at))
                elif matcher(name):
                    after.add((number, at + 1))
        return self._skip_folders(after)

    def is_match(self, states: States) -> bool:
        """Whether the names so far are a match."""
        return any(at == len(self._matchers[number]) for number, at in states)

    def _skip_folders(self, states: set[tuple[int, int]]) -> States:
        """`**` may stand for no folder at all."""
        for number, first in list(states):
            segments = self._matchers[number]
            for at in range(first, len(segments)):
                if segments[at] is not None:
                    break
                states.add((number, at + 1))
        return frozenset(states)


class Walk:
    """One walk below `root`; `unreadable` counts the folders that could not be opened."""

    def __init__(self, root: str, pattern: PathPattern, check: Callable[[], None] = lambda: None) -> None:
        self.unreadable = 0
        self._root = root
        self._pattern = pattern
        self._check = check  # called at every folder; raises when nobody waits any more

    def matches(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Each match as its path relative to the root, and its entry. Symbolic links are named, never followed."""
        stack = [self._listing(self._root, "", self._pattern.start())]
        while stack:
            found = next(stack[-1], None)
            if found is None:
                stack.pop()
                continue
            relative, entry, states = found
            if self._pattern.is_match(states):
                yield relative, entry
            if states and _is_folder(entry):
                stack.append(self._listing(entry.path, relative + "/", states))

    def _listing(self, folder: str, prefix: str, states: States) -> Iterator[tuple[str, os.DirEntry[str], States]]:
        self._check()
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError:
            self.unreadable += 1
            return
        for entry in entries:
            if entry.name not in SKIPPED:
                yield prefix + entry.name, entry, self._pattern.step(states, entry.name)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _name_matcher(segment: str) -> Callable[[str], object]:
    """Fnmatch's regular expressions do not backtrack beyond the last star, so a name costs linear time for each."""
    try:
        return re.compile(fnmatch.translate(segment)).match
    except re.error as error:
        raise PatternError(f"pattern part {segment!r} is malformed: {error}") from None


def _expand_braces(pattern: str) -> list[str]:
    """`a{b,c}d` as `abd` and `acd`, inner braces included; a brace without partner or comma is literal."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        text = waiting.pop()
        match = re.search(r"\{([^{}]*,[^{}]*)\}", text)
        if match is None:
            done.append(text)
        else:
            waiting += [text[: match.start()] + choice + text[match.end() :] for choice in match[1].split(",")]
        if len(done) + len(waiting) > _BRACES_MAX:
            raise PatternError(f"pattern {pattern!r} has too many alternatives: at most {_BRACES_MAX} in all")
    return done
