"""The linear backends native and openvino beside each other, on the real model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import F32
from convert import tiny_models
from float_weights import f16_folder, operations
from prompt_log_probs import prompt_log_probs

import pagewheel
from pagewheel.convert import convert

TEXT = Path(__file__).read_text()


def make_pipeline(folder: Path, **properties: object) -> pagewheel.ContinuousBatchingPipeline:
    return pagewheel.ContinuousBatchingPipeline(
        folder, pagewheel.SchedulerConfig(), "CPU", properties
    )


def test_int8_activations_change_log_probabilities_little(shallow_folder: Path) -> None:
    """Root mean square and mean of the change of a token's log-probability."""
    exact = prompt_log_probs(make_pipeline(shallow_folder, **F32), TEXT)
    rounded = make_pipeline(shallow_folder, linear_backend="native", KV_CACHE_PRECISION="f32")
    native = prompt_log_probs(rounded, TEXT)
    assert 0 < np.sqrt(np.mean((native - exact) ** 2)) < 0.15
    assert abs(np.mean(native - exact)) < 0.01


def test_f32_inference_means_f32_activations(shallow_folder: Path) -> None:
    with pytest.raises(ValueError, match=r"linear_backend is 'native'.*f32 inference"):
        make_pipeline(shallow_folder, linear_backend="native", **F32)
    auto = pagewheel._pagewheel.describe_operations(str(shallow_folder), "CPU", F32)
    ours = {one.operation for one in auto.counts if one.runs_on == "pagewheel"}
    assert ours == {"PagedAttention"}


def test_unknown_choices_are_refused_by_name(shallow_folder: Path) -> None:
    with pytest.raises(ValueError, match="linear_backend is 'fast'; allowed: auto, native"):
        make_pipeline(shallow_folder, linear_backend="fast")


def operation_counts(folder: Path, **properties: object) -> dict[tuple[str, str], int]:
    found = pagewheel._pagewheel.describe_operations(str(folder), "CPU", properties)
    assert found.left == []
    return {(one.runs_on, one.operation): one.count for one in found.counts}


def test_every_matrix_of_the_real_model_is_taken(smollm2_folder: Path) -> None:
    counts = operation_counts(smollm2_folder)
    # Per layer q+k+v and o; gate, up and down are one; the vocabulary head. Of the last layer q
    # stands alone: it is of the logits indices only.
    assert counts[("pagewheel", "QuantizedLinear")] == 2 * 30 + 1 + 1
    assert counts[("pagewheel", "GatedMlp")] == 30
    # Everything hangs together: rows of the last layer's hidden state, cosines and sines are picked
    # inside.
    assert counts[("pagewheel", "GatherRows")] == 3
    assert counts[("pagewheel", "NativeRegion")] == 1


def test_without_fast_prefill_every_matrix_is_taken_too(smollm2_folder: Path) -> None:
    counts = operation_counts(smollm2_folder, fast_prefill=False)
    assert counts[("pagewheel", "QuantizedLinear")] == 2 * 30 + 1
    assert counts[("pagewheel", "GatedMlp")] == 30
    # All layers; the head with the rows that are picked for it.
    assert counts[("pagewheel", "GatherRows")] == 1
    assert counts[("pagewheel", "NativeRegion")] == 2


@pytest.mark.parametrize("name", ["qwen3", "phi3"])
def test_norms_and_partial_rotation_of_heads_part_no_region(name: str, tmp_path: Path) -> None:
    source = tiny_models.save(tiny_models.make(name), tmp_path / "source")
    folder = convert(source, tmp_path / "model", weight_format="int8", progress=False)
    assert operation_counts(folder)[("pagewheel", "NativeRegion")] == 1


@pytest.mark.parametrize("name", ["qwen3", "qwen3_moe"])
def test_weights_of_16_bits_are_taken_where_products_of_bf16_are_fast(
    name: str, tmp_path: Path
) -> None:
    folder = f16_folder(name, tmp_path)
    found, native_floats = operations(folder)
    if not native_floats:
        assert any("products of bf16 are not fast on this processor" in why for why in found.left)
        return
    assert operation_counts(folder)[("pagewheel", "NativeRegion")] == 1
    text = TEXT[:600]
    exact = prompt_log_probs(make_pipeline(folder, **F32), text)
    native = prompt_log_probs(make_pipeline(folder, KV_CACHE_PRECISION="f32"), text)
    others = make_pipeline(folder, linear_backend="openvino", KV_CACHE_PRECISION="f32")
    openvino = prompt_log_probs(others, text)
    errors = [np.sqrt(np.mean((each - exact) ** 2)) for each in (native, openvino)]
    # With one thread on a processor with AMX OpenVINO's layers are f32's (docs/openvino.md).
    assert 0 < errors[0] < (1.5 * errors[1] or 0.06)
