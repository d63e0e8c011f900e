"""Numbers of a load: percentiles of what clients saw, throughput, and goodput at a goal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pagewheel.bench_serve.call import Call
from pagewheel.bench_serve.run import Measured

PERCENTILES = (50, 90, 95, 99)

# A goal's name, and the seconds of a call that it bounds.
GOALS: Mapping[str, Callable[[Call], float | None]] = {
    "ttft": lambda call: call.first_token_seconds,
    "tpot": lambda call: call.seconds_per_token,
    "e2e": lambda call: call.seconds,
}


@dataclass(frozen=True)
class Distribution:
    """A distribution of seconds. All members are None where nothing was measured."""

    count: int
    mean: float | None
    max: float | None
    percentiles: Mapping[str, float | None]

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Distribution:
        known = [value for value in values if value is not None]
        if not known:
            return cls(0, None, None, {f"p{each}": None for each in PERCENTILES})
        found = np.percentile(known, PERCENTILES)
        percentiles = {
            f"p{each}": float(value) for each, value in zip(PERCENTILES, found, strict=True)
        }
        return cls(len(known), float(np.mean(known)), max(known), percentiles)


@dataclass(frozen=True)
class Summary:
    """Numbers of one load. Rates are over its whole duration and count what was answered whole."""

    load: str
    rate: float | None
    concurrency: int | None
    is_partial: bool
    seconds: float
    num_requests: int  # that ended, well or not
    num_answered: int
    num_cut_off: int  # under way when the run was stopped
    errors: Mapping[str, int]
    error_messages: Mapping[str, str]  # of each kind the first
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    counts_are_given: bool  # by the server; else a piece of a stream counts as a token
    requests_per_second: float
    tokens_per_second: float
    goals: Mapping[str, float]
    num_within_goals: int
    goodput: float | None  # requests a second that met all goals
    first_token: Distribution
    between_pieces: Distribution
    per_token: Distribution
    whole: Distribution
    lateness: Distribution  # of sending, after the moment that was due
    client_cpu_seconds: float

    @property
    def client_load(self) -> float:
        """Share of one core that this program took: near 1 it is what was measured."""
        return self.client_cpu_seconds / self.seconds if self.seconds else 0.0


def summarise(measured: Measured, goals: Mapping[str, float]) -> Summary:
    """Counts what ended. A call without a second token meets every goal of time per token."""
    calls = measured.calls
    answered = [call for call in calls if call.error is None]
    seconds = measured.seconds or 1e-9
    tokens = sum(call.completion_tokens for call in answered)
    within = sum(_meets(call, goals) for call in answered)
    failed = [call for call in calls if call.error is not None]
    return Summary(
        load=measured.load.name,
        rate=measured.load.rate,
        concurrency=measured.load.concurrency,
        is_partial=measured.is_partial,
        seconds=measured.seconds,
        num_requests=len(calls),
        num_answered=len(answered),
        num_cut_off=measured.num_cut_off,
        errors=dict(Counter(str(call.error) for call in failed)),
        error_messages={str(call.error): call.message for call in reversed(failed)},
        prompt_tokens=sum(call.prompt_tokens for call in answered),
        cached_tokens=sum(call.cached_tokens for call in answered),
        completion_tokens=tokens,
        counts_are_given=all(call.counts_are_given for call in answered),
        requests_per_second=len(answered) / seconds,
        tokens_per_second=tokens / seconds,
        goals=dict(goals),
        num_within_goals=within,
        goodput=within / seconds if goals else None,
        first_token=Distribution.of(call.first_token_seconds for call in answered),
        between_pieces=Distribution.of(gap for call in answered for gap in call.gaps),
        per_token=Distribution.of(call.seconds_per_token for call in answered),
        whole=Distribution.of(call.seconds for call in answered),
        lateness=Distribution.of(call.sent - call.due for call in calls),
        client_cpu_seconds=measured.client_cpu_seconds,
    )


def _meets(call: Call, goals: Mapping[str, float]) -> bool:
    return all((GOALS[name](call) or 0.0) <= most for name, most in goals.items())


def as_json(summary: Summary, calls: Sequence[Call]) -> dict[str, Any]:
    """Writes a load with its requests, without their texts."""
    return {
        **asdict(summary),
        "client_load": summary.client_load,
        "requests": [_row(call) for call in calls],
    }


def _row(call: Call) -> dict[str, Any]:
    row = {
        "conversation": call.conversation,
        "question": call.question,
        "due": round(call.due, 6),
        "sent": round(call.sent, 6),
        "first_token_seconds": call.first_token_seconds,
        "seconds": call.seconds,
        "prompt_tokens": call.prompt_tokens,
        "cached_tokens": call.cached_tokens,
        "completion_tokens": call.completion_tokens,
    }
    return row if call.error is None else {**row, "error": call.error, "message": call.message}
