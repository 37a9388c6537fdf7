"""The tools there are: their names and kinds without their code, which is loaded for those named only."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from engine.errors import ConfigurationError
from engine.tools.base import Tool

READ_ONLY = ("read", "glob", "grep", "ls")
"""Tools that change nothing: the default set."""

WRITING = ("write", "edit", "shell")
"""Tools that change things: each needs to be allowed."""

ALL = READ_ONLY + WRITING
"""Every built-in tool."""


def is_read_only(name: str) -> bool:
    """Whether the built-in tool `name` changes nothing, told without loading it."""
    return name in READ_ONLY


def check_names(names: Iterable[str]) -> None:
    """Refuse names that no tool has; loads nothing.

    Raises:
        ConfigurationError: naming the unknown ones and all known ones.
    """
    unknown = [name for name in dict.fromkeys(names) if name not in ALL]
    if unknown:
        named = ", ".join(repr(name) for name in unknown)
        raise ConfigurationError(f"no such tool: {named}; the tools are {', '.join(ALL)}")


def open_tools(names: Iterable[str]) -> dict[str, Tool]:
    """The tools named, each once, in the order given. Each lives in the module of its name, as `TOOL`.

    Raises:
        ConfigurationError: a name is unknown.
    """
    wanted = list(dict.fromkeys(names))
    check_names(wanted)
    return {name: import_module(f"engine.tools.{name}").TOOL for name in wanted}
