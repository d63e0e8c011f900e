"""`pagewheel serve` under clients of every kind at once: what must hold meanwhile and at rest."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from polite_clients import alone
from server_process import WATCHED_COMMAND, Process, started
from waiting import eventually

# Times are for a machine that others may hold up for half a minute. What is counted has no such
# room.
LONGEST_GAP = 90.0  # between two tokens of a polite client
LONGEST_HEALTH = 60.0
_REST_SECONDS = 90.0
_CLIENTS_SECONDS = 400.0  # for clients to end after their time
# Pools of threads grow to their bounds, which do not depend on clients.
_POOL_THREADS = 16
# What a process may grow by after the first rounds, in which allocators reach their sizes.
GROWN_MIB = 32.0
_WARM_UP = 0.25  # of all rounds
_ROUND_SECONDS = 30.0
_HEALTH_PAUSE = 0.2
_CLIENTS = Path(__file__).parent / "soak_clients.py"
_HISTOGRAMS_OF_ENDED = (
    "e2e_request_latency_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "request_params_n",
)
# Short limits, and answers that are the same to the bit whatever happens around them.
_OPTIONS = (
    *("--property", "batch_invariant=true"),
    *("--scheduler", "max_num_seqs=32", "--max-queue", "2000", "--metrics-prefix", "vllm"),
    *("--head-timeout", "2s", "--body-timeout", "3s", "--stall-timeout", "3s"),
)


@dataclass
class Findings:
    """What must not be is in `problems`, what happened in `counts`."""

    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    longest_gap: float = 0.0
    longest_health: float = 0.0
    resident_mib: list[float] = field(default_factory=list)  # at rest after each round

    @property
    def grown_mib(self) -> float:
        """Since the first rounds."""
        first = int(len(self.resident_mib) * _WARM_UP)
        return self.resident_mib[-1] - self.resident_mib[first] if self.resident_mib else 0.0

    def add(self, report: dict[str, Any]) -> None:
        self.problems += report["problems"]
        self.counts.update(report["counts"])
        self.longest_gap = max(self.longest_gap, report["longest_gap"])


def soak(model: Path, seconds: float, seed: int) -> Findings:
    """The model's context has room for 4,000 tokens, and its template has tools."""
    findings = Findings()
    with started(model, *_OPTIONS, command=WATCHED_COMMAND) as server:
        rounds = max(2, round(seconds / _ROUND_SECONDS))
        with httpx.Client(base_url=server.url, timeout=_REST_SECONDS) as client:
            load = _Load(server, client, findings)
            for number in range(rounds):
                if not findings.problems:
                    load.run_round(seconds / rounds, f"{seed} {number}")
        server.process.send_signal(signal.SIGTERM)
        code = server.ended()
        if code != 0:
            findings.problems.append(f"the server ended with {code}")
        findings.problems += [f"the server wrote {line[:2000]}" for line in server.failures()]
    if findings.grown_mib > GROWN_MIB:
        findings.problems.append(f"memory at rest grew: {findings.resident_mib} MiB")
    if findings.longest_gap > LONGEST_GAP:
        findings.problems.append(f"a client waited {findings.longest_gap:.1f} s for a token")
    if findings.longest_health > LONGEST_HEALTH:
        findings.problems.append(f"/health took {findings.longest_health:.1f} s")
    return findings


