"""A real HTTP server that answers as OpenAI's API does, with delays that a test chooses."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Behaviour:
    """Of each answer. `fail_every`: each such request gets 500; 0: none does."""

    first_seconds: float = 0.05
    between_seconds: float = 0.01
    tokens: int = 5
    fail_every: int = 0
    break_off: bool = False  # the stream ends after its first piece
    first_event: str = ""  # instead of what belongs there
    with_usage: bool = True


class KnownServer:
    """What it was asked, and its address."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.bodies: list[dict[str, Any]] = []
        self.arrivals: list[float] = []
        self.keys: set[str] = set()
        self.lock = threading.Lock()
        self.url = ""


@contextmanager
def known_server(behaviour: Behaviour) -> Iterator[KnownServer]:
    """Until the block is left."""
    known = KnownServer(behaviour)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._whole(200, {"data": [{"id": "known"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with known.lock:
                known.bodies.append(body)
                known.arrivals.append(time.perf_counter())
                known.keys.add(self.headers.get("Authorization", ""))
                number = len(known.bodies)
            if behaviour.fail_every and number % behaviour.fail_every == 0:
                self._whole(500, {"error": {"message": "no luck"}})
            else:
                self._stream(body)

        def _whole(self, status: int, value: Any) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, body: dict[str, Any]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            is_chat = "messages" in body
            if behaviour.first_event:
                self.wfile.write(f"data: {behaviour.first_event}\n\n".encode())
            for number in range(behaviour.tokens):
                time.sleep(behaviour.between_seconds if number else behaviour.first_seconds)
                text = f" t{number}"
                choice = {"delta": {"content": text}} if is_chat else {"text": text}
                self._event({"choices": [choice]})
                if behaviour.break_off:
                    return
            if behaviour.with_usage:
                usage = {"prompt_tokens": 7, "completion_tokens": behaviour.tokens}
                self._event({"choices": [], "usage": usage})
            self.wfile.write(b"data: [DONE]\n\n")

        def _event(self, value: Any) -> None:
            self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
            self.wfile.flush()

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a client that left

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        known.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        try:
            yield known
        finally:
            server.shutdown()
            thread.join()
