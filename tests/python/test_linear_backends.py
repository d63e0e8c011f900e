"""pagewheel's own linear layers beside the plugin's, on the real model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import F32, greedy

import pagewheel

TEXT = Path(__file__).read_text() * 2


def make_pipeline(folder: Path, **properties: object) -> pagewheel.ContinuousBatchingPipeline:
    return pagewheel.ContinuousBatchingPipeline(
        folder, pagewheel.SchedulerConfig(), "CPU", properties
    )


def prompt_log_probs(folder: Path, **properties: object) -> np.ndarray:
    pipeline = make_pipeline(folder, **properties)
    handle = pipeline.add_request(0, TEXT, greedy(1, logprobs=1, echo=True))
    while pipeline.has_non_finished_requests():
        pipeline.step()
    return np.array(handle.read_all()[0].prompt_log_probs)


def test_int8_activations_change_log_probabilities_little(smollm2_folder: Path) -> None:
    """Root mean square and mean of the change of a token's log-probability."""
    exact = prompt_log_probs(smollm2_folder, **F32)
    native = prompt_log_probs(smollm2_folder, linear_backend="native", KV_CACHE_PRECISION="f32")
    assert 0 < np.sqrt(np.mean((native - exact) ** 2)) < 0.15
    assert abs(np.mean(native - exact)) < 0.01


def test_f32_inference_means_f32_activations(smollm2_folder: Path) -> None:
    with pytest.raises(ValueError, match=r"linear_backend is 'native'.*f32 inference"):
        make_pipeline(smollm2_folder, linear_backend="native", **F32)
    auto = pagewheel._pagewheel.describe_operations(str(smollm2_folder), "CPU", F32)
    ours = {one.operation for one in auto.counts if one.runs_on == "pagewheel"}
    assert ours == {"PagedAttention"}


def test_unknown_choices_are_refused_by_name(smollm2_folder: Path) -> None:
    with pytest.raises(ValueError, match="linear_backend is 'fast'; allowed: auto, native"):
        make_pipeline(smollm2_folder, linear_backend="fast")


def test_every_matrix_of_the_real_model_is_taken(smollm2_folder: Path) -> None:
    found = pagewheel._pagewheel.describe_operations(str(smollm2_folder))
    counts = {(one.runs_on, one.operation): one.count for one in found.counts}
    # Per layer q+k+v and o; gate, up and down are one; the vocabulary head.
    assert counts[("pagewheel", "QuantizedLinear")] == 2 * 30 + 1
    assert counts[("pagewheel", "GatedMlp")] == 30
    # All layers hang together and are one node; the head comes after the rows are picked.
    assert counts[("pagewheel", "NativeRegion")] == 1
    assert found.left == []
