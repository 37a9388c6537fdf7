"""The chat-completions adapter against a real server on loopback."""

from __future__ import annotations

import socket
from contextlib import aclosing

import anyio
import pytest

from engine.errors import ConfigurationError
from engine.model import openai_chat
from engine.model.base import FaultKind, ModelFinish, RawToolCall, ReasoningChunk, ResponseEnd, TextChunk
from engine.model.openai_chat import OpenAIChatModel
from engine.model.transport import clean_base_url, is_loopback, join_url, shown_url
from engine.run import Usage
from tests.loopback import CLOSE, RESET, Hold, LoopbackProvider, Reply, answer, refusal, tool_call
from tests.loopback.replies import chunk
from tests.model.asking import TOOL, answer_of, asks, chat_model, events_of, fault_of, user

pytestmark = pytest.mark.anyio

HELLO = chunk({"content": "hello"})
STOP = chunk({}, "stop")


async def test_an_answer_comes_in_fragments_and_ends_once() -> None:
    with LoopbackProvider(answer("hel", "lo", reasoning="hm")) as provider:
        model = chat_model(provider)
        events = await events_of(model, asks(user("hi"), system="be brief", tools=(TOOL,)))
        await model.aclose()
    assert events == [
        ReasoningChunk("hm"),
        TextChunk("hel"),
        TextChunk("lo"),
        ResponseEnd(ModelFinish.STOP, (), Usage(10, 5)),
    ]
    request = provider.requests[0]
    assert provider.refused == []
    assert request.headers["authorization"] == "Bearer sk-test-key-0001"
    assert request.body["tools"][0]["function"]["name"] == "read"


async def test_parallel_tool_calls_come_whole_at_the_end() -> None:
    asked = [tool_call("read", {"path": "a"}, "one"), tool_call("ls", {}, "two")]
    with LoopbackProvider(answer("let me see", tool_calls=asked)) as provider:
        text, end = await answer_of(model := chat_model(provider))
        await model.aclose()
    assert text == "let me see"
    assert end.tool_calls == (RawToolCall("one", "read", '{"path": "a"}'), RawToolCall("two", "ls", "{}"))


async def test_without_tls_each_step_has_a_connection_of_its_own() -> None:
    with LoopbackProvider(default=answer("hello")) as provider:
        model = chat_model(provider)
        for number in (1, 2):
            await answer_of(model)
            await provider.gone(number)
        await model.aclose()
    assert provider.requests[0].headers["connection"] == "close"


async def test_a_connection_that_is_kept_serves_the_next_step() -> None:
    with LoopbackProvider(default=answer("hello")) as provider:
        model = chat_model(provider, extra_headers={"connection": "keep-alive"})
        await answer_of(model)
        await answer_of(model)
        assert not provider.requests[0].closed.is_set()
        await model.aclose()
        await model.aclose()
        await provider.gone(1)
        await provider.gone(2)


@pytest.mark.parametrize(
    "actions",
    [
        [HELLO, STOP, "data: [DONE]\n\n"],
        [HELLO, STOP],
        [HELLO, STOP, RESET],
        [HELLO, STOP, CLOSE],
        [": ping\n\n" * 3, HELLO, ": ping\n\n", "data:\n\n", "event: ping\ndata: now\n\n", STOP],
        ['data: {"choices":[{"delta":{"content":"hello"},"finish_reason":"stop"}]}'],
    ],
    ids=["done", "end", "reset behind the end", "cut behind the end", "keep-alives", "no last line end"],
)
async def test_a_finish_reason_makes_a_response_whole(actions: list[object]) -> None:
    with LoopbackProvider(Reply(actions)) as provider:  # type: ignore[arg-type]
        text, end = await answer_of(model := chat_model(provider))
        await model.aclose()
    assert (text, end.finish) == ("hello", ModelFinish.STOP)


async def test_a_server_that_keeps_a_finished_response_open_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_chat, "TAIL_SECONDS", 0.05)
    hold = Hold()
    with LoopbackProvider(Reply([HELLO, STOP, hold])) as provider:
        text, end = await answer_of(model := chat_model(provider))
        await provider.gone()
        await model.aclose()
    assert (text, end.finish) == ("hello", ModelFinish.STOP)


