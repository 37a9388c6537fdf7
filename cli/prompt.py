"""The prompt of one run, put together from words, files and standard input."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import EmptyPromptError, UsageError
from engine.message import FilePart
from engine.run import Prompt

if TYPE_CHECKING:
    from cli.stdin import StdinPlan

FILE_SIZE_MAX = 16 * 1024 * 1024
"""Bytes of one attachment: over what providers take, low enough to hold some in memory."""

_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_SNIFFED = 8192
"""Bytes that are looked at to tell text from something else."""


def split_dash(words: list[str]) -> tuple[list[str], bool]:
    """The words without any lone `-`, and whether there was one: it stands for standard input."""
    return [word for word in words if word != "-"], "-" in words


async def make_prompt(words: list[str], files: tuple[FilePart, ...], stdin: StdinPlan) -> Prompt:
    """The words, then what came on standard input, with the files beside them.

    Raises:
        EmptyPromptError: there is nothing in any of them.
        UsageError: standard input gave no answer in time, or too much.
    """
    from cli.stdin import read_stdin

    piped = (await read_stdin(stdin)).rstrip("\n")
    typed = " ".join(words)
    prompt = Prompt("\n\n".join(text for text in (typed, piped) if text.strip()), files)
    if prompt.is_empty():
        raise EmptyPromptError
    return prompt


def read_attachment(path: str, *, takes_images: bool) -> FilePart:
    """The file at `path` as an attachment: text, or an image for models that take images.

    Raises:
        UsageError: it cannot be read, is too large, or is neither.
    """
    from cli.parse import clean_argument
    from engine.codec import decode_text

    shown = clean_argument(path)
    raw = _read_bounded(path, shown)
    name = os.path.basename(shown) or shown  # noqa: PTH119 - the shown text is no path to the file any more
    media_type = image_type(raw)
    if media_type and takes_images:
        return FilePart(name, media_type, data=base64.b64encode(raw).decode("ascii"))
    if media_type:
        raise UsageError(f"--file {shown}: this model takes no images ({media_type}): choose another with --model")
    if b"\0" in raw[:_SNIFFED]:
        raise UsageError(f"--file {shown}: this is no text and no image that a model takes: convert it to text first")
    return FilePart(name, "text/plain", text=decode_text(raw).removeprefix("\ufeff"))


def image_type(raw: bytes) -> str:
    """The media type of an image that models take, empty for anything else."""
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for magic, media_type in _IMAGES if raw.startswith(magic)), "")


def _read_bounded(path: str, shown: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            raw = file.read(FILE_SIZE_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"--file {shown}: {reason}") from error
    if len(raw) > FILE_SIZE_MAX:
        raise UsageError(f"--file {shown}: larger than {FILE_SIZE_MAX // 1024 // 1024} MiB: give less of it")
    return raw
