"""Identifiers: how run, session, message and call ids are minted and which ones a caller may bring."""

from __future__ import annotations

import os
import re
import time

ID_MAX = 128
"""The longest id a caller may bring, in characters (design, 9)."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_LEGAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]*")


def is_legal_id(text: str) -> bool:
    """Whether `text` may serve as a run or session id: ASCII letters, digits and ``. _ : @ + -``.

    It starts with a letter or a digit, so that it is never taken for an option, a path or an empty word.
    """
    return len(text) <= ID_MAX and _LEGAL.fullmatch(text) is not None


def new_id(prefix: str) -> str:
    """A fresh id such as ``run-01jds...``: 48 bits of time, so that ids sort by age, and 50 random bits."""
    number = (time.time_ns() // 1_000_000) << 50 | int.from_bytes(os.urandom(7), "big") >> 6
    digits = []
    for _ in range(20):
        number, digit = divmod(number, 32)
        digits.append(_ALPHABET[digit])
    return f"{prefix}-{''.join(reversed(digits))}"


def new_run_id() -> str:
    """A run id for a caller who brought none."""
    return new_id("run")


def new_session_id() -> str:
    """A session id for a run that starts a conversation of its own."""
    return new_id("ses")


def new_message_id() -> str:
    """A message id."""
    return new_id("msg")
