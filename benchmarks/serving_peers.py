"""pagewheel serve beside other servers of OpenAI's API: the same model, the same requests.

    python -m benchmarks.serving_peers MODEL.gguf \\
        --peer llama.cpp='llama-server -m {model} --port {port}'

Each round starts each server, waits until it is ready, measures all loads with bench-serve and ends
it; servers take their turns within a round. A peer is a command with {model} and {port}, which it
is to listen on. Shown are medians over the rounds, and pagewheel's share of each peer's.
"""

from __future__ import annotations

import asyncio
import shlex
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command_line import parser_of
from pagewheel.bench_serve.call import Target
from pagewheel.bench_serve.run import Plan, measure, warm_up
from pagewheel.bench_serve.summary import Summary, summarise
from pagewheel.bench_serve.workload import Load, Synthetic
from pagewheel.cli.endpoint import first_model, opened

_OWN = "pagewheel"
_OWN_COMMAND = (
    f"{shlex.quote(sys.executable)} -m pagewheel serve {{model}} --port {{port}} "
    "--cache-size 1 --log-level warning"
)
_READY_SECONDS = 120


@dataclass(frozen=True)
class Sample:
    """Of one server in one round."""

    ready_seconds: float
    peak_bytes: int
    loads: list[Summary]


def peak_bytes(pid: int) -> int:
    """The most memory that a process and its children were in, at once at most."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    own = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
    return own + sum(peak_bytes(int(child)) for child in children)


def _answers(url: str) -> bool:
    """Whether a token comes: some servers listen before their model is loaded."""
    try:
        body = {"prompt": "a", "max_tokens": 1, "model": first_model(url, "")}
        with opened(f"{url}/completions", "", body):
            return True
    except RuntimeError:
        return False


@contextmanager
def started(command: str, model: Path) -> Iterator[tuple[str, int, float]]:
    """Its address, process and the seconds until its first token."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [word.format(model=model, port=port) for word in shlex.split(command)]
    url = f"http://127.0.0.1:{port}/v1"
    begin = time.perf_counter()
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while not _answers(url):
                if process.poll() is not None or time.perf_counter() - begin > _READY_SECONDS:
                    raise RuntimeError(f"{words[0]} did not get ready")
                time.sleep(0.02)
            yield url, process.pid, time.perf_counter() - begin
        finally:
            process.terminate()


def sample(command: str, model: Path, plan: Plan, loads: Sequence[Load]) -> Sample:
    with started(command, model) as (url, pid, seconds):
        target = Target(url, first_model(url, ""), fields={"ignore_eos": True})

        async def run() -> list[Summary]:
            await warm_up(target, plan, 2)
            stop = asyncio.Event()
            return [
                summarise(await measure(target, plan, load, number, stop), {})
                for number, load in enumerate(loads)
            ]

        found = asyncio.run(run())
        return Sample(seconds, peak_bytes(pid), found)


def report(found: dict[str, list[Sample]], loads: Sequence[Load]) -> Iterator[str]:
    yield "| load | server | tokens/s | first token p50 ms | per token p50 ms | errors |"
    yield "|---|---|---|---|---|---|"
    for number, load in enumerate(loads):
        for name, samples in found.items():
            each = [one.loads[number] for one in samples]
            yield (
                f"| {load.name} | {name} "
                f"| {statistics.median(one.tokens_per_second for one in each):.0f} "
                f"| {_milliseconds([one.first_token.percentiles['p50'] for one in each])} "
                f"| {_milliseconds([one.per_token.percentiles['p50'] for one in each])} "
                f"| {sum(sum(one.errors.values()) for one in each)} |"
            )
    yield ""
    yield "| server | ready after s | peak memory MiB |"
    yield "|---|---|---|"
    for name, samples in found.items():
        ready = statistics.median(one.ready_seconds for one in samples)
        peak = statistics.median(one.peak_bytes for one in samples)
        yield f"| {name} | {ready:.2f} | {peak / 2**20:.0f} |"
    yield from _ratios(found, loads)


def _milliseconds(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known) * 1e3:.0f}" if known else "-"


def _ratios(found: dict[str, list[Sample]], loads: Sequence[Load]) -> Iterator[str]:
    """Within a round, the median of them."""
    yield ""
    for name, samples in found.items():
        if name == _OWN:
            continue
        for number, load in enumerate(loads):
            pairs = [
                (own.loads[number], other.loads[number])
                for own, other in zip(found[_OWN], samples, strict=True)
            ]
            rate = statistics.median(a.tokens_per_second / b.tokens_per_second for a, b in pairs)
            first = statistics.median(
                (b.first_token.percentiles["p50"] or 0) / (a.first_token.percentiles["p50"] or 1)
                for a, b in pairs
            )
            yield (
                f"{load.name}: {rate:.2f} times {name}'s throughput, "
                f"first token {first:.2f} times as soon"
            )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--requests", type=int, default=24, help="of each load")
    parser.add_argument("--prompt-tokens", type=int, default=100)
    parser.add_argument("--shared-tokens", type=int, default=0)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    commands = {_OWN: _OWN_COMMAND}
    commands |= {name: command for name, _, command in (p.partition("=") for p in options.peer)}
    workload = Synthetic(options.prompt_tokens, shared_tokens=options.shared_tokens)
    plan = Plan(workload, options.requests, options.max_tokens)
    loads = [Load(concurrency=count) for count in options.concurrency]
    found: dict[str, list[Sample]] = {name: [] for name in commands}
    for _ in range(options.rounds):
        for name, command in commands.items():
            found[name].append(sample(command, options.model.absolute(), plan, loads))
    print("\n".join(report(found, loads)))


if __name__ == "__main__":
    main()
