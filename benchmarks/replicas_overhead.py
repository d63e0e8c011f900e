"""What replicas on Ray Serve cost over one process: processor time per request and streamed event.

    python -m benchmarks.replicas_overhead MODEL [--replicas 1] [--clients 1 16] [--tokens 200]

Both servers run all the time; one works while the other sleeps. What a server's processes use while
nobody asks is subtracted. An event is what a stream costs more than the same answer in one piece:
the engine's work is not in it. Take a small model, as a large one's work hides the rest. It makes
tokens faster than events can be sent, so an event has several; a large model's have one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from benchmarks.command_line import parser_of
from benchmarks.serving_overhead import Load, client, wait_until_ready

_CACHE_BLOCKS = 2000
_IDLE_SECONDS = 5.0
_ROLES = ("front", "replicas", "Ray")  # one process is its own front


@dataclass(frozen=True)
class Sample:
    """Of one load: seconds on the clock, and of processor time by role."""

    seconds: float
    cpu: Counter[str]
    events: int


@dataclass
class Server:
    """A process with its children."""

    name: str
    process: psutil.Process
    port: int
    idle: dict[str, float]  # by role: processor time per second while nobody asks

    def cpu(self) -> Counter[str]:
        """Seconds so far, by role."""
        found: Counter[str] = Counter()
        for each in [self.process, *self.process.children(recursive=True)]:
            try:
                used = each.cpu_times()
                found[self._role(each)] += used.user + used.system
            except psutil.NoSuchProcess:  # one of Ray's helpers has just ended
                continue
        return found

    def _role(self, process: psutil.Process) -> str:
        if process == self.process:
            return "front"
        return "replicas" if ":Replica" in " ".join(process.cmdline()) else "Ray"

    def measure_idle(self) -> None:
        before, begin = self.cpu(), time.monotonic()
        time.sleep(_IDLE_SECONDS)
        seconds, after = time.monotonic() - begin, self.cpu()
        self.idle = {role: max(0.0, after[role] - before[role]) / seconds for role in _ROLES}

    def sample(self, load: Load, stream: bool) -> Sample:
        async def everyone() -> list[int]:
            each = (client(self.port, load, number, stream) for number in range(load.clients))
            return await asyncio.gather(*each)

        before, begin = self.cpu(), time.monotonic()
        events = asyncio.run(everyone())
        seconds, after = time.monotonic() - begin, self.cpu()
        used = {role: after[role] - before[role] - self.idle[role] * seconds for role in _ROLES}
        return Sample(seconds, Counter(used), sum(events))


@contextmanager
def _server(name: str, model: str, folder: str, *options: str) -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "pagewheel", "serve", f"model={model}", "--port", str(port)]
    command += ["--scheduler", f"num_kv_blocks={_CACHE_BLOCKS}", "--log-level", "warning", *options]
    with subprocess.Popen(command, env={**os.environ, "RAY_TMPDIR": folder}) as process:
        try:
            wait_until_ready(port)
            yield Server(name, psutil.Process(process.pid), port, dict.fromkeys(_ROLES, 0.0))
        finally:
            process.terminate()


@dataclass(frozen=True)
class Costs:
    """Of one round: microseconds of processor time by role, and how fast streams were."""

    request: dict[str, float]
    event: dict[str, float]
    tokens_per_event: float
    tokens_per_second: float


def measure(server: Server, requests: Load, streams: Load) -> Costs:
    short = server.sample(requests, False)
    whole = server.sample(streams, False)
    streamed = server.sample(streams, True)
    count = requests.clients * requests.requests
    return Costs(
        {role: short.cpu[role] / count * 1e6 for role in _ROLES},
        {role: (streamed.cpu[role] - whole.cpu[role]) / streamed.events * 1e6 for role in _ROLES},
        streams.generated / streamed.events,
        streams.generated / streamed.seconds,
    )


def _rows(clients: int, name: str, rounds: list[Costs]) -> Iterator[str]:
    """Medians over the rounds."""
    for what, found in (
        ("request", [each.request for each in rounds]),
        ("event", [each.event for each in rounds]),
    ):
        medians = [statistics.median(each[role] for each in found) for role in _ROLES]
        total = statistics.median(sum(each.values()) for each in found)
        cells = " | ".join(f"{value:.0f}" for value in (*medians, total))
        speed = "|"
        if what == "event":
            many = statistics.median(each.tokens_per_event for each in rounds)
            rate = statistics.median(each.tokens_per_second for each in rounds)
            speed = f"{many:.1f} | {rate:.0f}"
        yield f"| {clients} | {name} | {what} | {cells} | {speed} |"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("model")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--tokens", type=int, default=200, help="of a stream")
    parser.add_argument("--streams", type=int, default=32, help="per round, of all clients")
    parser.add_argument("--requests", type=int, default=160, help="per round, of all clients")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found: dict[tuple[int, str], list[Costs]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="pw-", dir="/tmp") as folder,  # sockets' paths are short
        _server("one process", options.model, folder) as alone,
        _server(
            f"{options.replicas} replicas",
            options.model,
            folder,
            *("--replicas", str(options.replicas)),
        ) as replicated,
    ):
        for server in (alone, replicated):
            server.measure_idle()
        for clients in options.clients:
            requests = Load(clients, max(1, options.requests // clients), 1)
            streams = Load(clients, max(1, options.streams // clients), options.tokens)
            for number in range(options.rounds + 1):
                for server in (alone, replicated):
                    costs = measure(server, requests, streams)
                    if number:  # the first round warms up
                        found.setdefault((clients, server.name), []).append(costs)
    print(
        "| clients | server | CPU us per | front | replicas | Ray's others | all "
        "| tokens per event | tokens/s |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for (clients, name), rounds in found.items():
        print("\n".join(_rows(clients, name, rounds)))


if __name__ == "__main__":
    main()
