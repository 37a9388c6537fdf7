"""The boundary for text and JSON: all that enters or leaves is valid UTF-8 that any store and provider takes."""

from __future__ import annotations

import re
from typing import Any

import orjson

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean_text(text: str) -> str:
    """`text` with NUL and lone surrogates replaced by U+FFFD: storable and sendable everywhere (design, 6)."""
    return _UNSTORABLE.sub("\ufffd", text) if _UNSTORABLE.search(text) else text


def is_clean(text: str) -> bool:
    """Whether `clean_text` would leave `text` as it is."""
    return _UNSTORABLE.search(text) is None


def decode_text(raw: bytes) -> str:
    """Bytes from outside as text: invalid UTF-8 is replaced, never fatal (design, 8)."""
    return clean_text(raw.decode("utf-8", "replace"))


def to_json(value: Any) -> bytes:
    """`value`, dataclasses included, as compact JSON."""
    return orjson.dumps(value)


def from_json(raw: bytes | str) -> Any:
    """The value that `raw` holds.

    Raises:
        ValueError: it is not JSON.
    """
    return orjson.loads(raw)