@pytest.mark.parametrize(
    ("actions", "kind"),
    [
        ([HELLO], FaultKind.CUT),
        ([HELLO, "data: [DONE]\n\n"], FaultKind.CUT),
        ([HELLO, RESET], FaultKind.CUT),
        ([HELLO, CLOSE], FaultKind.CUT),
        ([HELLO, 'data: {"choices":[{"del'], FaultKind.CUT),
        ([HELLO, "data: {nonsense}\n\n", STOP], FaultKind.MALFORMED),
        ([HELLO, "data: 7\n\n", STOP], FaultKind.MALFORMED),
        ([HELLO, {"error": {"message": "overloaded", "code": 503}}], FaultKind.SERVER),
        ([HELLO, {"error": {"message": "slow down", "code": 429}}], FaultKind.RATE_LIMIT),
        ([HELLO, "event: error\ndata: it broke\n\n", STOP], FaultKind.SERVER),
        ([HELLO, 'event: error\ndata: {"message":"it broke"}\n\n', STOP], FaultKind.SERVER),
        ([HELLO, chunk({}, "error")], FaultKind.SERVER),
        ([HELLO, b"data: " + b"x" * (17 * 1024 * 1024)], FaultKind.MALFORMED),
    ],
)
async def test_a_response_that_is_not_whole_is_a_fault(actions: list[object], kind: FaultKind) -> None:
    with LoopbackProvider(Reply(actions)) as provider:  # type: ignore[arg-type]
        fault, text = await fault_of(model := chat_model(provider))
        await model.aclose()
    assert (fault.kind, text) == (kind, "hello")
    assert fault.is_retryable


async def test_keep_alives_alone_are_no_progress() -> None:
    hold = Hold()
    with LoopbackProvider(Reply([": ping\n\n" * 100, hold, HELLO, STOP])) as provider:
        model = chat_model(provider)
        async with aclosing(model.stream(asks())) as events:
            with anyio.move_on_after(0.1) as waiting:
                await anext(events)
        assert waiting.cancelled_caught
        await provider.gone()
        await model.aclose()


async def test_a_reset_before_the_first_byte_is_a_cut() -> None:
    with LoopbackProvider(Reply(before=[RESET])) as provider:
        fault, _ = await fault_of(model := chat_model(provider))
        await model.aclose()
    assert fault.kind is FaultKind.CUT


async def test_nobody_at_the_address_is_a_connect_fault_that_names_it() -> None:
    with socket.socket() as taken:  # bound but not listening: connecting is refused, and nobody else gets the port
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        fault, _ = await fault_of(model := OpenAIChatModel("openai/x", "x", url, None))
        await model.aclose()
    assert fault.kind is FaultKind.CONNECT
    assert url in str(fault)


async def test_a_refusal_carries_what_the_server_asks_for() -> None:
    with LoopbackProvider(refusal(429, "slow down", headers={"Retry-After": "7"})) as provider:
        fault, _ = await fault_of(model := chat_model(provider))
        await model.aclose()
    assert (fault.kind, fault.retry_after_seconds) == (FaultKind.RATE_LIMIT, 7.0)
    assert "slow down" in str(fault)


async def test_a_refusal_without_an_end_is_read_only_so_far() -> None:
    endless = Hold()
    reply = Reply(["x" * 70_000, endless], 500, {"content-type": "text/plain"})
    with LoopbackProvider(reply) as provider:
        fault, _ = await fault_of(model := chat_model(provider))
        await model.aclose()
    assert fault.kind is FaultKind.SERVER


async def test_a_redirect_is_not_followed() -> None:
    with LoopbackProvider(default=answer("never")) as other:
        reply = refusal(307, "", headers={"location": f"{other.url}/chat/completions"})
        with LoopbackProvider(reply) as provider:
            fault, _ = await fault_of(model := chat_model(provider))
            await model.aclose()
        assert fault.kind is FaultKind.CONFIG
        assert other.url in str(fault)
        assert other.requests == []


