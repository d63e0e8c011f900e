"""What the work of one API key costs another one, at the limits of what a key may ask for.

    python -m benchmarks.serving_neighbours MODEL [--load NAME ...] [--seconds 4]

While connections of one key (--connections) repeat a request, another key reads a stream, and then
asks for one token again and again. Reported are the longest gap between the stream's tokens and the
longest time to that one token, beside those of a server that does nothing else.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import pairwise
from typing import Any

from benchmarks.command_line import parser_of
from benchmarks.serving_wake import Server, serving

_HEAVY, _LIGHT = "the-heavy-key", "the-light-key"
_numbers = itertools.count()

# Path and body of a request, of which no two are the same. None as a body: GET.
_Asked = tuple[str, dict[str, Any] | None]


def _words(size: int) -> str:
    words = f"{next(_numbers)} word "
    return words * (size // len(words))


def _prompt(tokens: int) -> list[int]:
    number = next(_numbers)
    return [20 + (number * 31 + place * 7) % 5000 for place in range(tokens)]


def _tool() -> dict[str, Any]:
    function = {"name": "a", "description": _words(300 << 10)}
    return {"type": "function", "function": function}


def _schema() -> dict[str, Any]:
    names = [f"name_{next(_numbers)}" for _ in range(200)]
    properties = {name: {"type": "string", "pattern": "^([a-z]{1,9} ){1,9}$"} for name in names}
    return {"type": "object", "properties": properties, "required": names}


def _texts(count: int, size: int) -> list[str]:
    return [f"{next(_numbers)} {_words(size)}"[:size] for _ in range(count)]


def _completion(**config: Any) -> _Asked:
    return "/v1/completions", {"prompt": "a", "max_tokens": 60, "ignore_eos": True, **config}


_HELLO = [{"role": "user", "content": "Hello"}]
_LOADS = {
    "nothing": lambda: ("/health", None),
    "bodies of 190,000 values": lambda: ("/v1/completions", {"prompt": [20] * 190_000}),
    "bodies of 3.9 MB": lambda: ("/v1/completions", {"prompt": "a", "user": "a" * 3_900_000}),
    "texts of 250K characters": lambda: ("/tokenize", {"prompt": _words(250_000)}),
    "conversations of 250K characters": lambda: (
        "/tokenize",
        {"messages": [{"role": "user", "content": _words(250_000)}]},
    ),
    "texts of 3.9M characters": lambda: (
        "/v1/completions",
        {"prompt": _words(3_900_000), "truncate_prompt_tokens": 9, "max_tokens": 1},
    ),
    "tools of 300K characters": lambda: ("/tokenize", {"messages": _HELLO, "tools": [_tool()]}),
    "grammars": lambda: (
        "/v1/completions",
        {"prompt": "a", "max_tokens": 1, "guided_json": _schema()},
    ),
    "stop texts of 60 KB": lambda: _completion(stop=_texts(6, 10_000)),
    "bad words of 60 KB": lambda: _completion(bad_words=_texts(6000, 10)),
    "DRY with 100 breakers": lambda: _completion(
        dry_multiplier=0.8, dry_sequence_breakers=_texts(100, 40)
    ),
    "DRY and n-grams of 3,000 equal tokens": lambda: _completion(
        prompt=[20 + next(_numbers) % 5000] * 3000, dry_multiplier=0.8, no_repeat_ngram_size=1500
    ),
    "128 prompts": lambda: (
        "/v1/completions",
        {"prompt": [_prompt(9) for _ in range(128)], "max_tokens": 60},
    ),
    "prompts of 4,000 tokens": lambda: (
        "/v1/completions",
        {"prompt": _prompt(4000), "max_tokens": 1},
    ),
    "128 choices": lambda: (
        "/v1/completions",
        {"prompt": _prompt(9), "n": 128, "temperature": 1, "max_tokens": 60},
    ),
    "stored responses of 1 MB": lambda: (
        "/v1/responses",
        {"input": "a", "max_output_tokens": 1, "user": "a" * (1 << 20)},
    ),
    "views of the cache": lambda: ("/cache", None),
    "counts of prefixes": lambda: ("/prefixes", None),
}


def _send(port: int, asked: _Asked) -> None:
    path, body = asked
    connection = HTTPConnection("127.0.0.1", port)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {_HEAVY}"}
    data = None if body is None else json.dumps(body)
    connection.request("GET" if body is None else "POST", path, data, headers)
    connection.getresponse().read()
    connection.close()


@contextmanager
def _loaded(port: int, name: str, connections: int) -> Iterator[list[int]]:
    """The requests' numbers are appended as they are answered."""
    is_over = threading.Event()
    answered: list[int] = []

    def repeat() -> None:
        while not is_over.is_set():
            _send(port, _LOADS[name]())
            answered.append(1)
            if name == "nothing":
                is_over.wait(0.1)

    threads = [threading.Thread(target=repeat) for _ in range(connections)]
    for each in threads:
        each.start()
    try:
        time.sleep(0.5)
        yield answered
    finally:
        is_over.set()
        for each in threads:
            each.join()


def _longest_gap(server: Server, seconds: float) -> float:
    """Of streams, one after the other, in so many seconds."""
    body = {"prompt": [20], "max_tokens": 100, "stream": True}
    longest = 0.0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        arrived = list(server.ask(body, _LIGHT))
        longest = max(longest, *(after - before for before, after in pairwise(arrived[1:])))
    return longest


def _longest_token(server: Server, seconds: float) -> float:
    longest = 0.0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.monotonic()
        list(server.ask({"prompt": [20], "max_tokens": 1}, _LIGHT))
        longest = max(longest, time.monotonic() - begin)
    return longest


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("model")
    parser.add_argument("--load", action="append", choices=_LOADS, help="default: all of them")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    options = parser.parse_args()
    os.environ["PAGEWHEEL_API_KEYS"] = f"{_HEAVY},{_LIGHT}"
    print("| meanwhile | answered | longest gap of a stream, ms | longest time to one token, ms |")
    print("|---|---|---|---|")
    with serving([f"model={options.model}"]) as server:
        list(server.ask({"prompt": [20], "max_tokens": 5}, _LIGHT))
        for name in options.load or _LOADS:
            with _loaded(server.port, name, options.connections) as answered:
                try:
                    gap = _longest_gap(server, options.seconds)
                    token = _longest_token(server, options.seconds)
                    cost = f"{gap * 1e3:.0f} | {token * 1e3:.0f}"
                except RuntimeError as refused:  # the queue of all keys is full
                    code = json.loads(str(refused))["error"]["code"]
                    cost = f"{code} | {code}"
                print(f"| {name} | {len(answered)} | {cost} |", flush=True)


if __name__ == "__main__":
    main()
