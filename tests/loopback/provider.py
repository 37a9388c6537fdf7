"""The loopback provider: an HTTP server in threads, a record of every request, and waits that end.

    with LoopbackProvider(answer("hello")) as provider:
        model = OpenAIChatModel("openai/x", "x", provider.url, "key")

Waits block the calling thread, with a bound; an async test awaits `arrived` and `gone` instead.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import anyio

from tests.loopback.history import faults_of
from tests.loopback.replies import Ending, Hold, Reply, refusal

WAIT_SECONDS = 5.0


class Recorded:
    """One request: what came, when, and when the client closed its connection, if it has."""

    def __init__(self, body: dict[str, Any], raw: bytes, headers: Mapping[str, str], path: str) -> None:
        self.body = body
        self.raw = raw
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.path = path
        self.arrived_at = time.monotonic()
        self.closed_at: float | None = None
        self.sent_whole = False
        self.closed = threading.Event()

    def note_closed(self) -> None:
        if not self.closed.is_set():
            self.closed_at = time.monotonic()
            self.closed.set()


class LoopbackProvider:
    """Answers requests with its replies in order, then with `default`; without one the next request is a 500."""

    def __init__(
        self,
        *replies: Reply,
        default: Reply | None = None,
        choose: Callable[[Recorded], Reply | None] | None = None,
    ) -> None:
        self.requests: list[Recorded] = []
        self.refused: list[str] = []
        self._replies = deque(replies)
        self._default = default
        self._choose = choose
        self._changed = threading.Condition()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stopping.set()
        self._server.shutdown()
        self._server.close_connections()
        self._server.server_close()
        self._thread.join(WAIT_SECONDS)

    @property
    def url(self) -> str:
        """What goes into `OPENAI_BASE_URL`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def add(self, *replies: Reply) -> None:
        """More replies, behind those that wait."""
        self._replies.extend(replies)

    def wait_request(self, number: int = 1, seconds: float = WAIT_SECONDS) -> Recorded:
        """The n-th request (1 is the first), once it has come."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self.requests) >= number, seconds)
        assert came, f"request {number} did not come within {seconds} s; {len(self.requests)} did"
        return self.requests[number - 1]

    def wait_closed(self, number: int = 1, seconds: float = WAIT_SECONDS) -> Recorded:
        """The n-th request, once the client has closed its connection."""
        record = self.wait_request(number, seconds)
        assert record.closed.wait(seconds), f"the client did not close request {number} within {seconds} s"
        return record

    async def arrived(self, number: int = 1) -> Recorded:
        """`wait_request` for async tests."""
        return await anyio.to_thread.run_sync(self.wait_request, number, abandon_on_cancel=True)

    async def gone(self, number: int = 1) -> Recorded:
        """`wait_closed` for async tests."""
        return await anyio.to_thread.run_sync(self.wait_closed, number, abandon_on_cancel=True)

    def take(self, record: Recorded, faults: list[str]) -> Reply:
        """Record a request and say what it gets."""
        with self._changed:
            self.requests.append(record)
            self._changed.notify_all()
            if faults:
                self.refused += faults
                return refusal(400, "; ".join(faults), code="invalid_request_error")
            chosen = self._choose(record) if self._choose is not None else None
            if chosen is not None:
                return chosen
            if self._replies:
                return self._replies.popleft()
            return self._default or refusal(500, "the loopback provider has no reply left")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, provider: LoopbackProvider) -> None:
        self.provider = provider
        self.stopping = threading.Event()
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            with suppress(OSError):  # it may have gone by itself
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went is what tests are about, no error."""


class _GoneError(Exception):
    """The connection is over."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    disable_nagle_algorithm = True

    def handle(self) -> None:
        self._records: list[Recorded] = []
        try:
            super().handle()
        except (OSError, _GoneError):
            pass
        finally:
            for record in self._records:
                record.note_closed()

    def do_GET(self) -> None:
        body = json.dumps({"object": "list", "data": [{"id": "loopback", "object": "model"}]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        body, faults = faults_of(raw)
        if self.path.partition("?")[0] != "/v1/chat/completions":
            faults = [f"no such path: {self.path}"]
        record = Recorded(body, raw, dict(self.headers.items()), self.path)
        self._records.append(record)
        watcher = _CloseWatcher(self.connection, record)
        try:
            self._answer(self.server.provider.take(record, faults), record)
            record.sent_whole = True
        finally:
            watcher.stop()

    def _answer(self, reply: Reply, record: Recorded) -> None:
        for stop in reply.before:
            self._stop(stop, record)
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for action in reply.actions:
            match action:
                case Hold() | Ending():
                    self._stop(action, record)
                case dict():
                    self._write(f"data: {json.dumps(action)}\n\n".encode())
                case str():
                    self._write(action.encode("utf-8", "surrogatepass"))
                case bytes():
                    self._write(action)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """Nothing: tests read standard error."""

    def _write(self, data: bytes) -> None:
        if data:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _stop(self, action: Hold | Ending, record: Recorded) -> None:
        match action:
            case Hold():
                action.reached.set()
                while not action.released.wait(0.01):
                    if record.closed.is_set() or self.server.stopping.is_set():
                        raise _GoneError
            case Ending.RESET:
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()
                raise _GoneError
            case Ending.CLOSE:
                raise _GoneError


class _CloseWatcher:
    """A thread that notes when the client closes while its request is being answered."""

    def __init__(self, connection: socket.socket, record: Recorded) -> None:
        self._connection = connection
        self._record = record
        self._stop_read, self._stop_write = socket.socketpair()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop_write.close()
        self._thread.join(WAIT_SECONDS)
        self._stop_read.close()

    def _watch(self) -> None:
        try:
            readable, _, _ = select.select([self._connection, self._stop_read], [], [])
            if self._stop_read not in readable and not self._connection.recv(1, socket.MSG_PEEK):
                self._record.note_closed()
        except OSError:
            self._record.note_closed()
        except ValueError:
            pass  # we closed it ourselves: a reset
