"""What is evicted, and so every token, depends on the prompt alone: not on its prefill chunks, not
on who else is in the batch, and not on whether the prefix tree has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import F32, batching_pipeline, drain, greedy

import pagewheel
from pagewheel import AggregationMode, CacheEvictionConfig

BUDGET, BLOCK = 192, 32
# A block, half of it and one token more or less than the budget, a step and several of these.
LENGTHS = [193, 209, 224, 225, 300, 512, 513, 540, 641, 897, 1025]
POLICIES = ["norm_sum", "snapkv", "streaming", "tova", "key_diff"]


def eviction(policy: str, during_prefill: bool) -> CacheEvictionConfig:
    return CacheEvictionConfig(
        32,
        64,
        BUDGET,
        AggregationMode.NORM_SUM,
        apply_rotation=True,
        position_limit=1,  # keys rotate with each decision
        policy=policy,
        evict_during_prefill=during_prefill,
    )


def make_pipeline(
    folder: Path, config: CacheEvictionConfig, properties: dict[str, str] = F32, **limits: object
) -> pagewheel.ContinuousBatchingPipeline:
    limits = {"num_kv_blocks": 100, **limits}
    return batching_pipeline(
        folder, properties, use_cache_eviction=True, cache_eviction_config=config, **limits
    )


def tokens(count: int, largest: int = 260) -> list[int]:
    return [int(t) for t in np.random.default_rng(1).integers(4, largest, count)]


def generate(
    pipeline: pagewheel.ContinuousBatchingPipeline, prompts: list[list[int]], count: int
) -> list[pagewheel.GenerationOutput]:
    handles = [
        pipeline.add_request(i, prompt, greedy(count, logprobs=1))
        for i, prompt in enumerate(prompts)
    ]
    drain(pipeline)
    return [handle.read_all()[0] for handle in handles]


def ids(outputs: list[pagewheel.GenerationOutput]) -> list[list[int]]:
    return [output.generated_ids for output in outputs]


@pytest.mark.parametrize("during_prefill", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_tokens_do_not_depend_on_the_prefill_chunks(
    tiny_folder: Path, policy: str, during_prefill: bool
) -> None:
    config = eviction(policy, during_prefill)
    prompts = [tokens(length) for length in LENGTHS]
    whole = make_pipeline(tiny_folder, config, max_num_batched_tokens=4096)
    expected = [ids(generate(whole, [prompt], 3))[0] for prompt in prompts]
    for step in (512, 64, 7):
        in_chunks = make_pipeline(tiny_folder, config, max_num_batched_tokens=step)
        for prompt, wanted in zip(prompts, expected, strict=True):
            assert ids(generate(in_chunks, [prompt], 3)) == [wanted], (len(prompt), step)


@pytest.mark.parametrize("during_prefill", [False, True])
def test_tokens_do_not_depend_on_who_else_is_in_the_batch(
    tiny_folder: Path, during_prefill: bool
) -> None:
    """In a pool that is too small for all of them as well."""
    config = eviction("norm_sum", during_prefill)
    prompts = [tokens(length) for length in LENGTHS]
    alone = make_pipeline(tiny_folder, config)
    expected = [ids(generate(alone, [prompt], 3))[0] for prompt in prompts]
    for num_blocks in (300, 40):
        for step in (100, 33):
            limits = {"max_num_batched_tokens": step, "num_kv_blocks": num_blocks}
            together = make_pipeline(tiny_folder, config, **limits)
            assert ids(generate(together, prompts, 3)) == expected, limits


@pytest.mark.parametrize("during_prefill", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_prompt_twice_equals_cold_in_the_default_precision(
    tiny_folder: Path, policy: str, during_prefill: bool
) -> None:
    """Bit by bit: with a u8 cache a rounding in a score is enough to keep other tokens."""
    config = eviction(policy, during_prefill)
    for length in (160, 321, 700):
        pipeline = make_pipeline(tiny_folder, config, {}, enable_prefix_caching=True)
        cold, warm, again = (generate(pipeline, [tokens(length)], 60)[0] for _ in range(3))
        assert pipeline.get_metrics().prefix_cache_hit_tokens > 2 * 150
        for repeated in (warm, again):
            assert repeated.generated_ids == cold.generated_ids, length
            assert repeated.generated_log_probs == cold.generated_log_probs, length


def test_a_real_prompt_twice_equals_cold_in_the_default_precision(shallow_folder: Path) -> None:
    for policy, length in (("norm_sum", 321), ("tova", 300)):
        config = eviction(policy, False)
        pipeline = make_pipeline(shallow_folder, config, {}, enable_prefix_caching=True)
        prompt = tokens(length, 40_000)
        cold, warm = (generate(pipeline, [prompt], 20)[0] for _ in range(2))
        assert warm.generated_ids == cold.generated_ids
        assert warm.generated_log_probs == cold.generated_log_probs
