"""Whether a request is slowed by others whose grammars are expensive.

    python -m benchmarks.hostile_grammars MODEL_FOLDER

One greedy request of a given number of tokens runs beside others: none, plain ones, ones with a
usual JSON schema, or ones with a grammar whose masks take long. Others that end are replaced. The
time of adding them is left out, but not what their prompts take. There are no drafts. Ways
alternate. The median of the rounds is shown, beside the request alone and beside plain ones, with
how the others ended.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections import Counter
from typing import Any

import pagewheel
from benchmarks.grammar_generation import PROMPT, config

HOSTILE = {
    "states": pagewheel.StructuredOutputConfig.Regex("(?:.*a.{60}){20}"),
    "ambiguous": pagewheel.StructuredOutputConfig.EBNF('root ::= ("a" | "a" "a" | root root)*'),
    "counts": pagewheel.StructuredOutputConfig.Regex("(a|aa|aaa|b){900,1000}"),
}


def other_config(way: str, tokens: int) -> Any:
    if way in ("plain", "schema"):
        return config(pagewheel, None if way == "plain" else "records", tokens)
    made = config(pagewheel, None, tokens)
    made.ignore_eos = False
    made.structured_output_config = pagewheel.StructuredOutputConfig(
        structural_tags_config=HOSTILE[way]
    )
    return made


class Load:
    """Keeps a number of other requests running."""

    def __init__(self, pipeline: Any, way: str, count: int, tokens: int, ids: Any) -> None:
        self.ends: Counter[str] = Counter()
        self._pipeline, self._ids = pipeline, ids
        self._config = None if way == "none" else other_config(way, tokens)
        self._handles: list[Any] = []
        self._count = count if self._config is not None else 0

    def fill(self) -> None:
        """Replaces those that ended."""
        for handle in list(self._handles):
            if handle.get_status() != pagewheel.GenerationStatus.RUNNING:
                self.ends[str(handle.get_status()).rpartition(".")[2]] += 1
                self._handles.remove(handle)
        while len(self._handles) < self._count:
            try:
                handle = self._pipeline.add_request(next(self._ids), PROMPT, self._config)
            except (ValueError, RuntimeError) as error:
                self.ends[type(error).__name__] += 1
                self._count = 0
                return
            self._handles.append(handle)

    def stop(self) -> None:
        for handle in self._handles:
            handle.stop()


def seconds(pipeline: Any, way: str, count: int, tokens: int, ids: Any) -> tuple[float, Load]:
    """Of the request's tokens behind its first one."""
    load = Load(pipeline, way, count, 100_000, ids)
    load.fill()
    for _ in range(5):
        pipeline.step()
    handle = pipeline.add_request(next(ids), PROMPT, config(pagewheel, None, tokens))
    times, adding = [], 0.0
    while handle.get_status() == pagewheel.GenerationStatus.RUNNING:
        begin = time.perf_counter()
        load.fill()
        adding += time.perf_counter() - begin
        pipeline.step()
        if handle.can_read():
            handle.read()
            times.append(time.perf_counter() - adding)
    load.stop()
    while pipeline.has_non_finished_requests():
        pipeline.step()
    return times[-1] - times[0], load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="model folder")
    parser.add_argument("--others", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()

    scheduler = pagewheel.SchedulerConfig()
    scheduler.cache_size = 1
    scheduler.speculation = "off"
    pipeline = pagewheel.ContinuousBatchingPipeline(arguments.model, scheduler, "CPU")
    ids = itertools.count()
    ways = ["none", "plain", "schema", *HOSTILE]
    times: dict[str, list[float]] = {way: [] for way in ways}
    ends: dict[str, Counter[str]] = {way: Counter() for way in ways}
    for _ in range(arguments.rounds + 1):
        for way in ways:
            took, load = seconds(pipeline, way, arguments.others, arguments.tokens, ids)
            times[way].append(took)
            ends[way] += load.ends
    medians = {way: statistics.median(times[way][1:]) for way in ways}
    for way, median in medians.items():
        ratios = "  ".join(f"{median / medians[beside]:6.3f}" for beside in ("none", "plain"))
        print(f"{way:12}{median * 1000:8.0f} ms  {ratios}  {dict(ends[way])}")


if __name__ == "__main__":
    main()
