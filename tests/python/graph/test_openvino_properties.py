"""OpenVINO's properties, as they meet pagewheel's own operations."""

from __future__ import annotations

from pathlib import Path

import openvino as ov
import pytest
from conftest import batching_pipeline, greedy


@pytest.mark.parametrize("backend", ["auto", "native", "openvino"])
@pytest.mark.parametrize("precision", ["f16", "FP16", ov.Type.f16])
def test_f16_inference_on_cpu_is_refused_whatever_the_processor(
    tiny_folder: Path, backend: str, precision: object
) -> None:
    """With AVX512-FP16 it would load, and fail or give zeros; without, be f32 unasked."""
    properties = {"attention_backend": backend, "linear_backend": backend}
    message = r"INFERENCE_PRECISION_HINT is \w+ and the device is CPU; allowed: f32, bf16"
    with pytest.raises(ValueError, match=message):
        batching_pipeline(tiny_folder, {**properties, "INFERENCE_PRECISION_HINT": precision})


@pytest.mark.parametrize("name", ["DEVICE_PROPERTIES", "DEVICE_PROPERTIES_CPU"])
def test_properties_inside_of_a_property_are_refused(tiny_folder: Path, name: str) -> None:
    """OpenVINO would give them to its CPU device, f16 inference too."""
    nested = "{CPU:{INFERENCE_PRECISION_HINT:f16}}"
    with pytest.raises(ValueError, match=f"'{name}' is not supported: a model runs on one device"):
        batching_pipeline(tiny_folder, {name: nested})


@pytest.mark.parametrize("precision", ["f32", "bf16", ov.Type.bf16])
def test_f32_and_bf16_inference_give_tokens(tiny_folder: Path, precision: object) -> None:
    pipeline = batching_pipeline(tiny_folder, {"INFERENCE_PRECISION_HINT": precision})
    assert len(pipeline.generate([[10, 11, 12]], [greedy(5)])[0].m_generation_ids[0]) == 5


@pytest.mark.parametrize("backend", ["auto", "openvino"])
def test_a_model_cache_holds_one_blob_at_most_however_often_a_model_is_loaded(
    tiny_folder: Path, tmp_path: Path, backend: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A graph with pagewheel's operations is not put into it, and whoever asked for it is told."""
    properties = {"attention_backend": backend, "linear_backend": backend}
    properties["CACHE_DIR"] = str(tmp_path)
    texts, blobs = [], []
    for _ in range(3):
        pipeline = batching_pipeline(tiny_folder, properties)
        texts.append(pipeline.generate([[10, 11, 12]], [greedy(20)])[0].m_generation_ids)
        blobs.append(sorted(path.name for path in tmp_path.iterdir()))
    assert texts[1:] == texts[:-1]
    assert blobs[1:] == blobs[:-1]
    assert len(blobs[0]) == (1 if backend == "openvino" else 0)
    assert ("warning: CACHE_DIR is left out" in capfd.readouterr().err) == (backend == "auto")


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30])
def test_an_integer_beyond_64_bits_is_refused_by_name(tiny_folder: Path, value: int) -> None:
    with pytest.raises(ValueError, match=rf"'NUM_STREAMS' is {value}; allowed are integers of 64"):
        batching_pipeline(tiny_folder, {"NUM_STREAMS": value})
