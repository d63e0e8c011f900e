"""Beams in little room, under eviction or ended early: same results, and all blocks come back."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beams import Batching, make_pipeline, random_prompt, run
from conftest import F32, greedy
from eviction_replay import Recorded, Replay, replayed
from transformers import LlamaForCausalLM

import pagewheel
from pagewheel import GenerationFinishReason, GenerationStatus


@pytest.fixture(scope="module")
def batching(tiny_folder: Path) -> Batching:
    return make_pipeline(tiny_folder, num_kv_blocks=400)


def load(pipeline: Batching, prompts: list[list[int]], configs: list[Any]) -> list[list[Any]]:
    handles = [
        pipeline.add_request(i, prompt, config)
        for i, (prompt, config) in enumerate(zip(prompts, configs, strict=True))
    ]
    while pipeline.has_non_finished_requests():
        pipeline.step()
    return [[(o.generated_ids, o.finish_reason) for o in h.read_all()] for h in handles]


@pytest.mark.parametrize("caching", [False, True])
def test_results_do_not_depend_on_the_room_there_is(
    tiny_folder: Path, batching: Batching, caching: bool
) -> None:
    """Preempted beams, in a pool that at times holds fewer beams than one request has."""
    rng = random.Random(4)
    stem = [rng.randrange(4, 267) for _ in range(100)]
    prompts = [stem[: rng.randint(0, 100)] + random_prompt(rng) for _ in range(8)]
    configs = [
        greedy(
            rng.randint(30, 90),
            num_beams=beams,
            num_return_sequences=beams,
            num_beam_groups=2 if beams == 4 else 1,
            diversity_penalty=0.3 if beams == 4 else 0.0,
        )
        for beams in (2, 3, 4, 6, 2, 3, 4, 6)
    ]
    expected = load(batching, prompts, configs)
    small = make_pipeline(
        tiny_folder,
        num_kv_blocks=11,
        max_num_batched_tokens=40,
        max_num_seqs=6,
        enable_prefix_caching=caching,
    )
    assert load(small, prompts, configs) == expected
    statistics = small.get_statistics()
    assert statistics.num_preemptions > 10
    assert statistics.num_used_blocks == statistics.num_running == statistics.num_preempted == 0
    if caching:
        small.get_prefix_cache().clear()
        small.step()
    assert small.get_statistics().num_free_blocks == 11


def test_beams_share_blocks(tiny_folder: Path) -> None:
    """Eight beams after a prompt of ten blocks hold the prompt once, and give all back."""
    pipeline = make_pipeline(tiny_folder, num_kv_blocks=100)
    prompt = [random.Random(5).randrange(4, 267) for _ in range(320)]
    handle = pipeline.add_request(0, prompt, greedy(40, num_beams=8))
    most = 0
    while pipeline.has_non_finished_requests():
        pipeline.step()
        most = max(most, pipeline.get_statistics().num_used_blocks)
    assert handle.get_status() == GenerationStatus.FINISHED
    assert 11 <= most <= 10 + 8 * 2
    assert pipeline.get_statistics().num_free_blocks == 100


@pytest.mark.parametrize(
    ("end", "status", "reason"),
    [
        ("stop", GenerationStatus.STOP, GenerationFinishReason.NONE),
        ("cancel", GenerationStatus.CANCEL, GenerationFinishReason.NONE),
        ("with a reason", GenerationStatus.STOP, GenerationFinishReason.LENGTH),
    ],
)
def test_what_is_ended_keeps_what_there_is(
    tiny_folder: Path, end: str, status: GenerationStatus, reason: GenerationFinishReason
) -> None:
    pipeline = make_pipeline(tiny_folder, num_kv_blocks=100)
    prompt = random_prompt(random.Random(6))
    handle = pipeline.add_request(0, prompt, greedy(50, num_beams=4, num_return_sequences=3))
    for _ in range(5):
        pipeline.step()
    if end == "cancel":
        handle.cancel()
    else:
        handle.stop(reason)
    pipeline.step()
    assert handle.get_status() == status
    outputs = handle.outputs_so_far()
    shorter = run(
        pipeline, prompt, num_beams=4, num_return_sequences=3, max_new_tokens=5, ignore_eos=True
    )
    assert [output.generated_ids for output in outputs] == shorter.m_generation_ids
    assert [output.score for output in outputs] == pytest.approx(shorter.m_scores, abs=1e-5)
    assert {output.finish_reason for output in outputs} == {reason}
    assert pipeline.get_statistics().num_free_blocks == 100


def test_what_is_cancelled_before_it_began_has_nothing(tiny_folder: Path) -> None:
    pipeline = make_pipeline(tiny_folder, num_kv_blocks=100)
    handle = pipeline.add_request(0, [5, 6], greedy(50, num_beams=4, num_return_sequences=3))
    handle.cancel()
    pipeline.step()
    assert handle.get_status() == GenerationStatus.CANCEL
    assert all(output.generated_ids == [] for output in handle.outputs_so_far())


class RecordedByPosition(Recorded):
    """What goes depends on how far a sequence is, and so is the same for beams of one length."""

    def __init__(self) -> None:
        super().__init__()
        self.by_position: dict[tuple[int, int], tuple[int, int, np.ndarray]] = {}

    def drop(self, view: pagewheel.EvictionView, count: int) -> list[int]:
        key = (int(view.positions[-1]), view.layer)
        self.random = np.random.default_rng(key)
        chosen = super().drop(view, count)
        self.by_position[key] = self.decisions.pop()
        return chosen


@pytest.mark.parametrize("granularity", ["block", "token"])
def test_beams_that_evict_equal_a_replay_of_each_alone(
    tiny_folder: Path, tiny_reference: LlamaForCausalLM, granularity: str
) -> None:
    """Beams share blocks that were generated; survivors of one must not move in another's."""
    policy = RecordedByPosition()
    scheduler = pagewheel.SchedulerConfig()
    scheduler.num_kv_blocks = 60
    scheduler.use_cache_eviction = True
    scheduler.cache_eviction_config = pagewheel.CacheEvictionConfig(
        *(32, 32, 128),
        policy=policy,
        granularity=granularity,
        apply_rotation=True,
        position_limit=200,
    )
    pipeline = Batching(tiny_folder, scheduler, "CPU", F32)
    prompt = [random.Random(7).randrange(4, 267) for _ in range(50)]
    config = greedy(230, num_beams=4, num_return_sequences=4, logprobs=1)
    handle = pipeline.add_request(0, prompt, config)
    while pipeline.has_non_finished_requests():
        pipeline.step()
        assert pipeline.get_statistics().num_used_blocks <= 4 * 5
    assert pipeline.get_statistics().num_free_blocks == 60
    decisions = [policy.by_position[key] for key in sorted(policy.by_position)]
    of_layer = {"block": 5, "token": 19}[granularity]  # every 32 tokens, or every 8
    assert len(decisions) == tiny_reference.config.num_hidden_layers * of_layer
    for output in handle.outputs_so_far():
        replay = Replay(tiny_reference, True, limit=200, next_end=160)
        rows = replayed(replay, prompt, output.generated_ids, decisions)
        assert replay.times_closed > 0
        expected = rows[np.arange(230), output.generated_ids]
        np.testing.assert_allclose(output.generated_log_probs, expected, atol=1e-3)


def test_scores_of_attention_fork_with_the_beams(tiny_folder: Path) -> None:
    """Groups of one beam, hardly diverse, are greedy: each evicts as a sequence alone."""
    scheduler = pagewheel.SchedulerConfig()
    scheduler.num_kv_blocks = 60
    scheduler.use_cache_eviction = True
    scheduler.cache_eviction_config = pagewheel.CacheEvictionConfig(
        *(32, 32, 128),
        policy="norm_sum",
        granularity="token",
        apply_rotation=True,
        position_limit=1,
    )
    pipeline = Batching(tiny_folder, scheduler, "CPU", F32)
    prompt = [random.Random(8).randrange(4, 267) for _ in range(100)]
    (alone,) = pipeline.generate([prompt], greedy(150))[0].m_generation_ids
    config = greedy(
        150, num_beams=3, num_beam_groups=3, diversity_penalty=1e-7, num_return_sequences=3
    )
    assert pipeline.generate([prompt], config)[0].m_generation_ids == [alone] * 3
