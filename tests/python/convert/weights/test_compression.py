"""Compressed weights: bounds by definition, and the graph OpenVINO fuses."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from convert import tiny_models
from convert.stateful_decoder import EXACT, Decoder, relative, runtime_layers
from openvino_core import CORE

from pagewheel.convert import convert
from pagewheel.convert.files.source_folder import SourceFolder
from pagewheel.convert.graph.model import build_model
from pagewheel.convert.huggingface.source import HuggingFaceSource
from pagewheel.convert.weights.compress import compressing
from pagewheel.convert.weights.compression import Compression
from pagewheel.convert.weights.weight import DenseWeight, QuantizedWeight, emit

TEXT = tiny_models.random_ids(60)


def values_of(weight: Any) -> Any:
    """What OpenVINO computes the subgraph of a weight to, f32."""
    model = ov.Model([emit(weight, "weight")], [])
    compiled = CORE.compile_model(model, "CPU", EXACT)
    return compiled({})[0]


def matrix(*shape: int) -> DenseWeight:
    rng = np.random.default_rng(11)
    values = rng.standard_normal(shape).astype(np.float32)
    values[..., 0, :] = 0  # groups of zeros
    values[..., 1, :] += 10  # and far from zero
    return DenseWeight(values, ov.Type.f32)


@pytest.mark.parametrize("symmetric", [False, True], ids=["asymmetric", "symmetric"])
@pytest.mark.parametrize(
    ("weight_format", "group_size", "levels"),
    [("int8", 64, 255), ("int4", 32, 15), ("int4", 64, 15), ("int4", 128, 15)],
)
@pytest.mark.parametrize("shape", [(5, 192), (3, 4, 64)])
def test_each_value_is_within_half_a_step(
    weight_format: str, group_size: int, levels: int, symmetric: bool, shape: tuple[int, ...]
) -> None:
    dense = matrix(*shape)
    compression = Compression(weight_format, symmetric, group_size)
    weight = compressing(lambda _: dense, compression)("layers.0.mlp.up_proj")
    assert isinstance(weight, QuantizedWeight)
    assert weight.shape == shape
    group = weight.group_size
    fits = max(each for each in (32, 64, 128) if each <= group_size and shape[-1] % each == 0)
    assert group == (shape[-1] if weight_format == "int8" else fits)
    grouped = dense.values.reshape(*shape[:-1], -1, group)
    if symmetric:
        span = 2 * np.abs(grouped).max(-1, keepdims=True)
    else:
        span = np.maximum(grouped.max(-1, keepdims=True), 0)
        span = span - np.minimum(grouped.min(-1, keepdims=True), 0)
    error = np.abs(values_of(weight).reshape(grouped.shape) - grouped)
    # Half a step; a whole one at the end that symmetric values reach only on one side; scales
    # are f16.
    bound = span / levels * (1.0 if symmetric else 0.5)
    assert (error <= bound + span * 2.0**-10 + 1e-7).all()


def test_columns_that_no_group_fits_become_int8() -> None:
    weight = compressing(lambda _: matrix(4, 50), Compression("int4"))("layers.0.mlp.up_proj")
    assert isinstance(weight, QuantizedWeight)
    assert weight.element_type == ov.Type.u8


def test_embeddings_stay_in_8_bits_and_routers_as_they_are() -> None:
    compressed = compressing(lambda _: matrix(4, 64), Compression("int4"))
    assert compressed("embed_tokens").element_type == ov.Type.u8
    assert compressed("layers.0.mlp.gate").element_type == ov.Type.f32


def test_what_f16_cannot_hold_stays_as_it_is() -> None:
    large = DenseWeight(np.full((2, 32), 1e6, np.float32), ov.Type.f32)
    assert compressing(lambda _: large, Compression("f16"))("norm").element_type == ov.Type.f32
    small = matrix(2, 32)
    half = compressing(lambda _: small, Compression("f16"))("norm")
    np.testing.assert_array_equal(half.values, small.values.astype(np.float16))


def test_large_models_become_int8_by_themselves() -> None:
    assert Compression().chosen(1_000_000_001).weight_format == "int8"
    assert Compression().chosen(1_000_000_000).weight_format == "auto"
    assert Compression("f16").chosen(2_000_000_000).weight_format == "f16"


def test_what_only_drafts_becomes_int8_by_itself() -> None:
    assert Compression().chosen(1, only_drafts=True).weight_format == "int8"
    assert Compression("f16").chosen(1, only_drafts=True).weight_format == "f16"


@pytest.mark.parametrize(
    ("name", "options", "kind"),
    [
        ("llama", {"weight_format": "f16"}, "f32"),
        ("llama", {"weight_format": "int8"}, "u8"),
        ("llama", {"weight_format": "int8", "symmetric": True}, "i8"),
        ("llama-even", {"weight_format": "int4", "group_size": 32}, "u4"),
        ("llama-even", {"weight_format": "int4", "group_size": 32, "symmetric": True}, "u4"),
        ("qwen3_moe", {"weight_format": "int8"}, "u8"),
    ],
)
def test_a_compressed_model_computes_with_its_values_and_is_fused(
    tmp_path: Path, name: str, options: dict[str, Any], kind: str
) -> None:
    folder = tiny_models.save(tiny_models.make(name), tmp_path / "source")
    source = HuggingFaceSource(SourceFolder(folder))
    compressed = compressing(source.weight, Compression(**options))

    def decompressed(weight_name: str) -> DenseWeight:
        return DenseWeight(values_of(compressed(weight_name)), ov.Type.f32)

    expected = build_model(source.architecture, decompressed)
    converted = convert(folder, tmp_path / "converted", progress=False, **options)
    got = CORE.read_model(converted / "openvino_model.xml")
    assert relative(Decoder(got)(TEXT), Decoder(expected)(TEXT)) < 1e-4
    layers = runtime_layers(got, EXACT)
    assert layers["FullyConnected", kind] >= 2 * 4, layers


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss"])
def test_only_the_chosen_experts_are_computed(tmp_path: Path, name: str) -> None:
    """OpenVINO's CPU plugin takes the form of the experts for gathered MatMuls."""
    folder = tiny_models.save(tiny_models.make(name), tmp_path / "source")
    source = HuggingFaceSource(SourceFolder(folder))
    for compression in (Compression(), Compression("int8"), Compression("int4", group_size=32)):
        model = build_model(source.architecture, compressing(source.weight, compression))
        kinds: Counter[str] = Counter()
        for (kind, _), count in runtime_layers(model, EXACT).items():
            kinds[kind] += count
        assert kinds["GatherMatmul"] == (4 if name == "gpt_oss" else 6), kinds
