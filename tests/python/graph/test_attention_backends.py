"""The attention backends native and openvino beside each other, on real weights."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from conftest import F32, greedy
from openvino_core import CORE
from prompt_log_probs import prompt_log_probs

import pagewheel

TEXT = Path(__file__).read_text()[:1800]  # more than two steps' tokens
PROMPTS = ["The capital of France is", "def fibonacci(n):\n", "Il était une fois", TEXT]


def make_pipeline(folder: Path, **properties: object) -> pagewheel.ContinuousBatchingPipeline:
    scheduler = pagewheel.SchedulerConfig()
    scheduler.max_num_batched_tokens = 200
    return pagewheel.ContinuousBatchingPipeline(folder, scheduler, "CPU", properties)


@functools.cache
def log_probs(folder: Path, **properties: str) -> np.ndarray:
    """Of TEXT's tokens, computed in prefill chunks: most of its keys come out of the cache."""
    return prompt_log_probs(make_pipeline(folder, **properties), TEXT)


def test_both_backends_give_the_same_text(smollm2_folder: Path) -> None:
    texts = [
        [
            result.m_generation_ids[0]
            for result in make_pipeline(smollm2_folder, attention_backend=backend, **F32).generate(
                PROMPTS, greedy(32, apply_chat_template=False)
            )
        ]
        for backend in ("native", "openvino")
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("cache", "bound"), [("bf16", 0.02), ("f16", 0.01), ("u8", 0.05), ("u4", 0.5)]
)
def test_a_smaller_cache_costs_little(shallow_folder: Path, cache: str, bound: float) -> None:
    """Root mean square of the change of a token's log-probability. AMX rounds queries and weights
    to bf16 over every cache but f32."""
    native = {**F32, "attention_backend": "native"}
    exact = log_probs(shallow_folder, **native)
    rounded = log_probs(shallow_folder, **{**native, "KV_CACHE_PRECISION": cache})
    assert 0 < np.sqrt(np.mean((rounded - exact) ** 2)) < bound


@pytest.mark.parametrize("cache", ["f32", "bf16", "f16", "u8"])
def test_openvinos_attention_takes_every_cache(shallow_folder: Path, cache: str) -> None:
    openvino = {"attention_backend": "openvino", "KV_CACHE_PRECISION": cache}
    if cache == "bf16" and "BF16" not in CORE.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        with pytest.raises(ValueError, match="does not compute in bf16 on this processor"):
            make_pipeline(shallow_folder, **openvino)
        return
    exact = log_probs(shallow_folder, **{**F32, "attention_backend": "native"})
    for linear in ("native", "openvino"):  # who leaves the precision open
        found = log_probs(shallow_folder, linear_backend=linear, **openvino)
        assert np.sqrt(np.mean((found - exact) ** 2)) < 0.5


def test_auto_is_native(shallow_folder: Path) -> None:
    """Each backend rounds its u8 cache in a way of its own."""
    properties = {**F32, "KV_CACHE_PRECISION": "u8"}
    by_default = log_probs(shallow_folder, **properties)
    native = log_probs(shallow_folder, **properties, attention_backend="native")
    openvino = log_probs(shallow_folder, attention_backend="openvino", **properties)
    assert np.array_equal(by_default, native)
    assert not np.array_equal(by_default, openvino)


def test_auto_leaves_what_only_openvino_has_to_it(shallow_folder: Path) -> None:
    precisions = {"KEY_CACHE_PRECISION": "u8", "VALUE_CACHE_PRECISION": "u4"}
    mixed = log_probs(shallow_folder, **precisions)
    openvino = log_probs(shallow_folder, attention_backend="openvino", **precisions)
    assert np.array_equal(mixed, openvino)


def test_unknown_choices_are_refused_by_name(smollm2_folder: Path) -> None:
    with pytest.raises(ValueError, match="attention_backend is 'fast'; allowed: auto, native"):
        make_pipeline(smollm2_folder, attention_backend="fast")
    with pytest.raises(ValueError, match="u3"):
        make_pipeline(smollm2_folder, attention_backend="native", KV_CACHE_PRECISION="u3")