async def test_a_whole_completion_instead_of_a_stream_is_taken() -> None:
    completion = (
        b'{"choices":[{"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":3,"completion_tokens":1}}'
    )
    with LoopbackProvider(Reply([completion], headers={"content-type": "application/json; charset=utf-8"})) as provider:
        text, end = await answer_of(model := chat_model(provider))
        await model.aclose()
    assert (text, end.usage) == ("hello", Usage(3, 1))


@pytest.mark.parametrize(
    ("body", "media_type", "kind"),
    [
        (b'{"error":{"message":"no"}}', "application/json", FaultKind.SERVER),
        (b'{"ok":true}', "application/json", FaultKind.MALFORMED),
        (b"{nonsense", "application/json", FaultKind.MALFORMED),
        (b"", "application/json", FaultKind.MALFORMED),
        (b"<html>log in</html>", "text/html", FaultKind.CONFIG),
        (b"upstream is away", "text/plain", FaultKind.CUT),
    ],
)
async def test_what_is_no_completion_is_a_fault(body: bytes, media_type: str, kind: FaultKind) -> None:
    with LoopbackProvider(Reply([body], headers={"content-type": media_type})) as provider:
        fault, _ = await fault_of(model := chat_model(provider))
        await model.aclose()
    assert fault.kind is kind


async def test_escapes_of_half_a_character_are_joined() -> None:
    halves = [chunk({"content": "a\ud83d"}), chunk({"content": "\ude00"})]  # the provider writes JSON in ASCII
    with LoopbackProvider(Reply([*halves, STOP])) as provider:
        text, _ = await answer_of(model := chat_model(provider))
        await model.aclose()
    assert text == "a\U0001f600"


@pytest.mark.parametrize("place", ["before the first byte", "before the first event", "between two events"])
async def test_a_cancel_closes_the_connection_within_a_second(place: str) -> None:
    hold = Hold()
    reply = {
        "before the first byte": answer("never", before=[hold]),
        "before the first event": answer("never", hold={0: hold}),
        "between two events": answer("hel", "lo", hold={1: hold}),
    }[place]
    with LoopbackProvider(reply, answer("next")) as provider:
        model = chat_model(provider)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(events_of, model)
                await anyio.to_thread.run_sync(hold.reached.wait, 5)
                cancelled_at = anyio.current_time()
                tasks.cancel_scope.cancel()
            await provider.gone()
            assert anyio.current_time() - cancelled_at < 1
        assert len(provider.requests) == 1
        assert (await answer_of(model))[0] == "next"
        await model.aclose()


async def test_leaving_the_events_early_closes_the_connection() -> None:
    with LoopbackProvider(answer("hel", "lo", hold={1: Hold()})) as provider:
        model = chat_model(provider)
        async with aclosing(model.stream(asks())) as events:
            assert await anext(events) == TextChunk("hel")
        await provider.gone()
        await model.aclose()


async def test_a_proxy_of_the_environment_is_not_asked_for_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    with LoopbackProvider(answer("hello")) as provider:
        text, _ = await answer_of(model := chat_model(provider))
        assert text == "hello"
        await model.aclose()


def test_a_base_url_is_cleaned() -> None:
    assert clean_base_url(" http://host:1/v1/ ") == "http://host:1/v1"
    assert clean_base_url("http://host/v1/chat/completions") == "http://host/v1"
    assert (
        join_url("https://host/v1?api-version=2", "/chat/completions")
        == "https://host/v1/chat/completions?api-version=2"
    )
    assert shown_url("https://me:secret@host/v1?key=secret") == "https://host/v1"
    assert is_loopback("localhost")
    assert not is_loopback("example.org")


@pytest.mark.parametrize(
    "url", ["", "host/v1", "ftp://host", "http://", "http://host:port/v1", "http://a b/", "http://["]
)
def test_a_base_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="base URL"):
        OpenAIChatModel("openai/x", "x", url, "key")


def test_a_key_loses_its_line_break_and_keeps_no_other_odd_character() -> None:
    OpenAIChatModel("openai/x", "x", "http://host/v1", "key\n")
    for key in ("a\nb", "kéy", "two words"):
        with pytest.raises(ConfigurationError, match="OPENAI_API_KEY") as caught:
            OpenAIChatModel("openai/x", "x", "http://host/v1", key)
        assert key not in str(caught.value)
