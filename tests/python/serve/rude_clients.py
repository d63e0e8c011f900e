"""What clients do that have no manners, one thing per function."""

from __future__ import annotations

import random
import socket
import struct
import time
from contextlib import ExitStack, suppress
from typing import Any

from asking import CHAT_TOOLS, SCHEMA
from raw_http import Listening, connect, request_bytes

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
# A byte that a slow sender sends takes so long, or longer where the machine is busy: bytes tell for
# how long the server could have acted.
_SECONDS_PER_BYTE = 0.5
_MOST_SLOW_BYTES = 60
_HELD_CONNECTIONS = 1000
_STEMS = [
    [5 + (number * 31 + at) % 200 for at in range(length)]
    for number, length in enumerate((64, 300, 1500))
]
_LARGE = b'{"prompt": "' + b"a" * (10 << 20) + b'"}'
_DEEP = b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
_NO_SCHEMA = b"""{"messages": [{"role": "user", "content": "a"}], "response_format":
{"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "strange"}}}}"""
_WRONG = (
    (COMPLETIONS, _LARGE, 413),
    (COMPLETIONS, b'{"prompt": "\xff"}', 400),
    (COMPLETIONS, _DEEP, 400),
    (COMPLETIONS, b"\x00" * 1000, 400),
    (COMPLETIONS, b'{"prompt": [' + b"5," * 9000 + b"5]}", 400),  # longer than the context
    (CHAT, _NO_SCHEMA, 400),
)


class RudeError(Exception):
    """The server has stood what it must not, or given what it must not."""


def hang_up(connection: socket.socket, abruptly: bool) -> None:
    if abruptly:  # RST instead of FIN
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def _any_request(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """Path and body of one that could be served."""
    body: dict[str, Any] = {
        "max_tokens": chance.randint(1, 200),
        "stream": chance.random() < 0.7,
        "n": chance.choice((1, 1, 1, 3)),
        "priority": chance.choice((-1, 0, 0, 1)),
        "temperature": chance.choice((0.0, 1.0)),
    }
    text = "the " * chance.randint(1, 60)
    kind = chance.random()
    if kind < 0.3:
        return COMPLETIONS, {**body, "prompt": text}
    if kind < 0.6:
        stem = chance.choice(_STEMS)
        own = [chance.randrange(5, 200) for _ in range(chance.randint(1, 40))]
        return COMPLETIONS, {**body, "prompt": stem[: chance.randint(1, len(stem))] + own}
    body["messages"] = [{"role": "user", "content": text}]
    if kind < 0.7:
        return CHAT, {**body, "tools": CHAT_TOOLS, "tool_choice": "required"}
    if kind < 0.8:
        shape = {"name": "place", "schema": SCHEMA}
        return CHAT, {**body, "response_format": {"type": "json_schema", "json_schema": shape}}
    return CHAT, body


def leave_at_some_moment(served: Listening, chance: random.Random) -> None:
    """Before headers, within them, in the body, in the queue, in the answer, or not at all."""
    data = request_bytes(*_any_request(chance), Connection="close")
    with connect(served) as connection:
        moment = chance.random()
        if moment < 0.3:
            connection.sendall(data[: chance.randrange(len(data))])
        else:
            connection.sendall(data)
            if moment < 0.8:
                time.sleep(chance.random() * 0.05)
                connection.settimeout(0.05)
                with suppress(TimeoutError):
                    connection.recv(chance.choice((1, 100, 5000)))
            else:
                while connection.recv(1 << 16):
                    pass
        hang_up(connection, chance.random() < 0.5)


def ask_ahead_and_leave(served: Listening, chance: random.Random) -> None:
    """Several requests on one connection, the later ones before the first is answered."""
    data = b"".join(request_bytes(*_any_request(chance)) for _ in range(3))
    with connect(served) as connection:
        connection.sendall(data[: chance.randrange(len(data) // 3, len(data))])
        time.sleep(chance.random() * 0.2)
        hang_up(connection, chance.random() < 0.5)


def read_slowly(served: Listening, chance: random.Random) -> None:
    """For a while, or until it is cut off."""
    body = {"prompt": "a", "max_tokens": 2000, "ignore_eos": True, "stream": True}
    with connect(served, SO_RCVBUF=4096) as connection:
        connection.sendall(request_bytes(COMPLETIONS, body))
        for _ in range(chance.randint(1, 40)):
            if not connection.recv(200):
                return
            time.sleep(0.05)


def send_slowly(served: Listening, chance: random.Random) -> None:
    """A byte now and then, until the server has enough of it. Raises RudeError if it never has."""
    data = request_bytes(COMPLETIONS, {"prompt": "a" * 100, "max_tokens": 1})
    answer = b""
    with connect(served) as connection:
        if chance.random() < 0.5:  # only the body is slow
            connection.sendall(data[:-100])
            data = data[-100:]
        connection.settimeout(_SECONDS_PER_BYTE)
        for byte in data[:_MOST_SLOW_BYTES]:
            connection.sendall(bytes([byte]))
            with suppress(TimeoutError):
                chunk = connection.recv(1 << 16)
                if not chunk:
                    return
                answer += chunk
    raise RudeError(f"not cut off after {_MOST_SLOW_BYTES} bytes, and got {answer[:100]!r}")


def send_nonsense(served: Listening, chance: random.Random) -> None:
    """Raises RudeError if the answer is not the one that it deserves."""
    path, body, status = chance.choice(_WRONG)
    with connect(served) as connection:
        connection.sendall(request_bytes(path, body, Connection="close"))
        begin = connection.recv(100)
    if not begin.startswith(f"HTTP/1.1 {status} ".encode()):
        raise RudeError(f"{body[:30]!r}... got {begin!r}, not {status}")
    time.sleep(chance.random())


def hold_connections(served: Listening, _chance: random.Random) -> None:
    """A thousand at once, each with a request that is never whole."""
    with ExitStack() as held:
        for number in range(_HELD_CONNECTIONS):
            connection = held.enter_context(connect(served))
            with suppress(ConnectionError):
                connection.sendall(request_bytes(COMPLETIONS, {})[: number % 60])
        time.sleep(1)
