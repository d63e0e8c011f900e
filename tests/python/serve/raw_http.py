"""Plain sockets: to be rude with."""

from __future__ import annotations

import json
import socket
from typing import Any, Protocol

_SECONDS = 90.0


class Listening(Protocol):
    """A server on this machine."""

    @property
    def port(self) -> int: ...


def request_bytes(path: str, body: Any, **headers: str) -> bytes:
    """As it goes over the wire."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    every = {"Host": "localhost", "Content-Type": "application/json", **headers}
    every.setdefault("Content-Length", str(len(data)))
    lines = "".join(f"{name}: {value}\r\n" for name, value in every.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + data


def connect(listening: Listening, **options: int) -> socket.socket:
    """With socket options, which are set before: a small buffer is a small window then."""
    connection = socket.socket()
    connection.settimeout(_SECONDS)
    try:
        for name, value in options.items():
            connection.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
        connection.connect(("127.0.0.1", listening.port))
    except OSError:
        connection.close()
        raise
    return connection


def read_all(connection: socket.socket) -> bytes:
    """Until the server closes."""
    data = b""
    while chunk := connection.recv(1 << 16):
        data += chunk
    return data
