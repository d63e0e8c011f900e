"""What a trace's layers held over time, as arrays to draw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pagewheel.trace.record import Trace
from pagewheel.trace.svg import decades, short

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def tokens_computed(trace: Trace) -> int:
    """Tokens that were in the cache at some time: all but the last, which was only sampled."""
    return max(len(trace.texts) - 1, 1)


def times(trace: Trace, count: int) -> Ints:
    """Gives at most `count` moments, in tokens computed, evenly spread up to the end."""
    end = tokens_computed(trace)
    return np.unique(np.linspace(1, end, min(count, end)).round().astype(np.int64))


def dropped_at(trace: Trace, layer: int) -> Ints:
    """i64 [tokens]: how many tokens were computed when each one went; beyond the end: it stayed."""
    end = tokens_computed(trace)
    when = np.full(end, end + 1, np.int64)
    for decision in trace.of_layer(layer):
        when[decision.dropped] = decision.processed
    return when


def columns_of(trace: Trace, count: int) -> Ints:
    """First token of each column, where all tokens share at most `count` columns."""
    end = tokens_computed(trace)
    columns = min(count, end)
    return np.arange(columns) * end // columns


@dataclass(frozen=True)
class Cells:
    """Shares of the tokens in each cell, f64 [rows, columns]; what is left is not computed yet."""

    held_prompt: Floats
    held_generated: Floats
    evicted: Floats


def cells(trace: Trace, when: Ints, rows: Ints, begins: Ints) -> Cells:
    """What of each column's tokens is there at each of the moments `rows`; `when`: dropped_at()."""
    end = tokens_computed(trace)
    widths = np.diff(np.append(begins, end))
    token = np.arange(end)
    prompt = token < len(trace.prompt)
    shares: list[list[Floats]] = [[], [], []]
    for now in rows:
        computed = token < now
        evicted = computed & (when <= now)
        held = computed & ~evicted
        for share, mask in zip(shares, (held & prompt, held & ~prompt, evicted), strict=True):
            share.append(np.add.reduceat(mask.astype(np.int64), begins) / widths)
    return Cells(*(np.array(share) for share in shares))


def mean_scores(trace: Trace, layer: int, rows: Ints, begins: Ints) -> Floats:
    """f64 [rows, columns]: mean score of the column's tokens at the latest decision; NaN: none."""
    decisions = trace.of_layer(layer)
    processed = np.array([decision.processed for decision in decisions])
    result = np.full((len(rows), len(begins)), np.nan)
    latest = np.searchsorted(processed, rows, side="right") - 1
    for at in np.unique(latest[latest >= 0]):
        column = np.searchsorted(begins, decisions[at].positions, side="right") - 1
        counts = np.bincount(column, minlength=len(begins))
        sums = np.bincount(column, weights=decisions[at].scores, minlength=len(begins))
        result[latest == at] = np.divide(
            sums, counts, out=np.full(len(begins), np.nan), where=counts > 0
        )
    return result


_MOST_DECISIONS = 1000  # that the scale looks at


class ScoreScale:
    """The logarithmic scale that all of a trace's scores share, from `low` to `high`."""

    def __init__(self, trace: Trace) -> None:
        every = max(1, len(trace.decisions) // _MOST_DECISIONS)
        seen = [np.array(decision.scores, np.float64) for decision in trace.decisions[::every]]
        scores = np.concatenate(seen) if seen else np.zeros(0)
        positive = scores[np.isfinite(scores) & (scores > 0)]
        self.empty = len(positive) == 0  # the policy does not look at attention
        # A few tokens, the first one above all, receive most: they are not to pale the others.
        low, high = (0.1, 1.0) if self.empty else np.percentile(positive, [1, 99])
        self.low, self.high = float(low), float(max(high, 1.01 * low))

    def place(self, scores: ArrayLike) -> Floats:
        """Maps scores to 0 (low) to 1 (high), those beyond them clipped; NaN stays."""
        values = np.asarray(scores, np.float64).clip(self.low, self.high)
        return np.log(values / self.low) / np.log(self.high / self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """Scores to write at the scale: both ends, and powers of ten that are not too near them."""
        span = np.log(self.high / self.low)
        inner = [
            score
            for score in decades(self.low, self.high)
            if min(np.log(score / self.low), np.log(self.high / score)) > 0.14 * span
        ]
        ends = [(self.low, f"≤ {short(self.low)}"), (self.high, f"≥ {short(self.high)}")]
        return sorted([*ends, *((score, short(score)) for score in inner)])


def layer_rotations(trace: Trace, layer: int) -> int:
    """Keys that attention rotated, counted at each decision of the layer."""
    return sum(delta != 0 for decision in trace.of_layer(layer) for delta in decision.deltas)


def layer_score(trace: Trace, layer: int) -> float:
    """Mean score of what the layer held, over all decisions."""
    means = [np.mean(one.scores) for one in trace.of_layer(layer) if one.scores]
    return float(np.mean(means)) if means else 0.0
