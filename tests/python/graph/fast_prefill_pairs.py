"""The same requests to a model with fast prefill and without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from conftest import F32, batching_pipeline, drain, greedy

import pagewheel

Batching = pagewheel.ContinuousBatchingPipeline
Request = tuple[list[int], pagewheel.GenerationConfig]
BACKENDS = ("native", "openvino")


@dataclass(frozen=True)
class Pair:
    fast: Batching
    slow: Batching


def make_pair(folder: Path, backend: str, **limits: object) -> Pair:
    """In f32, with `limits` as the members of both SchedulerConfigs."""
    fast, slow = (
        batching_pipeline(
            folder, {**F32, "attention_backend": backend, "fast_prefill": fast}, **limits
        )
        for fast in (True, False)
    )
    return Pair(fast, slow)


def log_probs(count: int, **options: object) -> pagewheel.GenerationConfig:
    """Greedy, with the log-probabilities of what is generated."""
    return greedy(count, logprobs=1, **options)


def submit(pipeline: Batching, requests: Iterable[Request]) -> list[pagewheel.GenerationHandle]:
    return [pipeline.add_request(i, *request) for i, request in enumerate(requests)]


def same_outputs(
    pair: Pair, run: Callable[[Batching], list[pagewheel.GenerationHandle]]
) -> list[pagewheel.GenerationOutput]:
    """What `run` makes the pipeline generate, where fast prefill makes no difference."""
    fast, slow = (
        [output for handle in run(pipeline) for output in handle.read_all()]
        for pipeline in (pair.fast, pair.slow)
    )
    assert [each.generated_ids for each in fast] == [each.generated_ids for each in slow]
    for got, expected in zip(fast, slow, strict=True):
        for name in ("generated_log_probs", "prompt_log_probs", "score"):
            np.testing.assert_allclose(
                getattr(got, name), getattr(expected, name), atol=1e-4, err_msg=name
            )
    return fast


def same_answers(pair: Pair, *requests: Request) -> list[pagewheel.GenerationOutput]:
    """The same for requests that are submitted at once."""

    def run(pipeline: Batching) -> list[pagewheel.GenerationHandle]:
        handles = submit(pipeline, requests)
        drain(pipeline)
        return handles

    return same_outputs(pair, run)
