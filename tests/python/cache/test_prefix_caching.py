"""Shared prefixes save work and change no token (f32)."""

from __future__ import annotations

import functools
import random
import threading
import time
from pathlib import Path

import pytest
from conftest import F32, batching_pipeline, drain, greedy
from waiting import eventually

import pagewheel

make_pipeline = functools.partial(batching_pipeline, enable_prefix_caching=True, num_kv_blocks=400)
Status = pagewheel.GenerationStatus


@pytest.fixture(scope="module")
def sharing(shallow_folder: Path) -> pagewheel.ContinuousBatchingPipeline:
    return make_pipeline(shallow_folder)


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


def test_requests_of_one_batch_compute_their_prefix_once(shallow_folder: Path) -> None:
    pipeline = make_pipeline(shallow_folder)
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


def test_500_random_requests_give_the_same_tokens_whatever_happens_to_them(
    tiny_folder: Path,
) -> None:
    """Prompts from few beginnings: with and without caching, in prefill chunks, preempted."""
    rng = random.Random(5)
    stems = [[rng.randrange(4, 267) for _ in range(n)] for n in (5, 32, 47, 90, 120)]
    prompts = []
    for _ in range(500):
        stem = rng.choice(stems)
        own = [rng.randrange(4, 7) for _ in range(rng.randint(1, 30))]
        prompts.append(stem[: rng.randint(1, len(stem))] + own)
    lengths = [rng.randint(1, 20) for _ in prompts]

    def run(order: list[int], **limits: object) -> dict[int, list[int]]:
        pipeline = make_pipeline(tiny_folder, **limits)
        handles = {}
        for i in order:
            config = greedy(lengths[i], priority=i % 3)
            handles[i] = pipeline.add_request(i, prompts[i], config)
            if rng.random() < 0.2:
                pipeline.step()
        drain(pipeline)
        metrics = pipeline.get_metrics()
        assert metrics.cache_usage == 0
        assert (metrics.prefix_cache_hit_tokens > 5000) == limits.get("enable_prefix_caching", True)
        assert metrics.preemptions > 0 or "num_kv_blocks" not in limits
        return {i: handle.read_all()[0].generated_ids for i, handle in handles.items()}

    order = list(range(len(prompts)))
    expected = run(order, enable_prefix_caching=False)
    for limits in (
        {"num_kv_blocks": 16, "max_num_batched_tokens": 70},
        {"num_kv_blocks": 16, "enable_prefix_caching": False, "max_num_batched_tokens": 33},
        {"max_num_batched_tokens": 160, "dynamic_split_fuse": False, "max_num_seqs": 7},
    ):
        rng.shuffle(order)
        assert run(order, **limits) == expected


def test_50_chats_compute_their_system_prompt_once_and_then_what_is_new(tiny_folder: Path) -> None:
    chats, turns, said, answered = 50, 10, 12, 7
    rng = random.Random(1)
    system = [rng.randrange(4, 267) for _ in range(1024)]
    pipeline = make_pipeline(tiny_folder, num_kv_blocks=700, speculation="off")
    histories = [list(system) for _ in range(chats)]
    for turn in range(turns):
        handles = []
        for i, history in enumerate(histories):
            # The first word of a chat is its own, so that chats have nothing else in common.
            first = 4 + i if turn == 0 else rng.randrange(4, 267)
            history += [first, *(rng.randrange(4, 267) for _ in range(said - 1))]
            handles.append(pipeline.add_request(i, history, greedy(answered)))
        drain(pipeline)
        for history, handle in zip(histories, handles, strict=True):
            history += handle.read_all()[0].generated_ids
    # Of an answer the last token is not computed, but with the next turn.
    new = chats * (said + answered - 1) + (turns - 1) * chats * (1 + said + answered - 1)
    assert pipeline.get_statistics().all_steps.num_tokens == len(system) + new


def test_40_blocks_serve_500_requests_of_which_a_third_is_cancelled_by_other_threads(
    tiny_folder: Path,
) -> None:
    rng = random.Random(9)
    stem = [rng.randrange(4, 267) for _ in range(200)]
    prompts = [
        stem[: rng.randrange(200)] + [rng.randrange(4, 267) for _ in range(rng.randint(1, 80))]
        for _ in range(500)
    ]
    lengths = [rng.randint(1, 60) for _ in prompts]
    reference = make_pipeline(tiny_folder, enable_prefix_caching=False)
    alone = [
        reference.add_request(i, p, greedy(n))
        for i, (p, n) in enumerate(zip(prompts, lengths, strict=True))
    ]
    drain(reference)

    pipeline = make_pipeline(tiny_folder, num_kv_blocks=40, max_num_batched_tokens=64)
    pipeline.start()
    handles: dict[int, pagewheel.GenerationHandle] = {}
    refused: list[str] = []

    def work(thread: int) -> None:
        own = random.Random(thread)
        for i in range(thread, 500, 5):
            try:
                if i % 25 == 0:
                    pipeline.add_request(1000 + i, [5] * 1280, greedy(1))
            except ValueError as error:
                refused.append(str(error))
            handles[i] = pipeline.add_request(i, prompts[i], greedy(lengths[i]))
            if own.random() < 1 / 3:
                threading.Timer(own.random() * 0.2, handles[i].cancel).start()
            if own.random() < 0.5:
                time.sleep(own.random() * 0.005)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: not pipeline.has_non_finished_requests())
    pipeline.stop()

    assert len(refused) == 20
    assert "1280 tokens; the KV cache holds 1280" in refused[0]
    ended = [handle.get_status() for handle in handles.values()]
    assert ended.count(Status.CANCEL) + ended.count(Status.FINISHED) == 500
    assert 50 < ended.count(Status.CANCEL) < 250
    for i, handle in handles.items():
        expected = alone[i].read_all()[0].generated_ids
        got = handle.outputs_so_far()[0].generated_ids
        assert got == (expected if handle.get_status() == Status.FINISHED else expected[: len(got)])
    statistics = pipeline.get_statistics()
    assert statistics.num_preemptions > 0
    assert statistics.num_used_blocks == 0
    assert statistics.num_cached_blocks + statistics.num_free_blocks == 40
    pipeline.get_prefix_cache().clear()
    pipeline.step()
    assert pipeline.get_statistics().num_free_blocks == 40


def test_a_chat_of_the_llm_pipeline_hits_its_history(shallow_folder: Path) -> None:
    pipeline = pagewheel.LLMPipeline(shallow_folder, "CPU", F32)
    history = pagewheel.ChatHistory()
    history.append({"role": "user", "content": "Name a river."})
    first = pipeline.generate(history, greedy(12))
    assert first.perf_metrics.get_num_prefix_cache_hit_tokens() == 0
    history.append({"role": "assistant", "content": first.texts[0]})
    history.append({"role": "user", "content": "Another one."})
    second = pipeline.generate(history, greedy(2))
    assert second.perf_metrics.get_num_prefix_cache_hit_tokens() > 20
