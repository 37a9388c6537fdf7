"""The loopback provider refuses what real providers refuse, and sees what clients do."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import httpx2
import orjson
import pytest

from tests.loopback import LoopbackProvider, answer, refusal
from tests.loopback.history import faults_of

CALL: dict[str, Any] = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
USER = {"role": "user", "content": "hi"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "text"}


def body(*messages: Any, **more: Any) -> bytes:
    return orjson.dumps({"model": "m", "stream": True, "messages": list(messages), **more})


def test_valid_requests_are_taken() -> None:
    two = {**CALLED, "tool_calls": [CALL, {**CALL, "id": "b"}]}
    assert faults_of(body(USER))[1] == []
    assert faults_of(body({"role": "system", "content": "x"}, USER, CALLED, RESULT, USER))[1] == []
    assert faults_of(body(USER, two, {**RESULT, "tool_call_id": "b"}, RESULT))[1] == []


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"{", "no valid JSON"),
        (b'{"a":"\xff"}', "no valid JSON"),
        (b"[]", "no object"),
        (body(), "missing or empty"),
        (body(USER, stream=False), "'stream'"),
        (body(USER, model=""), "'model'"),
        (body(USER, tools=[]), "'tools' is empty"),
        (body(USER, tools=[{"function": {"name": "a b", "parameters": {}}}]), "not legal"),
        (body(USER, CALLED), "no result"),
        (body(USER, CALLED, USER), "no result"),
        (body(USER, CALLED, USER, RESULT), "no result"),
        (body(USER, RESULT), "no call"),
        (body(USER, CALLED, RESULT, RESULT), "no call"),
        (body(USER, {**CALLED, "tool_calls": [CALL, CALL]}, RESULT, RESULT), "not unique"),
        (body(USER, {**CALLED, "tool_calls": []}), "empty"),
        (
            body(USER, {**CALLED, "tool_calls": [{**CALL, "function": {"name": "read", "arguments": "{"}}]}, RESULT),
            "JSON",
        ),
        (
            body(USER, {**CALLED, "tool_calls": [{**CALL, "function": {"name": "r/d", "arguments": "{}"}}]}, RESULT),
            "legal",
        ),
        (body({"role": "user", "content": " "}), "empty content"),
        (body(USER, {"role": "assistant", "content": None}), "empty content"),
        (body(USER, CALLED, {**RESULT, "content": ""}), "empty content"),
        (body({"role": "robot", "content": "x"}), "unknown role"),
        (body({"role": "user", "content": "a\x00b"}), "NUL"),
        (b'{"model":"m","stream":true,"messages":[{"role":"user","content":"a\\ud800"}]}', "surrogate"),
    ],
)
def test_invalid_requests_are_refused(raw: bytes, words: str) -> None:
    assert words in "; ".join(faults_of(raw)[1])
    with LoopbackProvider(default=answer("hello")) as provider:
        response = httpx2.post(f"{provider.url}/chat/completions", content=raw, trust_env=False)
        assert response.status_code == 400
        assert words in response.json()["error"]["message"]
        assert provider.refused


def test_replies_come_in_order_and_a_missing_one_is_an_error() -> None:
    with LoopbackProvider(refusal(418, "tea"), answer("hello")) as provider:
        statuses = [
            httpx2.post(f"{provider.url}/chat/completions", content=body(USER), trust_env=False).status_code
            for _ in range(3)
        ]
    assert statuses == [418, 200, 500]


def test_a_client_that_leaves_is_seen() -> None:
    with LoopbackProvider(answer("hello")) as provider:
        httpx2.post(f"{provider.url}/chat/completions", content=body(USER), trust_env=False)
        record = provider.wait_closed(1)
        assert record.sent_whole
        assert record.closed_at is not None
        with pytest.raises(AssertionError, match="request 2"):
            provider.wait_request(2, seconds=0.01)


def test_it_runs_as_a_program() -> None:
    command = [sys.executable, "-m", "tests.loopback", "--text", "from outside"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        response = httpx2.post(f"{url}/chat/completions", content=body(USER), trust_env=False)
        process.communicate("", timeout=5)
    assert "from outside" in response.text
    assert process.returncode == 0
