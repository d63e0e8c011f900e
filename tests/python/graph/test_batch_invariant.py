"""With batch_invariant an answer has the same bits whatever happens around it."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import F32
from float_weights import f16_folder, operations

import pagewheel

# A long one first: its prefill chunks and its decode steps lie among the others' steps.
PROMPTS = [
    "A wheel that turns pages, line by line. " * 30,
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):",
    "A wheel that turns pages, line by line. " * 30 + "And then",
]
Answer = tuple[list[int], list[float]]


def make_pipeline(
    folder: Path, *, prefix_caching: bool = False, batched_tokens: int = 256, **properties: object
) -> pagewheel.ContinuousBatchingPipeline:
    scheduler = pagewheel.SchedulerConfig()
    scheduler.num_kv_blocks = 400
    scheduler.max_num_batched_tokens = batched_tokens
    scheduler.enable_prefix_caching = prefix_caching
    return pagewheel.ContinuousBatchingPipeline(
        folder, scheduler, "CPU", {"batch_invariant": True, **properties}
    )


def answers(pipeline: pagewheel.ContinuousBatchingPipeline, prompts: list[str]) -> list[Answer]:
    """Tokens and their log-probabilities, to the bit."""
    config = pagewheel.GenerationConfig(max_new_tokens=24, logprobs=1, ignore_eos=True)
    handles = [pipeline.add_request(i, prompt, config) for i, prompt in enumerate(prompts)]
    while pipeline.has_non_finished_requests():
        pipeline.step()
    outputs = [handle.read_all()[0] for handle in handles]
    return [(list(one.generated_ids), list(one.generated_log_probs)) for one in outputs]


@pytest.mark.parametrize("cache", ["u8", "f32"])
def test_answers_do_not_depend_on_batch_chunks_or_cached_prefixes(
    shallow_folder: Path, cache: str
) -> None:
    pipeline = make_pipeline(shallow_folder, KV_CACHE_PRECISION=cache)
    alone = [answers(pipeline, [prompt])[0] for prompt in PROMPTS]
    assert answers(pipeline, PROMPTS) == alone
    assert answers(pipeline, PROMPTS[::-1]) == alone[::-1]
    small_chunks = make_pipeline(shallow_folder, batched_tokens=37, KV_CACHE_PRECISION=cache)
    assert answers(small_chunks, PROMPTS) == alone
    cached = make_pipeline(shallow_folder, prefix_caching=True, KV_CACHE_PRECISION=cache)
    assert [answers(cached, [prompt])[0] for prompt in PROMPTS] == alone
    assert answers(cached, PROMPTS) == alone
    assert cached.get_metrics().prefix_cache_hit_tokens > 500


@pytest.mark.parametrize("name", ["qwen3", "qwen3_moe"])
def test_weights_of_16_bits_take_it_where_products_of_bf16_are_fast(
    name: str, tmp_path: Path
) -> None:
    folder = f16_folder(name, tmp_path)
    if not operations(folder)[1]:
        with pytest.raises(ValueError, match="batch_invariant is true"):
            make_pipeline(folder)
        return
    prompts = ["A wheel that turns", *PROMPTS[1:4], "A wheel that turns pages, line by line. " * 3]
    alone = [answers(make_pipeline(folder), [prompt])[0] for prompt in prompts]
    assert answers(make_pipeline(folder), prompts) == alone
    assert answers(make_pipeline(folder, batched_tokens=37), prompts[::-1]) == alone[::-1]


def test_without_it_the_bits_depend_on_the_batch(shallow_folder: Path) -> None:
    """Else the property would be of no use."""
    pipeline = make_pipeline(shallow_folder, batch_invariant=False)
    alone = [answers(pipeline, [prompt])[0] for prompt in PROMPTS]
    assert answers(pipeline, PROMPTS) != alone


def test_one_and_two_threads_give_the_same_bits(shallow_folder: Path) -> None:
    one, two = (
        answers(make_pipeline(shallow_folder, INFERENCE_NUM_THREADS=threads), PROMPTS[1:])
        for threads in (1, 2)
    )
    assert one == two


def test_what_rounds_by_the_number_of_rows_is_refused(shallow_folder: Path) -> None:
    for properties in (F32, {"linear_backend": "openvino"}, {"attention_backend": "openvino"}):
        with pytest.raises(ValueError, match="batch_invariant is true"):
            make_pipeline(shallow_folder, **properties)
    scheduler = pagewheel.SchedulerConfig()
    scheduler.use_cache_eviction = True
    with pytest.raises(ValueError, match="batch_invariant is true and so is use_cache_eviction"):
        pagewheel.ContinuousBatchingPipeline(
            shallow_folder, scheduler, "CPU", {"batch_invariant": True}
        )
