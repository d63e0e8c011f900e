"""What is measured. Warm scenarios run in a worker that is loaded and stays so; cold ones
start a process of their own for every sample."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.peers.engine import Generated
from benchmarks.prompts import PromptSource
from benchmarks.rounds import Sample


class Better(StrEnum):
    """Which way a metric improves."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True)
class Metric:
    """A number a scenario gives: its key in a sample, how to print it, its unit."""

    key: str
    title: str
    unit: str
    better: Better
    #: One unit reads the weights once: a share of the memory bandwidth is shown beside it.
    reads_weights: bool = False


def metrics(unit: str, better: Better, titles: Mapping[str, str]) -> tuple[Metric, ...]:
    """Metrics with the same unit, by their keys."""
    return tuple(Metric(key, title, unit, better) for key, title in titles.items())


@dataclass(frozen=True)
class Task:
    """One call of an engine: prompts submitted at once, so many new tokens for each."""

    prompts: list[list[int]]
    new_tokens: int


@dataclass(frozen=True)
class Scenario(ABC):
    """A named set of metrics."""

    name: str
    title: str
    metrics: tuple[Metric, ...]


class WarmScenario(Scenario):
    """Tasks for a loaded engine and what their timings mean."""

    @abstractmethod
    def tasks(self, source: PromptSource) -> list[Task]:
        """What to run for one sample."""

    @abstractmethod
    def sample(self, tasks: Sequence[Task], results: Sequence[Generated]) -> Sample:
        """The metrics of one run of `tasks`."""

    def warm_up(self, source: PromptSource) -> list[Task]:
        """What to run, uncounted, first: the same shapes, fewer tokens."""
        return [Task(task.prompts, min(task.new_tokens, 8)) for task in self.tasks(source)]


class Decode(WarmScenario):
    """One request: decode tokens/s without the first token, and the time to that one."""

    PROMPT_TOKENS = 35
    NEW_TOKENS = 256

    def tasks(self, source: PromptSource) -> list[Task]:
        return [Task(source.cut([self.PROMPT_TOKENS]), self.NEW_TOKENS)]

    def sample(self, tasks: Sequence[Task], results: Sequence[Generated]) -> Sample:
        result = results[0]
        return {
            "decode": (self.NEW_TOKENS - 1) / (result.last_token - result.first_token),
            "first_token": result.first_token * 1e3,
        }


class Long(WarmScenario):
    """One request that goes on: decode tokens/s over all, and of each thousand tokens."""

    PROMPT_TOKENS = 512
    NEW_TOKENS = 6000
    PART = 1000

    def tasks(self, source: PromptSource) -> list[Task]:
        return [Task(source.cut([self.PROMPT_TOKENS]), self.NEW_TOKENS)]

    def sample(self, tasks: Sequence[Task], results: Sequence[Generated]) -> Sample:
        times = results[0].steps
        if len(times) != self.NEW_TOKENS:
            raise ValueError(
                f"{len(times)} steps made {self.NEW_TOKENS} tokens: their times are not known"
            )
        sample = {"long": (self.NEW_TOKENS - 1) / (times[-1] - times[0])}
        for first in range(0, self.NEW_TOKENS, self.PART):
            last = first + self.PART - 1
            begin = max(first - 1, 0)  # the first token of all is prefill's
            sample[f"long_{last + 1}"] = (last - begin) / (times[last] - times[begin])
        return sample


class Batch(WarmScenario):
    """So many requests at once: output tokens/s over all of them, prefill included."""

    SIZES = (1, 2, 4, 8, 16, 32, 64)
    PROMPT_TOKENS = 35
    NEW_TOKENS = 128

    def tasks(self, source: PromptSource) -> list[Task]:
        return [self.task(source, size) for size in self.SIZES]

    def task(self, source: PromptSource, size: int) -> Task:
        """The task of one size."""
        return Task(source.cut([self.PROMPT_TOKENS] * size), self.NEW_TOKENS)

    def sample(self, tasks: Sequence[Task], results: Sequence[Generated]) -> Sample:
        return {
            f"batch_{size}": size * self.NEW_TOKENS / result.last_token
            for size, result in zip(self.SIZES, results, strict=True)
        }


class Prefill(WarmScenario):
    """Prompt tokens over time to first token, for a few prompt lengths."""

    LENGTHS = (512, 2048, 6144)

    def tasks(self, source: PromptSource) -> list[Task]:
        return [Task(source.cut([length]), 1) for length in self.LENGTHS]

    def sample(self, tasks: Sequence[Task], results: Sequence[Generated]) -> Sample:
        return {
            f"prefill_{length}": length / result.first_token
            for length, result in zip(self.LENGTHS, results, strict=True)
        }


