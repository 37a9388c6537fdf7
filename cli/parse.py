"""How arguments are read: dashes in prompts, plain values, and numbers that are checked in one place.

All values reach a command as text, a list of texts or a bool. typer would import pydantic to tell that a text is a
text, 60 % of a command's start-up time (docs/decisions); `PlainParam` spares that.
"""

from __future__ import annotations

import math
import os
import re
from typing import Any

import typer
import typer.core

from engine.codec import decode_text
from engine.errors import UsageError

_WORD_MARK = "\0"
"""Stands before a prompt word that begins with a dash while typer looks for options; no argument can hold a NUL."""

_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
_SECONDS_MAX = 10 * 365 * 86_400.0
_COUNT_MAX = 1_000_000


class PlainParam:
    """Leaves values as they are, apart from taking the word mark off."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of one parameter, as typer's `RuntimeParam.coerce` gives it."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if isinstance(value, str):
            return value.removeprefix(_WORD_MARK)
        if isinstance(value, (list, tuple)):
            return [self.coerce_word(each) for each in value]
        return value

    def coerce_word(self, word: Any) -> Any:
        """One of several words."""
        return word.removeprefix(_WORD_MARK) if isinstance(word, str) else word


_PLAIN = PlainParam()


def make_plain(params: list[Any]) -> None:
    """Have typer take the values of these parameters as they are."""
    for param in params:
        param._runtime_param = _PLAIN  # noqa: SLF001 - without it typer does the same through pydantic, only slower


class AgentCommand(typer.core.TyperCommand):
    """A command whose prompt may begin with a dash, when there is a space in it: no option has one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Mark the words that only look like options, then parse as usual."""
        make_plain(self.get_params(ctx))  # with --help, which is no declared parameter
        return super().parse_args(ctx, [mark_word(arg) for arg in args])


def mark_word(arg: str) -> str:
    """`arg`, marked if it begins with a dash but has white space in what would be the option's name."""
    if arg.startswith("-") and re.search(r"\s", arg.partition("=")[0]):
        return _WORD_MARK + arg
    return arg


def clean_argument(arg: str) -> str:
    """An argument as text: its bytes are UTF-8 whatever the locale, and invalid ones are replaced (design, 8)."""
    return decode_text(os.fsencode(arg))


def parse_count(option: str, given: str | None, default: int, *, count_max: int = _COUNT_MAX) -> int:
    """A whole number of at least 1.

    Raises:
        UsageError: it is none.
    """
    if given is None:
        return default
    if not re.fullmatch("[0-9]{1,12}", given) or not 1 <= int(given) <= count_max:
        raise UsageError(f"{option} takes a whole number from 1 to {count_max}, not {given!r}")
    return int(given)


def parse_seconds(option: str, given: str | None, default: float) -> float:
    """A number of seconds above 0.

    Raises:
        UsageError: it is none.
    """
    if given is None:
        return default
    seconds = float(given) if _NUMBER.fullmatch(given) else math.nan
    if not 0 < seconds <= _SECONDS_MAX:
        raise UsageError(f"{option} takes a number of seconds above 0, such as 90 or 2.5, not {given!r}")
    return seconds


def parse_choice(option: str, given: str | None, choices: tuple[str, ...]) -> str:
    """One of some words, the first by default.

    Raises:
        UsageError: it is none of them.
    """
    if given is None:
        return choices[0]
    if given not in choices:
        raise UsageError(f"{option} takes {', '.join(choices[:-1])} or {choices[-1]}, not {given!r}")
    return given


def parse_names(option: str, given: str) -> tuple[str, ...]:
    """Names separated by commas, each once, in the order given.

    Raises:
        UsageError: there is none.
    """
    names = tuple(dict.fromkeys(name for name in (piece.strip() for piece in given.split(",")) if name))
    if not names:
        raise UsageError(f"{option} takes names separated by commas, not {given!r}")
    return names
