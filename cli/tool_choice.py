"""Which tools a run is offered: reading ones by default, those that change things only when they are allowed."""

from __future__ import annotations

from cli.parse import parse_names
from engine.errors import UsageError
from engine.tools.registry import READ_ONLY, WRITING, check_names

PERMISSION = {name: "write" if name == "edit" else name for name in WRITING}
"""Tool: the word after `--allow` that permits it. Whoever may write may edit."""

_PERMISSIONS = (*dict.fromkeys(PERMISSION.values()), "all")


def choose_tools(tools: str | None, *, no_tools: bool, allow: list[str]) -> tuple[str, ...]:
    """The names of the tools that a run is offered.

    Raises:
        UsageError: a name is unknown, a tool is named but not allowed, or the flags contradict each other.
    """
    allowed = _permissions(allow)
    if no_tools:
        if tools is not None:
            raise UsageError("--no-tools and --tools contradict each other: leave one out")
        return ()
    if tools is None:
        return (*READ_ONLY, *(name for name in WRITING if PERMISSION[name] in allowed))
    names = parse_names("--tools", tools)
    check_names(names)
    for name in names:
        permission = PERMISSION.get(name)
        if permission is not None and permission not in allowed:
            raise UsageError(f"--tools: {name} changes things and is not allowed: add --allow {permission}")
    return names


def _permissions(allow: list[str]) -> frozenset[str]:
    given = {name for each in allow for name in parse_names("--allow", each)}
    for name in sorted(given):
        if name not in _PERMISSIONS:
            raise UsageError(f"--allow takes {', '.join(_PERMISSIONS)}, not {name!r}")
    return frozenset(_PERMISSIONS if "all" in given else given)