class Throughput(WarmScenario):
    """Offline work: many requests with prompts of all lengths, output tokens/s over the whole."""

    REQUESTS = 64
    SHORTEST, LONGEST = 32, 512
    NEW_TOKENS = 128

    def tasks(self, source: PromptSource) -> list[Task]:
        step = (self.LONGEST - self.SHORTEST) / (self.REQUESTS - 1)
        # Lengths in an order that mixes short and long: 23 and 64 have no common divisor.
        lengths = [
            round(self.SHORTEST + step * (23 * i % self.REQUESTS)) for i in range(self.REQUESTS)
        ]
        return [Task(source.cut(lengths), self.NEW_TOKENS)]

    def sample(self, tasks: Sequence[Task], results: Sequence[Generated]) -> Sample:
        return {"throughput": self.REQUESTS * self.NEW_TOKENS / results[0].last_token}


class SharedPrefix(WarmScenario):
    """Many requests at once that begin with the same tokens: seconds until all are answered.

    Sharing is off in the engines' adapters; README.md has the settings. Every sample has a prefix
    of its own, so that none is cached from the sample before.
    """

    REQUESTS, WARM_UP_REQUESTS = 64, 8
    SHARED_TOKENS, OWN_TOKENS, NEW_TOKENS = 1024, 64, 64
    _samples = itertools.count()

    def tasks(self, source: PromptSource) -> list[Task]:
        skipped = next(self._samples) % 1000
        _, shared, *own = source.cut(
            [skipped, self.SHARED_TOKENS, *[self.OWN_TOKENS] * self.REQUESTS]
        )
        return [Task([shared + one for one in own], self.NEW_TOKENS)]

    def warm_up(self, source: PromptSource) -> list[Task]:
        return [
            Task(task.prompts[: self.WARM_UP_REQUESTS], task.new_tokens)
            for task in super().warm_up(source)
        ]

    def sample(self, tasks: Sequence[Task], results: Sequence[Generated]) -> Sample:
        return {"shared_prefix": results[0].last_token}


class ColdScenario(Scenario):
    """Measured by starting processes; `session.py` knows how."""


DECODE = Decode(
    "decode",
    f"Decode: 1 request, {Decode.PROMPT_TOKENS} + {Decode.NEW_TOKENS} tokens",
    (
        Metric("decode", "decode", "tokens/s", Better.HIGHER, reads_weights=True),
        Metric("first_token", "first token", "ms", Better.LOWER),
    ),
)
LONG = Long(
    "long",
    f"Long: 1 request, {Long.PROMPT_TOKENS} + {Long.NEW_TOKENS} tokens",
    metrics(
        "tokens/s",
        Better.HIGHER,
        {
            "long": "decode",
            **{
                f"long_{end}": f"tokens up to {end}"
                for end in range(Long.PART, Long.NEW_TOKENS + 1, Long.PART)
            },
        },
    ),
)
BATCH = Batch(
    "batch",
    f"Batch: so many requests at once, {Batch.PROMPT_TOKENS} + {Batch.NEW_TOKENS} tokens each",
    metrics("tokens/s", Better.HIGHER, {f"batch_{n}": f"{n} at once" for n in Batch.SIZES}),
)
PREFILL = Prefill(
    "prefill",
    "Prefill: prompt tokens / time to first token",
    metrics("tokens/s", Better.HIGHER, {f"prefill_{n}": f"{n} tokens" for n in Prefill.LENGTHS}),
)
THROUGHPUT = Throughput(
    "throughput",
    f"Throughput: {Throughput.REQUESTS} requests, prompts of {Throughput.SHORTEST} to "
    f"{Throughput.LONGEST} tokens, {Throughput.NEW_TOKENS} new each",
    metrics("tokens/s", Better.HIGHER, {"throughput": "output"}),
)
SHARED_PREFIX = SharedPrefix(
    "shared_prefix",
    f"Shared prefix: {SharedPrefix.REQUESTS} requests at once, {SharedPrefix.SHARED_TOKENS} tokens "
    f"shared, {SharedPrefix.OWN_TOKENS} own, {SharedPrefix.NEW_TOKENS} new",
    metrics("s", Better.LOWER, {"shared_prefix": "all answered"}),
)
LOAD = ColdScenario(
    "load",
    "Load: start of a cold process to its first token",
    metrics("s", Better.LOWER, {"first_time": "first time", "cached": "cached"}),
)
MEMORY_REQUESTS = 32
MEMORY = ColdScenario(
    "memory",
    f"Memory: resident set, {MEMORY_REQUESTS} requests in the batch",
    metrics(
        "MiB",
        Better.LOWER,
        {"after_load": "after load", "peak_load": "peak of load", "peak_batch": "peak of batch"},
    ),
)

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (DECODE, LONG, BATCH, PREFILL, THROUGHPUT, SHARED_PREFIX, LOAD, MEMORY)
}
