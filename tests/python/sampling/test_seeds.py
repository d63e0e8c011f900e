"""One seed, one text: alone, in a batch, after preemption, with any prefill chunks and threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import batching_pipeline

import pagewheel

INVARIANT = {"batch_invariant": True}
PROMPTS = [[10 + (7 * i + j) % 200 for j in range(3 + i % 40)] for i in range(64)]
WAYS: list[dict[str, Any]] = [
    {},
    {"top_p": 0.9},
    {"top_k": 20, "min_p": 0.01},
    {"typical_p": 0.8, "temperature": 1.5},
    {"xtc_probability": 0.5, "xtc_threshold": 0.05},
    {"mirostat": 2, "mirostat_tau": 3.0},
    {"dynatemp_range": 0.5, "top_n_sigma": 2.0},
]


def configs() -> list[pagewheel.GenerationConfig]:
    return [
        pagewheel.GenerationConfig(
            max_new_tokens=24,
            ignore_eos=True,
            do_sample=True,
            rng_seed=i % 5,
            **WAYS[i % len(WAYS)],
        )
        for i in range(len(PROMPTS))
    ]


def texts(pipeline: pagewheel.ContinuousBatchingPipeline) -> list[list[int]]:
    results = pipeline.generate(PROMPTS, configs())
    return [result.m_generation_ids[0] for result in results]


@pytest.fixture(scope="module")
def alone(tiny_folder: Path) -> list[list[int]]:
    pipeline = batching_pipeline(tiny_folder, INVARIANT)
    return [
        pipeline.generate([prompt], [config])[0].m_generation_ids[0]
        for prompt, config in zip(PROMPTS, configs(), strict=True)
    ]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_batch_of_64_gives_what_each_gives_alone(
    tiny_folder: Path, alone: list[list[int]], threads: int
) -> None:
    pipeline = batching_pipeline(tiny_folder, {**INVARIANT, "INFERENCE_NUM_THREADS": threads})
    assert texts(pipeline) == alone


@pytest.mark.parametrize("tokens_per_step", [16, 70])
def test_prefill_chunks_change_nothing(
    tiny_folder: Path, alone: list[list[int]], tokens_per_step: int
) -> None:
    pipeline = batching_pipeline(tiny_folder, INVARIANT, max_num_batched_tokens=tokens_per_step)
    assert texts(pipeline) == alone


def test_preempted_sequences_go_on_as_if_they_were_not(
    tiny_folder: Path, alone: list[list[int]]
) -> None:
    pipeline = batching_pipeline(
        tiny_folder, INVARIANT, num_kv_blocks=8, max_num_batched_tokens=128
    )
    assert texts(pipeline) == alone
    assert pipeline.get_metrics().preemptions > 0
