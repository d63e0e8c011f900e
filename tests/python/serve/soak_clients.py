"""Clients of a server in a process of their own: python soak_clients.py < ORDER > REPORT.

Both are JSON. The order has `url`, `seconds`, `seed` and `kind`, polite or rude; for polite ones
`expected`, what each of their requests gives alone. The report has `problems`, `counts` and
`longest_gap`.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import rude_clients
from polite_clients import PoliteClient

# What they do, how they are called, and how many do it at once.
_RUDE = (
    (rude_clients.leave_at_some_moment, "left", 64),
    (rude_clients.ask_ahead_and_leave, "asked ahead", 4),
    (rude_clients.read_slowly, "slow readers", 4),
    (rude_clients.send_slowly, "slow senders", 4),
    (rude_clients.send_nonsense, "nonsense", 2),
    (rude_clients.hold_connections, "thousands of connections", 1),
)
# Priority, how they are called, how many. Those below the rude ones' wait until these are gone.
_POLITE = ((2, "polite", 6), (-2, "patient", 1))
_MOST_DESCRIPTORS = 8192


@dataclass(frozen=True)
class Target:
    """Where the server is."""

    url: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


class Clients:
    """A thread each, until the time is over or one of them finds something wrong."""

    def __init__(self, seconds: float, seed: int) -> None:
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        self._end = time.monotonic() + seconds
        self._seed = seed
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def add(self, name: str, work: Callable[[random.Random], str | None]) -> None:
        """`work` returns what is wrong, or None, or raises."""
        number = len(self._threads)
        thread = threading.Thread(target=self._repeat, args=(name, work, number))
        self._threads.append(thread)

    def run(self) -> None:
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()

    def _repeat(self, name: str, work: Callable[[random.Random], str | None], number: int) -> None:
        chance = random.Random(f"{self._seed} {number}")
        while time.monotonic() < self._end and not self.problems:
            try:
                problem = work(chance)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            with self._lock:
                self.counts[name] += 1
                if problem is not None:
                    self.problems.append(f"{name}: {problem}")


def _rude(
    work: Callable[[Target, random.Random], None], target: Target
) -> Callable[[random.Random], None]:
    def done(chance: random.Random) -> None:
        # A server that answers early may close while the rest is still on its way.
        with suppress(ConnectionError):
            work(target, chance)

    return done


def run(order: dict[str, Any]) -> dict[str, Any]:
    clients = Clients(order["seconds"], order["seed"])
    polite: list[PoliteClient] = []
    if order["kind"] == "rude":
        for work, name, count in _RUDE:
            for _ in range(count):
                clients.add(name, _rude(work, Target(order["url"])))
    else:
        for priority, name, count in _POLITE:
            for _ in range(count):
                polite.append(PoliteClient(order["url"], order["expected"], priority))
                clients.add(name, polite[-1].ask)
    clients.run()
    for client in polite:
        client.close()
    # Those with the lowest priority may wait for long.
    gaps = [client.longest_gap for client in polite[: _POLITE[0][2]]]
    return {
        "problems": clients.problems,
        "counts": clients.counts,
        "longest_gap": max(gaps, default=0.0),
    }


def _allow_many_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _MOST_DESCRIPTORS:
        most = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


if __name__ == "__main__":
    _allow_many_descriptors()
    print(json.dumps(run(json.load(sys.stdin))))
