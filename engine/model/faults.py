"""What a provider's refusal means: from HTTP statuses, error objects and transport errors to `ModelFault`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.codec import decode_text, from_json
from engine.model.base import FaultKind, ModelFault

if TYPE_CHECKING:
    from httpx2 import RequestError

QUOTE_MAX = 300
"""Characters of a provider's own words that are passed on."""

_OVERFLOW = re.compile(
    r"context.{0,3}(length|window|size)|maximum context|prompt is too long|too many (input )?tokens"
    r"|exceed_context_size|input (is )?too long|reduce the length",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(r"insufficient.{0,3}(quota|credit|balance|funds)|billing.{0,3}(hard|not_active)", re.IGNORECASE)
_NO_MODEL = re.compile(
    r"model.{0,3}not.{0,3}(found|exist)|(no such|unknown) model|model.{0,80}does not exist", re.IGNORECASE
)
_KEY_LIKE = re.compile(r"\b(sk|pk|gsk|xai|key)-[A-Za-z0-9_*.-]{6,}")

_STATUS_KINDS: dict[int, FaultKind] = {
    400: FaultKind.REFUSED,
    401: FaultKind.AUTH,
    402: FaultKind.REFUSED,
    403: FaultKind.AUTH,
    404: FaultKind.CONFIG,
    405: FaultKind.CONFIG,
    408: FaultKind.SERVER,
    409: FaultKind.SERVER,
    410: FaultKind.CONFIG,
    413: FaultKind.CONTEXT_OVERFLOW,
    422: FaultKind.REFUSED,
    425: FaultKind.SERVER,
    429: FaultKind.RATE_LIMIT,
}
_TYPE_KINDS: tuple[tuple[str, FaultKind], ...] = (
    ("rate_limit", FaultKind.RATE_LIMIT),
    ("too_many_requests", FaultKind.RATE_LIMIT),
    ("authentication", FaultKind.AUTH),
    ("permission", FaultKind.AUTH),
    ("invalid_api_key", FaultKind.AUTH),
    ("not_found", FaultKind.CONFIG),
    ("invalid_request", FaultKind.REFUSED),
    ("content_policy", FaultKind.REFUSED),
)
_ADVICE: dict[FaultKind, str] = {
    FaultKind.AUTH: "check {key}, which holds the key for {endpoint}",
    FaultKind.CONFIG: "check the model's name and the base URL {endpoint}",
    FaultKind.CONTEXT_OVERFLOW: "the conversation is too long for this model: start a new session or shorten the input",
}


class Endpoint:
    """Whom an adapter talks to, as its errors name it: model, printable address, key variable; and the key to hide."""

    def __init__(self, name: str, shown: str, key_variable: str, api_key: str) -> None:
        self.name = name
        self.shown = shown
        self.key_variable = key_variable
        self._api_key = api_key

    def quote(self, text: str) -> str:
        """A provider's words on one line, cut, and without the key, which some providers repeat."""
        if self._api_key:
            text = text.replace(self._api_key, "***")
        line = " ".join(_KEY_LIKE.sub("***", text).split())
        return line if len(line) <= QUOTE_MAX else line[: QUOTE_MAX - 3] + "..."

    def fault(self, kind: FaultKind, text: str, *, retry_after_seconds: float | None = None) -> ModelFault:
        """A fault whose text names the model, and what to do where that is known."""
        advice = _ADVICE.get(kind, "").format(key=self.key_variable, endpoint=self.shown)
        message = f"{self.name}: {text}" + (f" ({advice})" if advice else "")
        return ModelFault(kind, message, retry_after_seconds=retry_after_seconds)

    def status_fault(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelFault:
        """What an answer other than 2xx means."""
        said, code = _error_words(body)
        if 300 <= status < 400:
            target = self.quote(headers.get("location", "another place"))
            text = f"{self.shown} redirects (HTTP {status}) to {target}: use the final address as base URL"
            return self.fault(FaultKind.CONFIG, text)
        kind = _kind_of(status, said, code)
        text = f"HTTP {status}" + (f": {self.quote(said)}" if said.strip() else f" from {self.shown}")
        return self.fault(kind, text, retry_after_seconds=retry_after_seconds(headers))

    def error_fault(self, error: Any) -> ModelFault:
        """What an error object inside an HTTP 200 means; without a known code it is the server's trouble."""
        said, code = _words_of(error)
        status = _status_in(error)
        kind = _kind_of(status, said, code)
        return self.fault(kind, f"error in the stream: {self.quote(said) or 'without a message'}")

    def transport_fault(self, error: RequestError) -> ModelFault:
        """What a failed connection means."""
        import httpx2

        words = self.quote(str(error) or type(error).__name__)
        match error:
            case httpx2.ConnectError() if "CERTIFICATE_VERIFY_FAILED" in words:
                text = f"the certificate of {self.shown} is not trusted: set SSL_CERT_FILE to its CA ({words})"
                return self.fault(FaultKind.CONFIG, text)
            case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.PoolTimeout() | httpx2.ProxyError():
                return self.fault(FaultKind.CONNECT, f"cannot connect to {self.shown}: {words}")
            case httpx2.UnsupportedProtocol() | httpx2.LocalProtocolError():
                return self.fault(FaultKind.CONFIG, f"the request cannot be sent: {words}")
            case httpx2.DecodingError():
                return self.fault(FaultKind.MALFORMED, f"the response cannot be decoded: {words}")
            case _:
                return self.fault(FaultKind.CUT, f"the connection broke before the response was whole: {words}")


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """What the server asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date; None if nothing."""
    for name, unit_seconds in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit_seconds
        except (KeyError, ValueError):
            continue
        return max(seconds, 0.0) if math.isfinite(seconds) else None
    return _seconds_until(headers.get("retry-after", ""), headers.get("date", ""))


def _seconds_until(date: str, server_now: str) -> float | None:
    """Seconds from the server's own clock, ours where it does not tell, to an HTTP date."""
    if not date:
        return None
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    try:
        until = parsedate_to_datetime(date).astimezone(UTC)
    except ValueError:
        return None
    try:
        now = parsedate_to_datetime(server_now).astimezone(UTC)
    except ValueError:
        now = datetime.now(UTC)
    return max((until - now).total_seconds(), 0.0)


def _kind_of(status: int, said: str, code: str) -> FaultKind:
    """The kind of fault: by the words where they say more than the status, as 400 and 429 stand for several things."""
    words = f"{code} {said}"
    if status in {0, 400, 402, 403, 413, 422, 429}:
        if _NO_CREDIT.search(words):
            return FaultKind.REFUSED
        if status != 429 and _OVERFLOW.search(words):
            return FaultKind.CONTEXT_OVERFLOW
        if status != 429 and _NO_MODEL.search(words):
            return FaultKind.CONFIG
    if not status:
        return next((kind for name, kind in _TYPE_KINDS if name in code), FaultKind.SERVER)
    if status in _STATUS_KINDS:
        return _STATUS_KINDS[status]
    return FaultKind.REFUSED if 400 <= status < 500 else FaultKind.SERVER


def _error_words(body: bytes) -> tuple[str, str]:
    """Message and code of an error body of any shape: JSON as the dialects write it, or plain text."""
    text = decode_text(body)
    try:
        return _words_of(from_json(text))
    except ValueError:
        return ("an HTML page" if text.lstrip()[:1] == "<" else text), ""


def _words_of(error: Any) -> tuple[str, str]:
    """Message, and code and type, of an error object; dialects nest it differently."""
    if isinstance(error, list) and error:
        return _words_of(error[0])
    if not isinstance(error, dict):
        return (error if isinstance(error, str) else ""), ""
    if error.get("error"):
        return _words_of(error["error"])
    said = next((error[key] for key in ("message", "detail", "msg") if isinstance(error.get(key), str)), "")
    code = " ".join(str(error[key]) for key in ("code", "type", "status") if error.get(key))
    return said or (code or decode_text(repr(error).encode("utf-8", "replace"))), code.lower()


def _status_in(error: Any) -> int:
    """The HTTP status that an error object carries as its code, else 0."""
    if isinstance(error, dict) and isinstance(error.get("error"), dict):
        error = error["error"]
    for key in ("code", "status", "status_code"):
        value = str(error.get(key, "")) if isinstance(error, dict) else ""
        if re.fullmatch(r"[45]\d\d", value):
            return int(value)
    return 0
