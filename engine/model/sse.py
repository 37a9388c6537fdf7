"""Server-sent events out of a byte stream: the WHATWG format, bounded in size, split only at its own line ends."""

from __future__ import annotations

from dataclasses import dataclass

from engine.codec import decode_text

EVENT_MAX = 16 * 1024 * 1024
"""Bytes of one event: room for a tool call that writes a large file in one piece, and a bound for memory."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event. `is_whole` is false for one that the end of the stream cut off before its blank line."""

    name: str
    data: str
    is_whole: bool = True


class EventTooLargeError(ValueError):
    """An event is over its bound."""


class SseDecoder:
    """Takes chunks as they come and gives the events that they complete. Comments and other fields give nothing.

    `str.splitlines` would split at U+2028 inside the data, so lines are split as bytes. Each byte is looked at a
    constant number of times, however small the chunks are.
    """

    def __init__(self, event_max: int = EVENT_MAX) -> None:
        self._event_max = event_max
        self._pieces: list[bytes] = []  # the line that has not ended yet
        self._name = ""
        self._data: list[bytes] = []
        self._size = 0  # of the pieces and the data
        self._is_after_cr = False
        self._is_first_line = True

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that end in `chunk`.

        Raises:
            EventTooLargeError: an event has more bytes than allowed.
        """
        if self._is_after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._is_after_cr = False
        if not chunk:
            return []
        self._is_after_cr = chunk.endswith(b"\r")
        first, *others = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._hold(first)
        events: list[ServerEvent] = []
        for begun in others:
            line = b"".join(self._pieces)
            self._size -= len(line)
            self._pieces.clear()
            self._take_line(line, events)
            self._hold(begun)
        return events

    def finish(self) -> list[ServerEvent]:
        """What the end of the stream leaves: an event without its blank line, which some servers end on."""
        events: list[ServerEvent] = []
        self._take_line(b"".join(self._pieces), events)
        self._pieces.clear()
        if self._data:
            events.append(self._event(is_whole=False))
        return events

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._event_max:
            raise EventTooLargeError(f"an event of the stream is larger than {self._event_max} bytes")
        if piece:
            self._pieces.append(piece)

    def _take_line(self, line: bytes, events: list[ServerEvent]) -> None:
        if self._is_first_line:
            line = line.removeprefix(b"\xef\xbb\xbf")
            self._is_first_line = False
        if not line:
            if self._data:
                events.append(self._event(is_whole=True))
            self._name = ""
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._size += len(value) + 1
            self._data.append(value)
        elif field == b"event":
            self._name = decode_text(value)

    def _event(self, *, is_whole: bool) -> ServerEvent:
        event = ServerEvent(self._name, decode_text(b"\n".join(self._data)), is_whole)
        self._data.clear()
        self._size = 0
        return event
