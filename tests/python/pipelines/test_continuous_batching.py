"""Many requests in one small pool: each ends as it would alone, and the pool is whole again."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from conftest import batching_pipeline, drain, greedy

import pagewheel

BLOCK = 32


@pytest.fixture(scope="module")
def small_pool(shallow_folder: Path) -> pagewheel.ContinuousBatchingPipeline:
    return batching_pipeline(shallow_folder, num_kv_blocks=40, max_num_batched_tokens=128)


def check_requests_end_as_alone(
    pipeline: pagewheel.ContinuousBatchingPipeline,
    prompts: list[list[int]],
    longest_answer: int,
    alone: int,
    rng: random.Random,
) -> None:
    """Submits them while steps are made; the first `alone` are compared."""
    lengths = [rng.randint(1, longest_answer) for _ in prompts]
    expected = [
        pipeline.generate([ids], greedy(n))[0].m_generation_ids[0]
        for ids, n in zip(prompts[:alone], lengths[:alone], strict=True)
    ]
    handles = []
    for i, (ids, n) in enumerate(zip(prompts, lengths, strict=True)):
        handles.append(pipeline.add_request(i, ids, greedy(n)))
        if rng.random() < 0.2:
            pipeline.step()
    drain(pipeline)
    for i, handle in enumerate(handles):
        assert handle.get_status() == pagewheel.GenerationStatus.FINISHED
        (output,) = handle.read_all()
        assert output.finish_reason == pagewheel.GenerationFinishReason.LENGTH
        assert len(output.generated_ids) == lengths[i]
        if i < alone:
            assert output.generated_ids == expected[i], i
    metrics = pipeline.get_metrics()
    assert metrics.preemptions > 0  # the pool was really too small
    assert metrics.max_cache_usage > 90
    assert metrics.cache_usage == 0


def random_prompts(rng: random.Random, count: int, ids: range, longest: int) -> list[list[int]]:
    return [[rng.choice(ids) for _ in range(rng.randint(1, longest))] for _ in range(count)]


def test_200_random_requests_each_end_as_alone(tiny_folder: Path) -> None:
    """In a pool for about 20 of them."""
    rng = random.Random(3)
    prompts = random_prompts(rng, 200, range(4, 267), 100)
    pipeline = batching_pipeline(tiny_folder, num_kv_blocks=40, max_num_batched_tokens=128)
    check_requests_end_as_alone(pipeline, prompts, 36, 200, rng)


def test_random_requests_to_a_real_model_each_end_as_alone(shallow_folder: Path) -> None:
    rng = random.Random(4)
    prompts = random_prompts(rng, 50, range(1000, 40000), 60)
    pipeline = batching_pipeline(shallow_folder, num_kv_blocks=16, max_num_batched_tokens=64)
    check_requests_end_as_alone(pipeline, prompts, 24, 25, rng)


def test_the_token_budget_changes_no_token(shallow_folder: Path) -> None:
    ids = list(range(2000, 2100))
    texts = []
    for budget, split in ((7, True), (100, True), (4096, False)):
        pipeline = batching_pipeline(
            shallow_folder,
            max_num_batched_tokens=budget,
            dynamic_split_fuse=split,
            num_kv_blocks=20,
        )
        texts.append(pipeline.generate([ids], greedy(12))[0].m_generation_ids[0])
    assert texts[0] == texts[1] == texts[2]


def test_tokens_arrive_step_by_step_and_are_read_once(
    small_pool: pagewheel.ContinuousBatchingPipeline,
) -> None:
    handle = small_pool.add_request(1, "The quick brown fox", greedy(5))
    assert not handle.can_read()
    pieces = []
    while small_pool.has_non_finished_requests():
        small_pool.step()
        assert handle.can_read()
        pieces.append(handle.read()[0].generated_ids)
        assert handle.read_available() == {}
    assert [len(piece) for piece in pieces] == [1] * 5
    (whole,) = handle.outputs_so_far()
    assert [token for piece in pieces for token in piece] == whole.generated_ids


def test_cancel_and_stop_end_one_request_alone(
    small_pool: pagewheel.ContinuousBatchingPipeline,
) -> None:
    cancelled, stopped, other = (
        small_pool.add_request(i, "Once upon a time", greedy(30)) for i in range(3)
    )
    for _ in range(4):
        small_pool.step()
    cancelled.cancel()
    stopped.stop()
    drain(small_pool)
    assert cancelled.get_status() == pagewheel.GenerationStatus.CANCEL
    assert stopped.get_status() == pagewheel.GenerationStatus.STOP
    assert len(stopped.read_available()[0].generated_ids) == 4
    for handle in (cancelled, stopped):
        with pytest.raises(RuntimeError, match="stopped, cancelled or dropped"):
            handle.read()
    assert len(other.read_all()[0].generated_ids) == 30
    assert small_pool.get_metrics().cache_usage == 0


def test_a_dropped_handle_cancels_its_request(
    small_pool: pagewheel.ContinuousBatchingPipeline,
) -> None:
    small_pool.add_request(5, "Once", greedy(3))
    steps = 0
    while small_pool.has_non_finished_requests():
        small_pool.step()
        steps += 1
    assert steps == 1
    assert small_pool.get_metrics().cache_usage == 0


def test_samples_of_one_prompt_share_its_blocks(shallow_folder: Path) -> None:
    """8 samples of a prompt of 10 blocks fit a pool of 40: unshared they would need 88."""
    pipeline = batching_pipeline(shallow_folder, num_kv_blocks=40)
    config = greedy(20, do_sample=True, num_return_sequences=8, rng_seed=1, temperature=1.5)
    prompt = list(range(5000, 5000 + 10 * BLOCK - 5))
    handle = pipeline.add_request(0, prompt, config)
    drain(pipeline)
    outputs = handle.read_all()
    assert len({tuple(output.generated_ids) for output in outputs}) == 8
    assert pipeline.get_metrics().preemptions == 0
    assert pipeline.get_metrics().cache_usage == 0


def test_a_sample_of_several_is_what_its_seed_gives_alone(
    small_pool: pagewheel.ContinuousBatchingPipeline,
) -> None:
    """The first one. The second has random numbers of its own, not another seed's."""
    both = small_pool.generate(
        ["Tell me"], greedy(12, do_sample=True, num_return_sequences=2, rng_seed=4)
    )[0]
    alone, next_seed = (
        small_pool.generate(["Tell me"], greedy(12, do_sample=True, rng_seed=seed))[0]
        for seed in (4, 5)
    )
    assert both.m_generation_ids[0] == alone.m_generation_ids[0]
    assert both.m_generation_ids[1] not in (
        alone.m_generation_ids[0],
        next_seed.m_generation_ids[0],
    )


