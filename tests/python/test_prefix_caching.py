"""Shared prefixes save work and change no token (f32)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from conftest import F32, greedy

import pagewheel

BLOCK = 32


def make_pipeline(folder: Path, **limits: object) -> pagewheel.ContinuousBatchingPipeline:
    scheduler = pagewheel.SchedulerConfig()
    for name, value in {"enable_prefix_caching": True, "num_kv_blocks": 400, **limits}.items():
        setattr(scheduler, name, value)
    return pagewheel.ContinuousBatchingPipeline(folder, scheduler, "CPU", F32)


def drain(pipeline: pagewheel.ContinuousBatchingPipeline) -> None:
    while pipeline.has_non_finished_requests():
        pipeline.step()


@pytest.fixture(scope="module")
def sharing(smollm2_folder: Path) -> pagewheel.ContinuousBatchingPipeline:
    return make_pipeline(smollm2_folder)


def test_a_prompt_that_was_seen_computes_what_is_new(
    sharing: pagewheel.ContinuousBatchingPipeline,
) -> None:
    prompt = list(range(3000, 3100))
    first = sharing.generate([prompt], greedy(10))[0]
    assert first.perf_metrics.get_num_prefix_cache_hit_tokens() == 0
    again = sharing.generate([prompt], greedy(10))[0]
    assert again.perf_metrics.get_num_prefix_cache_hit_tokens() == 99
    assert again.m_generation_ids == first.m_generation_ids
    longer = prompt + first.m_generation_ids[0] + [5, 6, 7]
    turn = sharing.add_request(0, longer, greedy(1))
    drain(sharing)
    # Of the 10 generated tokens, the last was never computed.
    assert turn.get_perf_metrics().get_num_prefix_cache_hit_tokens() == 109


def test_requests_of_one_batch_compute_their_prefix_once(smollm2_folder: Path) -> None:
    pipeline = make_pipeline(smollm2_folder)
    prefix = list(range(4000, 4200))
    handles = [pipeline.add_request(i, [*prefix, 100 + i, 7], greedy(4)) for i in range(8)]
    drain(pipeline)
    hits = [handle.get_perf_metrics().get_num_prefix_cache_hit_tokens() for handle in handles]
    assert hits == [0] + [200] * 7
    metrics = pipeline.get_metrics()
    assert metrics.prefix_cache_hit_tokens == 7 * 200
    assert metrics.prompt_tokens == 8 * 202
    assert metrics.cache_usage == 0
    assert metrics.prefix_cache_usage > 0


def test_a_salt_keeps_prefixes_apart(sharing: pagewheel.ContinuousBatchingPipeline) -> None:
    prompt = list(range(6000, 6080))
    hits = [
        sharing.generate([prompt], greedy(2, cache_salt=salt))[
            0
        ].perf_metrics.get_num_prefix_cache_hit_tokens()
        for salt in ("alice", "bob", "alice", "")
    ]
    assert hits == [0, 0, 79, 0]


def test_random_requests_give_the_same_tokens_with_and_without_caching(
    smollm2_folder: Path,
) -> None:
    """Prompts from few beginnings, in a pool that is too small, in chunks and in another order."""
    rng = random.Random(5)
    stems = [[rng.randrange(1000, 40000) for _ in range(n)] for n in (5, 32, 47, 90, 120)]
    prompts = []
    for _ in range(120):
        stem = rng.choice(stems)
        own = [rng.randrange(1000, 1003) for _ in range(rng.randint(1, 30))]
        prompts.append(stem[: rng.randint(1, len(stem))] + own)
    lengths = [rng.randint(1, 20) for _ in prompts]

    def run(order: list[int], **limits: object) -> dict[int, list[int]]:
        pipeline = make_pipeline(smollm2_folder, **limits)
        handles = {}
        for i in order:
            handles[i] = pipeline.add_request(i, prompts[i], greedy(lengths[i]))
            if rng.random() < 0.2:
                pipeline.step()
        drain(pipeline)
        assert pipeline.get_metrics().cache_usage == 0
        if limits.get("enable_prefix_caching", True):
            assert pipeline.get_metrics().prefix_cache_hit_tokens > 1000
        return {i: handle.read_all()[0].generated_ids for i, handle in handles.items()}

    order = list(range(len(prompts)))
    expected = run(order, enable_prefix_caching=False)
    rng.shuffle(order)
    assert run(order, num_kv_blocks=24, max_num_batched_tokens=70) == expected


def test_a_chat_of_the_llm_pipeline_hits_its_history(smollm2_folder: Path) -> None:
    pipeline = pagewheel.LLMPipeline(smollm2_folder, "CPU", F32)
    history = pagewheel.ChatHistory()
    history.append({"role": "user", "content": "Name a river."})
    first = pipeline.generate(history, greedy(12))
    assert first.perf_metrics.get_num_prefix_cache_hit_tokens() == 0
    history.append({"role": "assistant", "content": first.texts[0]})
    history.append({"role": "user", "content": "Another one."})
    second = pipeline.generate(history, greedy(2))
    assert second.perf_metrics.get_num_prefix_cache_hit_tokens() > 20
