"""The attention backends native and openvino, on tiny random models of many head shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import F32, greedy
from convert import tiny_llama
from gguf.constants import GGMLQuantizationType

import pagewheel
from pagewheel.convert import convert

# Query heads, kv heads, head size.
HEAD_SHAPES = [(3, 1, 32), (4, 2, 48), (6, 3, 64), (5, 5, 80), (6, 2, 96), (4, 1, 128)]
BF16 = {"INFERENCE_PRECISION_HINT": "bf16", "KV_CACHE_PRECISION": "bf16"}
# A bf16 model's log-probabilities are this uncertain: it rounds at 1/256, in every layer.
BF16_TIE = 0.15


def tiny_model(folder: Path, heads: int, kv_heads: int, head_size: int) -> Path:
    """A llama of two layers with random weights."""
    rng = np.random.default_rng(heads * head_size)

    def reshape(tensors: dict[str, np.ndarray]) -> None:
        rows = {"attn_q": heads * head_size}
        rows |= {"attn_k": kv_heads * head_size, "attn_v": kv_heads * head_size}
        for name in list(tensors):
            part = name.split(".")[-2]
            shape: tuple[int, ...] = tensors[name].shape
            if part in rows:
                shape = (rows[part], tiny_llama.HIDDEN)
            elif part == "attn_output":
                shape = (tiny_llama.HIDDEN, heads * head_size)
            if len(shape) == 2:
                deviation = 1.5 / np.sqrt(shape[1]) if "attn" in name else 0.3
                tensors[name] = (rng.standard_normal(shape) * deviation).astype(np.float32)

    gguf = tiny_llama.write(
        folder / "tiny.gguf",
        kind=GGMLQuantizationType.F32,
        metadata={
            "llama.attention.head_count": heads,
            "llama.attention.head_count_kv": kv_heads,
            "llama.attention.key_length": head_size,
            "llama.attention.value_length": head_size,
            "llama.rope.dimension_count": head_size,
        },
        edit=reshape,
    )
    return convert(gguf, folder / "model", progress=False)


def open_pipeline(folder: Path, **properties: object) -> pagewheel.ContinuousBatchingPipeline:
    scheduler = pagewheel.SchedulerConfig()
    scheduler.max_num_batched_tokens = 200  # the longest prompt takes two prefill chunks
    return pagewheel.ContinuousBatchingPipeline(folder, scheduler, "CPU", properties)


def greedy_ids(
    pipeline: pagewheel.ContinuousBatchingPipeline, prompts: list[np.ndarray], count: int
) -> list[list[int]]:
    handles = [pipeline.add_request(i, ids, greedy(count)) for i, ids in enumerate(prompts)]
    while pipeline.has_non_finished_requests():
        pipeline.step()
    return [list(handle.read_all()[0].generated_ids) for handle in handles]


def last_log_prob(pipeline: pagewheel.ContinuousBatchingPipeline, ids: list[int]) -> float:
    handle = pipeline.add_request(0, np.array(ids), greedy(1, logprobs=1, echo=True))
    while pipeline.has_non_finished_requests():
        pipeline.step()
    return float(handle.read_all()[0].prompt_log_probs[-1])


@pytest.mark.parametrize("shape", HEAD_SHAPES, ids=str)
def test_every_head_shape_gives_the_openvino_backends_text(
    tmp_path: Path, shape: tuple[int, int, int]
) -> None:
    """In f32 token by token; in bf16 up to a choice between tokens that are as good as equal."""
    folder = tiny_model(tmp_path, *shape)
    rng = np.random.default_rng(1)
    prompts = [rng.integers(4, 260, length) for length in (1, 7, 33, 210)]
    f32 = [
        greedy_ids(open_pipeline(folder, attention_backend=backend, **F32), prompts, 24)
        for backend in ("native", "openvino")
    ]
    assert f32[0] == f32[1]
    assert len({tuple(ids) for ids in f32[0]}) == len(prompts)  # not one token for ever

    pipelines = [
        open_pipeline(folder, attention_backend=backend, **BF16)
        for backend in ("native", "openvino")
    ]
    bf16 = [greedy_ids(pipeline, prompts, 24) for pipeline in pipelines]
    for prompt, native, openvino in zip(prompts, *bf16, strict=True):
        same = next((i for i in range(24) if native[i] != openvino[i]), None)
        if same is None:
            continue
        prefix = [*prompt.tolist(), *openvino[:same]]
        for pipeline in pipelines:
            choices = [last_log_prob(pipeline, [*prefix, ids[same]]) for ids in (native, openvino)]
            assert abs(choices[0] - choices[1]) < BF16_TIE
