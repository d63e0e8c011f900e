"""What a restart of `pagewheel serve` costs, and what loading another model costs those who read.

    python -m benchmarks.serving_wake MODEL [--tokens 4000] [--rounds 3] [--other MODEL.gguf]

Each round starts the server on an empty folder of prefixes, asks for one token after a long prompt,
ends the server, starts it again and asks for the same. With --other a stream of MODEL runs while
the server converts and loads that model for the first time, then loads it again from the cache: the
longest gap between tokens is beside the one of a stream that has the server for itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks.command_line import parser_of

_STREAMED_TOKENS = 300


@dataclass(frozen=True)
class Start:
    """Seconds: from the command to /ready, of the long prompt's first token, from SIGTERM on."""

    ready: float
    first_token: float
    end: float


class Server:
    """A process. `ready_seconds` went by until it took requests."""

    def __init__(self, models: list[str], *options: str, cache: Path | None = None) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "pagewheel", "serve", *models, "--port", str(self.port)]
        command += ["--scheduler", "num_kv_blocks=1000", "--log-level", "warning", *options]
        environment = {"PAGEWHEEL_CACHE": str(cache)} if cache else {}
        begin = time.monotonic()
        self.process = subprocess.Popen(command, env={**os.environ, **environment})
        self._wait()
        self.ready_seconds = time.monotonic() - begin

    def _wait(self) -> None:
        while self.process.poll() is None:
            try:
                with urlopen(f"http://127.0.0.1:{self.port}/ready"):
                    return
            except URLError:
                time.sleep(0.005)
        raise RuntimeError("the server did not start")

    def ask(self, body: dict[str, Any], key: str = "") -> Iterator[float]:
        """When each event came. The whole answer is one event if nothing is streamed."""
        connection = HTTPConnection("127.0.0.1", self.port)
        data = json.dumps({"ignore_eos": True, **body})
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        connection.request("POST", "/v1/completions", data, headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(answer.read().decode())
        while answer.readline():
            answer.readline()  # behind each event stands an empty line
            yield time.monotonic()
        connection.close()

    def end(self) -> float:
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        return time.monotonic() - begin


@contextmanager
def serving(models: list[str], *options: str, cache: Path | None = None) -> Iterator[Server]:
    server = Server(models, *options, cache=cache)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end()


def _start(model: str, folder: str, prompt: list[int]) -> Start:
    with serving([f"model={model}"], "--prefix-cache-dir", folder) as server:
        begin = time.monotonic()
        list(server.ask({"prompt": prompt, "max_tokens": 1}))
        first = time.monotonic() - begin
        return Start(server.ready_seconds, first, server.end())


def measure_wake(model: str, tokens: int, rounds: int) -> tuple[list[Start], list[Start]]:
    """Without saved prefixes, and with them."""
    cold, warm = [], []
    for number in range(rounds):
        prompt = [20 + (number * 31 + position * 7) % 5000 for position in range(tokens)]
        with tempfile.TemporaryDirectory() as folder:
            cold.append(_start(model, folder, prompt))
            warm.append(_start(model, folder, prompt))
    return cold, warm


def _longest_gap(server: Server, also: dict[str, Any] | None) -> tuple[float, float]:
    """Of a stream, until the other request is answered; and how long that took."""
    seconds: list[float] = []

    def ask() -> None:
        begin = time.monotonic()
        if also is not None:
            list(server.ask(also))
        seconds.append(time.monotonic() - begin)

    arrived: list[float] = []
    body = {"model": "model", "prompt": [20], "max_tokens": _STREAMED_TOKENS, "stream": True}
    other: threading.Thread | None = None
    longest = 0.0
    while other is None or other.is_alive():
        arrived.clear()
        for moment in server.ask(body):
            arrived.append(moment)
            if other is None and len(arrived) == 10:
                other = threading.Thread(target=ask)
                other.start()
        longest = max(longest, *(after - before for before, after in pairwise(arrived[1:])))
    return longest, seconds[0]


def measure_gaps(model: str, other: str) -> Iterator[tuple[str, float, float]]:
    """What happens meanwhile, the longest gap, and how long that took."""
    with tempfile.TemporaryDirectory() as folder:
        models = [f"model={model}", f"other={other}"]
        asked = {"model": "other", "prompt": [20], "max_tokens": 1}
        names = ("converted and loaded", "loaded")
        for name in names:
            with serving(models, "--pin", "model", cache=Path(folder)) as server:
                if name == names[0]:
                    yield "nothing", *_longest_gap(server, None)
                yield name, *_longest_gap(server, asked)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--other", help="a model that is loaded while a stream runs")
    options = parser.parse_args()
    cold, warm = measure_wake(options.model, options.tokens, options.rounds)
    print(f"| seconds, {options.tokens} tokens | without saved prefixes | with them |")
    print("|---|---|---|")
    for name, what in (("ready", "to ready"), ("first_token", "first token"), ("end", "to end")):
        values = [statistics.median(getattr(each, name) for each in kind) for kind in (cold, warm)]
        print(f"| {what} | {values[0]:.3f} | {values[1]:.3f} |")
    if options.other is not None:
        print("\n| meanwhile | seconds | longest gap of a stream, ms |\n|---|---|---|")
        for name, gap, seconds in measure_gaps(options.model, options.other):
            print(f"| {name} | {seconds:.2f} | {gap * 1000:.0f} |")


if __name__ == "__main__":
    main()