class _Load:
    """Rounds of clients, each of which ends with a server at rest."""

    def __init__(self, server: Process, client: httpx.Client, findings: Findings) -> None:
        self._server = server
        self._findings = findings
        self._client = client
        self._expected = alone(server.url)
        self._metrics: dict[str, float] = {}
        self._wait_for("a request or a block is left before all", self._is_at_rest)
        self._tasks = server.num_tasks()
        self._descriptors = server.num_descriptors()
        self._threads = server.num_threads()

    def run_round(self, seconds: float, seed: str) -> None:
        with self._health_watched(), ThreadPoolExecutor(2) as pool:
            kinds = pool.map(lambda kind: self._clients(kind, seconds, seed), ("rude", "polite"))
            for report in kinds:
                self._findings.add(report)
        server, findings = self._server, self._findings
        self._wait_for("a request or a block is left", self._is_at_rest)
        self._wait_for("a task is left", lambda: server.num_tasks() <= self._tasks)
        self._wait_for(
            "a descriptor is left", lambda: server.num_descriptors() <= self._descriptors
        )
        most_threads = self._threads + _POOL_THREADS
        self._wait_for("a thread is left", lambda: server.num_threads() <= most_threads)
        findings.problems += self._wrong_metrics()
        findings.resident_mib.append(round(server.resident_mib(), 1))

    def _clients(self, kind: str, seconds: float, seed: str) -> dict[str, Any]:
        order = {"url": self._server.url, "seconds": seconds, "seed": seed, "kind": kind}
        order["expected"] = self._expected
        done = subprocess.run(
            [sys.executable, str(_CLIENTS)],
            input=json.dumps(order),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=seconds + _CLIENTS_SECONDS,
        )
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    @contextmanager
    def _health_watched(self) -> Iterator[None]:
        is_over = threading.Event()

        def watch() -> None:
            while not is_over.wait(_HEALTH_PAUSE):
                begin = time.monotonic()
                try:
                    self._get("/health")
                except httpx.HTTPError as error:
                    self._findings.problems.append(f"/health: {type(error).__name__}: {error}")
                    return
                taken = time.monotonic() - begin
                self._findings.longest_health = max(self._findings.longest_health, taken)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            is_over.set()
            watcher.join()

    def _wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        try:
            eventually(condition, _REST_SECONDS)
        except AssertionError:
            self._findings.problems.append(what)

    def _get(self, path: str) -> httpx.Response:
        """On a connection that is over afterwards."""
        return self._client.get(path, headers={"connection": "close"}).raise_for_status()

    def _is_at_rest(self) -> bool:
        """Every block is free or kept for prefixes, and none is missing."""
        view = self._get("/cache").json()
        by_state: Counter[str] = Counter()
        for state, count in zip(view["blocks"][::2], view["blocks"][1::2], strict=True):
            by_state[view["states"][state]] += count
        is_idle = not (view["running"] or view["queued"] or view["preempted"])
        return is_idle and by_state["free"] + by_state["cached"] == by_state.total() > 0

    def _wrong_metrics(self) -> list[str]:
        """At rest. Metrics count what clients saw, and agree with each other."""
        found = _samples(self._get("/metrics").text)
        wrong = []
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
            if found[name]:
                wrong.append(f"at rest {name} is {found[name]}")
        counts = {name: found[f"{name}_count"] for name in _HISTOGRAMS_OF_ENDED}
        if len(set(counts.values())) != 1:
            wrong.append(f"as many requests ended as {counts} say")
        if found["request_generation_tokens_sum"] != found["generation_tokens_total"]:
            wrong.append("tokens of requests are not all tokens")
        if found["time_to_first_token_seconds_count"] > counts["e2e_request_latency_seconds"]:
            wrong.append("more requests have begun than have ended")
        if found["prefix_cache_hits_total"] > found["prefix_cache_queries_total"]:
            wrong.append("more tokens were found in the cache than looked up")
        whole = sum(self._findings.counts[name] for name in ("polite", "patient"))
        if found["http_requests_total 200"] < whole:
            wrong.append(f"{whole} clients got answers, and {found} say fewer")
        failed = {each: count for each, count in found.items() if " 5" in each and count}
        if failed:
            wrong.append(f"answers that nobody should get: {failed}")
        fallen = [
            name
            for name, value in self._metrics.items()
            if re.search(r"_(total|count|sum)\b", name) and found[name] < value
        ]
        if fallen:
            wrong.append(f"counters that fell: {fallen}")
        self._metrics = found
        return wrong


def _samples(text: str) -> dict[str, float]:
    """By name, added up over labels; of answers also by name and status."""
    found: defaultdict[str, float] = defaultdict(float)
    for line in text.splitlines():
        match = re.fullmatch(r"vllm:(\w+)(?:\{(.*)\})? (\S+)", line)
        if match is None or match[1].endswith(("_bucket", "_created")):
            continue
        value = float(match[3])
        found[match[1]] += value
        status = re.search(r'status="(\d+)"', match[2] or "")
        if status is not None:
            found[f"{match[1]} {status[1]}"] += value
    return found
