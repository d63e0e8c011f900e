"""The order of measurements and what a set of rounds says."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.load import Load

Sample = dict[str, float]


@dataclass(frozen=True)
class Round:
    """Every peer measured once, one after the other, in `order`."""

    number: int
    attempt: int
    order: list[str]
    samples: dict[str, Sample]
    loads: dict[str, Load]
    disturbed: str | None


@dataclass(frozen=True)
class Summary:
    """One metric of one peer over the rounds that count.

    `ratio` is the median over rounds of this peer's value over the first peer's
    in the same round, so slow drifts of the machine cancel.
    """

    median: float
    low: float
    high: float
    quartile_low: float
    quartile_high: float
    ratio: float
    ratio_low: float
    ratio_high: float
    count: int


@dataclass
class ScenarioResult:
    """All rounds of a scenario, repeated ones included."""

    name: str
    rounds: list[Round] = field(default_factory=list)


def order_of(peers: Sequence[str], number: int) -> list[str]:
    """Who goes when in round `number` (from 0): A B, B A, A B...; three or more rotate as well."""
    count = len(peers)
    shift = (number // 2) % count
    rotated = [*peers[shift:], *peers[:shift]]
    return rotated if number % 2 == 0 else rotated[::-1]


def counted(rounds: Sequence[Round], allow_disturbed: bool) -> list[Round]:
    """The last attempt of each round; disturbed ones only where allowed."""
    last = {one.number: one for one in rounds}
    return [one for one in last.values() if allow_disturbed or one.disturbed is None]


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def summarise(rounds: Sequence[Round], peers: Sequence[str], metric: str) -> dict[str, Summary]:
    """Per peer, over rounds that each hold a sample of every peer; empty without rounds."""
    if not rounds:
        return {}
    result = {}
    for peer in peers:
        values = [one.samples[peer][metric] for one in rounds]
        ratios = [one.samples[peer][metric] / one.samples[peers[0]][metric] for one in rounds]
        first, third = _quartiles(values)
        result[peer] = Summary(
            median=statistics.median(values),
            low=min(values),
            high=max(values),
            quartile_low=first,
            quartile_high=third,
            ratio=statistics.median(ratios),
            ratio_low=min(ratios),
            ratio_high=max(ratios),
            count=len(values),
        )
    return result
