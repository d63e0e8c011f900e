"""What HTTP costs over the engine in process: tokens/s, and processor time per token and request.

    python -m benchmarks.serving_overhead MODEL [--clients 1 16 64] [--tokens 64]

Server, clients and the engine in process are processes of their own; one works while the others
sleep. Each round measures all of them; ratios are taken within a round, and their median is shown.
Clients are plain sockets that do nothing with what they read.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import re
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks.command_line import parser_of

_CACHE_BLOCKS = 2000
_PROMPT_TOKENS = 16
_ANSWER_BYTES = 1 << 24  # at most
_KINDS = ("in process", "in one piece", "streamed")


@dataclass(frozen=True)
class Load:
    """`clients` at once, each with `requests` of `tokens` tokens one after the other."""

    clients: int
    requests: int
    tokens: int

    @property
    def generated(self) -> int:
        return self.clients * self.requests * self.tokens

    def prompt(self, client: int, request: int) -> list[int]:
        first = client * 7 + request * 3
        return [20 + (first + position) % 200 for position in range(_PROMPT_TOKENS)]


@dataclass(frozen=True)
class Sample:
    """Seconds on the clock, and of processor time: the engine's with the server's, and clients'."""

    seconds: float
    cpu: float
    client_cpu: float = 0.0


def _own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _engine(model: str, orders: Connection) -> None:
    """A child: for each load that arrives, what it took. None ends it."""
    import pagewheel

    scheduler = pagewheel.SchedulerConfig()
    scheduler.num_kv_blocks = _CACHE_BLOCKS
    scheduler.enable_prefix_caching = True
    pipeline = pagewheel.ContinuousBatchingPipeline(model, scheduler, "CPU")
    while (load := orders.recv()) is not None:
        cpu, begin = _own_cpu(), time.monotonic()
        _run(pipeline, load)
        orders.send(Sample(time.monotonic() - begin, _own_cpu() - cpu))


def _run(pipeline: object, load: Load) -> None:
    """As one of a client's requests ends, its next one is added."""
    import pagewheel

    assert isinstance(pipeline, pagewheel.ContinuousBatchingPipeline)
    config = pagewheel.GenerationConfig(max_new_tokens=load.tokens, ignore_eos=True)
    done = dict.fromkeys(range(load.clients), 0)
    handles = {
        client: pipeline.add_request(client, load.prompt(client, 0), config) for client in done
    }
    while handles:
        pipeline.step()
        for client, handle in list(handles.items()):
            if handle.get_status() == pagewheel.GenerationStatus.RUNNING:
                continue
            handle.read_available(True)
            done[client] += 1
            if done[client] == load.requests:
                del handles[client]
            else:
                prompt = load.prompt(client, done[client])
                handles[client] = pipeline.add_request(client, prompt, config)


async def client(port: int, load: Load, number: int, stream: bool) -> int:
    """One of the load's. Returns how many events its streams had."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=_ANSWER_BYTES)
    events = 0
    for request in range(load.requests):
        body = json.dumps(
            {
                "prompt": load.prompt(number, request),
                "max_tokens": load.tokens,
                "ignore_eos": True,
                "stream": stream,
            }
        )
        head = (
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write((head + body).encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(answer.decode())
        if stream:
            events += (await reader.readuntil(b"\r\n0\r\n\r\n")).count(b"data: {")
        else:
            length = re.search(rb"content-length: (\d+)", answer)
            assert length is not None
            await reader.readexactly(int(length[1]))
    writer.close()
    await writer.wait_closed()
    return events


def _clients(port: int, pid: int, orders: Connection) -> None:
    """A child, as _engine(): orders are a load, and whether to stream."""

    async def everyone(load: Load, stream: bool) -> None:
        await asyncio.gather(*(client(port, load, each, stream) for each in range(load.clients)))

    while (order := orders.recv()) is not None:
        server, own, begin = _cpu_of(pid), _own_cpu(), time.monotonic()
        asyncio.run(everyone(*order))
        seconds = time.monotonic() - begin
        orders.send(Sample(seconds, _cpu_of(pid) - server, _own_cpu() - own))


@contextmanager
def _child(target: Callable[..., None], *arguments: object) -> Iterator[Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(*arguments, theirs))
    process.start()
    try:
        yield ours
    finally:
        ours.send(None)
        process.join()


@contextmanager
def _server(model: str) -> Iterator[tuple[int, int]]:
    """Its port and process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "pagewheel", "serve", f"model={model}", "--port", str(port)]
    command += ["--scheduler", f"num_kv_blocks={_CACHE_BLOCKS}", "--log-level", "warning"]
    with subprocess.Popen(command) as server:
        try:
            wait_until_ready(port)
            yield port, server.pid
        finally:
            server.terminate()


def wait_until_ready(port: int) -> None:
    for _ in range(600):
        try:
            with urlopen(f"http://127.0.0.1:{port}/ready"):
                return
        except URLError:
            time.sleep(0.1)
    raise RuntimeError("the server did not start")


def measure(model: str, loads: list[Load], rounds: int) -> Iterator[tuple[Load, list[Sample]]]:
    """For each round of each load a sample per kind."""
    with (
        _child(_engine, model) as engine,
        _server(model) as (port, pid),
        _child(_clients, port, pid) as clients,
    ):
        for load in loads:
            for number in range(rounds + 1):
                samples = []
                kinds = ((engine, load), (clients, (load, False)), (clients, (load, True)))
                for pipe, order in kinds:
                    pipe.send(order)
                    samples.append(pipe.recv())
                if number:  # the first round warms up
                    yield load, samples


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--requests", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    loads = [Load(clients, options.requests, options.tokens) for clients in options.clients]
    found: dict[Load, list[list[Sample]]] = {load: [] for load in loads}
    for load, samples in measure(options.model, loads, options.rounds):
        found[load].append(samples)
    print("| clients | | tokens/s | of in process | CPU us per token more | clients' CPU us |")
    print("|---|---|---|---|---|---|")
    for load, rounds in found.items():
        for number, kind in enumerate(_KINDS):
            print(f"| {load.clients} | {kind} | {_row(load, rounds, number)} |")


def _row(load: Load, rounds: list[list[Sample]], number: int) -> str:
    """Medians over the rounds, of a kind beside the engine in process."""
    pairs = [(samples[number], samples[0]) for samples in rounds]
    tokens = load.generated

    def median(values: Iterable[float], form: str) -> str:
        return format(statistics.median(values), form)

    return " | ".join(
        (
            median((tokens / one.seconds for one, _ in pairs), ".0f"),
            median((engine.seconds / one.seconds for one, engine in pairs), ".0%"),
            median(((one.cpu - engine.cpu) / tokens * 1e6 for one, engine in pairs), ".0f"),
            median((one.client_cpu / tokens * 1e6 for one, _ in pairs), ".0f"),
        )
    )


if __name__ == "__main__":
    main()