def test_prompts_come_as_tensor_array_or_list(
    small_pool: pagewheel.ContinuousBatchingPipeline,
) -> None:
    ids = [504, 5345, 282]
    forms = [ids, np.array([ids]), ov.Tensor(np.array([ids])), np.array(ids, dtype=np.int32)]
    handles = [small_pool.add_request(i, form, greedy(4)) for i, form in enumerate(forms)]
    drain(small_pool)
    assert len({tuple(handle.read_all()[0].generated_ids) for handle in handles}) == 1


def test_requests_may_be_added_while_another_thread_steps(
    small_pool: pagewheel.ContinuousBatchingPipeline,
) -> None:
    handles: list[pagewheel.GenerationHandle] = []

    def submit() -> None:
        for i in range(20):
            handles.append(small_pool.add_request(100 + i, "A list of", greedy(5)))

    thread = threading.Thread(target=submit)
    thread.start()
    while thread.is_alive() or small_pool.has_non_finished_requests():
        small_pool.step()
    thread.join()
    assert {len(handle.read_all()[0].generated_ids) for handle in handles} == {5}


@pytest.mark.parametrize(
    ("prompt", "config", "message"),
    [
        ([], {}, "prompt is empty"),
        ([49152], {}, "token id 49152"),
        ([-1], {}, "token id -1"),
        (list(range(1280)), {}, "1280 tokens; the KV cache holds 1280.*; cache_size"),
        ([5] * 9000, {}, "9000 tokens; the model's context holds 8192"),
        ([5] * 10, {"max_length": 10, "max_new_tokens": None}, "max_length is 10"),
    ],
)
def test_what_cannot_be_served_is_refused_at_once(
    small_pool: pagewheel.ContinuousBatchingPipeline,
    prompt: list[int],
    config: dict[str, object],
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message):
        small_pool.add_request(
            0, prompt, pagewheel.GenerationConfig(**{"max_new_tokens": 4, **config})
        )
    assert not small_pool.has_non_finished_requests()
    assert len(small_pool.generate([[504]], greedy(2))[0].m_generation_ids[0]) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_num_batched_tokens", 0), ("max_num_seqs", 0)],
)
def test_a_bad_scheduler_config_is_refused_by_name(
    shallow_folder: Path, name: str, value: object
) -> None:
    with pytest.raises(ValueError, match=name):
        batching_pipeline(shallow_folder, **{name: value})


def test_a_request_id_in_use_is_refused(small_pool: pagewheel.ContinuousBatchingPipeline) -> None:
    handle = small_pool.add_request(7, "One", greedy(3))
    with pytest.raises(ValueError, match="request_id 7 is in use"):
        small_pool.add_request(7, "Two", greedy(3))
    drain(small_pool)
    assert len(handle.read_all()[0].generated_ids) == 3
    small_pool.add_request(7, "Three", greedy(1))
    drain(small_pool)


def test_generation_ends_with_the_pool_when_nothing_else_ends_it(shallow_folder: Path) -> None:
    pipeline = batching_pipeline(shallow_folder, num_kv_blocks=2)
    handle = pipeline.add_request(
        0, [504] * 10, pagewheel.GenerationConfig(ignore_eos=True, max_length=10**6)
    )
    drain(pipeline)
    (output,) = handle.read_all()
    assert len(output.generated_ids) == 2 * BLOCK - 10
    assert output.finish_reason == pagewheel.GenerationFinishReason.LENGTH
