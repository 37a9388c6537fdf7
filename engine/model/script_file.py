"""What a script file may say: `{"responses": [{...}, ...], "repeat": false}`, read strictly, faults named by place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

from engine.codec import clean_text, from_json, to_json
from engine.errors import ConfigurationError
from engine.model.base import FaultKind, ModelFinish, RawToolCall
from engine.run import Usage


class Gate:
    """A place where a test holds a model: `reached` says that it is there, `release` lets it go on."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.release = anyio.Event()

    async def wait(self) -> None:
        """Wait to be let through."""
        self.reached.set()
        await self.release.wait()


@dataclass(frozen=True, slots=True)
class ScriptedFault:
    """The response breaks off after `after_chunks` chunks of text."""

    kind: FaultKind
    message: str = "a fault that the script asks for"
    retry_after_seconds: float | None = None
    after_chunks: int = 0


@dataclass(frozen=True, slots=True)
class ScriptedResponse:
    """One answer. `hold` maps a number of chunks to the gate that is waited at once so many are out.

    `expect` is text that the last user message or tool result must hold. A call without an id gets a fresh one.
    """

    chunks: tuple[str, ...] = ()
    reasoning: str = ""
    tool_calls: tuple[RawToolCall, ...] = ()
    delay_seconds: float = 0.0
    chunk_delay_seconds: float = 0.0
    usage: Usage | None = None
    finish: ModelFinish | None = None
    fault: ScriptedFault | None = None
    expect: str = ""
    hold: Mapping[int, Gate] = field(default_factory=dict)


def parse_script(raw: bytes, path: str) -> tuple[tuple[ScriptedResponse, ...], bool]:
    """The responses of a script, and whether it starts again at its end.

    Raises:
        ConfigurationError: it is no script; the text names file and place.
    """
    try:
        data = from_json(raw)
    except ValueError as error:
        raise ConfigurationError(f"the script {path} is no valid JSON: {error}") from error
    root = _Place(path, "", {"responses": data} if isinstance(data, list) else data)
    root.check_keys("responses", "repeat")
    responses = tuple(_response(place) for place in root.items("responses"))
    if not responses:
        raise root.error("responses", "must be a list with at least one response")
    return responses, root.flag("repeat")


def scripted(**fields: Any) -> ScriptedResponse:
    """A response from the fields that a script file has, for tests; `hold` may be one gate, waited at first."""
    hold = fields.pop("hold", {})
    response = _response(_Place("inline", "", fields))
    holds = {0: hold} if isinstance(hold, Gate) else dict(hold)
    return ScriptedResponse(
        **{name: getattr(response, name) for name in ScriptedResponse.__dataclass_fields__} | {"hold": holds}
    )


class _Place:
    """An object of the file, with its path, that reads its fields strictly."""

    def __init__(self, file: str, at: str, data: Any) -> None:
        self._file = file
        self._at = at
        if not isinstance(data, dict):
            raise self.error("", "must be an object")
        self._data = data

    def error(self, key: str, what: str) -> ConfigurationError:
        """What is wrong, and where."""
        place = ".".join(part for part in (self._at, key) if part) or "the top level"
        return ConfigurationError(f"the script {self._file}: {place} {what}")

    def check_keys(self, *known: str) -> None:
        """Refuse keys that nobody reads: a typing error in `fault` must not pass as an answer."""
        for key in self._data:
            if key not in known:
                raise self.error(str(key), f"is not known here: use {', '.join(known)}")

    def has(self, key: str) -> bool:
        """Whether the field is there."""
        return self._data.get(key) is not None

    def text(self, key: str, default: str = "") -> str:
        """A text."""
        value = self._data.get(key, default)
        if not isinstance(value, str):
            raise self.error(key, "must be text")
        return clean_text(value)

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self._data.get(key, False)
        if not isinstance(value, bool):
            raise self.error(key, "must be true or false")
        return value

    def seconds(self, key: str) -> float:
        """A time."""
        value = self._data.get(key, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise self.error(key, "must be a number of seconds")
        return float(value)

    def count(self, key: str) -> int:
        """A number of things."""
        value = self._data.get(key, 0)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.error(key, "must be a whole number, 0 or more")
        return value

    def items(self, key: str) -> list[_Place]:
        """A list of objects."""
        return [_Place(self._file, f"{self._path(key)}[{at}]", item) for at, item in enumerate(self._list(key))]

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts."""
        values = self._list(key)
        if not all(isinstance(value, str) for value in values):
            raise self.error(key, "must be a list of texts")
        return tuple(clean_text(value) for value in values)

    def inner(self, key: str) -> _Place | None:
        """An object, if it is there."""
        return _Place(self._file, self._path(key), self._data[key]) if self.has(key) else None

    def arguments(self, key: str) -> str:
        """JSON text, from an object or as it stands, so that broken arguments can be played too."""
        value = self._data.get(key, {})
        if isinstance(value, str):
            return value
        if not isinstance(value, dict):
            raise self.error(key, "must be an object, or text to be sent as it is")
        return to_json(value).decode()

    def _list(self, key: str) -> list[Any]:
        value = self._data.get(key, [])
        if not isinstance(value, list):
            raise self.error(key, "must be a list")
        return value

    def _path(self, key: str) -> str:
        return f"{self._at}.{key}" if self._at else key


def _response(place: _Place) -> ScriptedResponse:
    place.check_keys(
        "text", "chunks", "reasoning", "tool_calls", "delay_seconds", "chunk_delay_seconds", "usage", "finish",
        "fault", "expect",
    )  # fmt: skip
    if place.has("text") and place.has("chunks"):
        raise place.error("chunks", "cannot stand beside text")
    finish = place.text("finish")
    if finish and finish not in set(ModelFinish):
        raise place.error("finish", f"must be one of {', '.join(ModelFinish)}")
    text = place.text("text")
    return ScriptedResponse(
        chunks=place.texts("chunks") or ((text,) if text else ()),
        reasoning=place.text("reasoning"),
        tool_calls=tuple(_tool_call(call) for call in place.items("tool_calls")),
        delay_seconds=place.seconds("delay_seconds"),
        chunk_delay_seconds=place.seconds("chunk_delay_seconds"),
        usage=_usage(place.inner("usage")),
        finish=ModelFinish(finish) if finish else None,
        fault=_fault(place.inner("fault")),
        expect=place.text("expect"),
    )


def _tool_call(place: _Place) -> RawToolCall:
    place.check_keys("id", "name", "arguments")
    if not place.has("name"):
        raise place.error("name", "is missing")
    return RawToolCall(place.text("id"), place.text("name"), place.arguments("arguments"))


def _usage(place: _Place | None) -> Usage | None:
    if place is None:
        return None
    names = tuple(Usage.__dataclass_fields__)
    place.check_keys(*names)
    return Usage(**{name: place.count(name) for name in names})


def _fault(place: _Place | None) -> ScriptedFault | None:
    if place is None:
        return None
    place.check_keys("kind", "message", "retry_after_seconds", "after_chunks")
    kind = place.text("kind")
    if kind not in set(FaultKind):
        raise place.error("kind", f"must be one of {', '.join(FaultKind)}")
    message = place.text("message", "a fault that the script asks for")
    retry = place.seconds("retry_after_seconds") if place.has("retry_after_seconds") else None
    return ScriptedFault(FaultKind(kind), message, retry, place.count("after_chunks"))
