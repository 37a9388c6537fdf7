"""A chat-completions server that answers every request at once with the same eight words, for the benches.

`python sse_server.py` prints its base URL and serves until its standard input ends.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ["Hello", " from", " the", " loopback", ",", " all", " is", " well."]


def chunk(delta: dict[str, str], finish_reason: str | None = None, **more: Any) -> bytes:
    """One server-sent event of a chat completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    event = {"id": "bench", "object": "chat.completion.chunk", "created": 0, "model": "x", "choices": [choice]}
    return b"data: " + json.dumps(event | more).encode() + b"\n\n"


USAGE = {"prompt_tokens": 8, "completion_tokens": 8, "total_tokens": 16}
ANSWER = b"".join(
    [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": word}) for word in WORDS),
        chunk({}, "stop", usage=USAGE),
        b"data: [DONE]\n\n",
    ]
)


class Handler(BaseHTTPRequestHandler):
    """Reads the request to its end and answers it."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *_: object) -> None:
        """Nothing: a line per request would be measured too."""


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
