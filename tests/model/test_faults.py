"""What refusals mean."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from engine.model.base import FaultKind
from engine.model.faults import QUOTE_MAX, Endpoint, retry_after_seconds

KEY = "sk-secret-0123456789"
ENDPOINT = Endpoint("openai/x", "https://example.invalid/v1", "OPENAI_API_KEY", KEY)


def body(message: str, **more: Any) -> bytes:
    return json.dumps({"error": {"message": message, **more}}).encode()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, FaultKind.REFUSED), (401, FaultKind.AUTH), (402, FaultKind.REFUSED), (403, FaultKind.AUTH),
        (404, FaultKind.CONFIG), (405, FaultKind.CONFIG), (408, FaultKind.SERVER), (409, FaultKind.SERVER),
        (413, FaultKind.CONTEXT_OVERFLOW), (418, FaultKind.REFUSED), (422, FaultKind.REFUSED),
        (425, FaultKind.SERVER), (429, FaultKind.RATE_LIMIT), (500, FaultKind.SERVER), (503, FaultKind.SERVER),
        (529, FaultKind.SERVER), (301, FaultKind.CONFIG), (307, FaultKind.CONFIG),
    ],
)  # fmt: skip
def test_statuses(status: int, kind: FaultKind) -> None:
    fault = ENDPOINT.status_fault(status, {}, body("the provider's words"))
    assert fault.kind is kind
    assert str(status) in str(fault)
    assert "openai/x" in str(fault)


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (400, body("x", code="context_length_exceeded"), FaultKind.CONTEXT_OVERFLOW),
        (400, body("This model's maximum context length is 4096 tokens"), FaultKind.CONTEXT_OVERFLOW),
        (400, body("request exceeds the available context size", type="exceed_context_size_error"),
         FaultKind.CONTEXT_OVERFLOW),
        (400, body("The model `gpt-9` does not exist", code="model_not_found"), FaultKind.CONFIG),
        (429, body("You exceeded your quota", code="insufficient_quota"), FaultKind.REFUSED),
        (429, body("Rate limit reached, reduce the length of the messages"), FaultKind.RATE_LIMIT),
    ],
)  # fmt: skip
def test_the_words_tell_what_the_status_does_not(status: int, said: bytes, kind: FaultKind) -> None:
    assert ENDPOINT.status_fault(status, {}, said).kind is kind


@pytest.mark.parametrize(
    "said",
    [
        b'{"error":{"message":"why not"}}', b'{"error":"why not"}', b'{"message":"why not"}', b'{"detail":"why not"}',
        b'[{"error":{"message":"why not"}}]', b"why not", b'{"error":{"error":{"message":"why not"}}}',
    ],
)  # fmt: skip
def test_the_providers_words_are_found_in_any_shape(said: bytes) -> None:
    assert "HTTP 400: why not" in str(ENDPOINT.status_fault(400, {}, said))


@pytest.mark.parametrize(
    "said", [b"", b"\xff\xfe", b"{}", b"[]", b"null", b'{"error":null}', b'{"error":{}}', b"[" * 5000]
)
def test_any_body_makes_one_line(said: bytes) -> None:
    fault = ENDPOINT.status_fault(500, {}, said)
    assert fault.kind is FaultKind.SERVER
    assert "\n" not in str(fault)


def test_a_web_page_is_not_quoted() -> None:
    fault = ENDPOINT.status_fault(502, {}, b"<!doctype html><html><body>Bad Gateway")
    assert "doctype" not in str(fault)


def test_a_refused_key_is_named_by_its_variable_and_never_shown() -> None:
    fault = ENDPOINT.status_fault(401, {}, body(f"Incorrect API key provided: {KEY} or sk-proj-abcdef123456."))
    assert "OPENAI_API_KEY" in str(fault)
    assert "https://example.invalid/v1" in str(fault)
    assert "secret" not in str(fault)
    assert "abcdef" not in str(fault)


def test_words_are_cut_and_put_on_one_line() -> None:
    quoted = ENDPOINT.quote("a\n\tb" * 1000)
    assert len(quoted) == QUOTE_MAX
    assert "\n" not in quoted


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "250", "retry-after": "3"}, 0.25),
        ({"retry-after": "Mon, 30 Nov 2026 10:00:30 GMT", "date": "Mon, 30 Nov 2026 10:00:00 GMT"}, 30.0),
        ({"retry-after": "Mon, 30 Nov 2026 10:00:00 GMT", "date": "Mon, 30 Nov 2026 10:00:30 GMT"}, 0.0),
        ({"retry-after": "Fri, 30 Nov 2001 10:00:00 GMT"}, 0.0),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_seconds(headers) == seconds
    assert ENDPOINT.status_fault(429, headers, b"").retry_after_seconds == seconds


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"error": {"message": "x", "code": 429}}, FaultKind.RATE_LIMIT),
        ({"error": {"message": "x", "code": "502"}}, FaultKind.SERVER),
        ({"error": {"message": "x", "type": "rate_limit_error"}}, FaultKind.RATE_LIMIT),
        ({"error": {"message": "x", "code": "context_length_exceeded"}}, FaultKind.CONTEXT_OVERFLOW),
        ({"error": {"message": "x", "type": "invalid_request_error"}}, FaultKind.REFUSED),
        ({"error": {"message": "x", "type": "authentication_error"}}, FaultKind.AUTH),
        ({"error": "x"}, FaultKind.SERVER),
        ({"message": "x"}, FaultKind.SERVER),
    ],
)
def test_errors_inside_a_stream(error: Any, kind: FaultKind) -> None:
    fault = ENDPOINT.error_fault(error)
    assert fault.kind is kind
    assert "x" in str(fault)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx2.ConnectError("refused"), FaultKind.CONNECT),
        (httpx2.ConnectTimeout(""), FaultKind.CONNECT),
        (httpx2.ProxyError("no"), FaultKind.CONNECT),
        (httpx2.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed"), FaultKind.CONFIG),
        (httpx2.LocalProtocolError("bad header"), FaultKind.CONFIG),
        (httpx2.ReadError(""), FaultKind.CUT),
        (httpx2.WriteError(""), FaultKind.CUT),
        (httpx2.RemoteProtocolError("incomplete"), FaultKind.CUT),
        (httpx2.DecodingError("gzip"), FaultKind.MALFORMED),
    ],
)
def test_broken_connections(error: httpx2.RequestError, kind: FaultKind) -> None:
    assert ENDPOINT.transport_fault(error).kind is kind
