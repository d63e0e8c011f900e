"""Quantised tensors become constants that dequantise to what the gguf package gives."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import openvino as ov
import openvino.opset13 as ops
import pytest
from gguf.constants import GGMLQuantizationType as Kind
from openvino.op import Parameter

from pagewheel.convert.weights import decode, emit

COMPUTE_F32 = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}


def compiled_weight(kind: Kind, shape: tuple[int, int], data: np.ndarray[Any, Any]) -> Any:
    """The weight as the CPU plugin multiplies with it: identity times its transpose."""
    x = Parameter(ov.Type.f32, ov.PartialShape([-1, shape[1]]))
    weight = emit(decode("w", kind, shape, data), "w")
    model = ov.Model([ops.matmul(x, weight, False, True)], [x], "one")
    compiled = ov.Core().compile_model(model, "CPU", COMPUTE_F32)
    layers = {
        op.get_rt_info()["layerType"].astype(str) for op in compiled.get_runtime_model().get_ops()
    }
    assert "FullyConnected" in layers
    return compiled(np.eye(shape[1], dtype=np.float32))[0].T


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q4_1, Kind.Q8_0, Kind.F16, Kind.F32, Kind.BF16])
def test_constants_equal_the_gguf_packages(kind: Kind) -> None:
    rng = np.random.default_rng(3)
    weights = (rng.standard_normal((96, 128)) * rng.uniform(0.01, 3, (96, 1))).astype(np.float32)
    data = gguf.quantize(weights, kind)
    expected = gguf.dequantize(data, kind)
    got = compiled_weight(kind, weights.shape, data.view(np.uint8).reshape(96, -1))
    np.testing.assert_allclose(got, expected, rtol=0, atol=np.abs(expected).max() * 2e-7)


def q4_1_block(scale: float, minimum: float) -> np.ndarray[Any, Any]:
    head = np.array([scale, minimum], np.float16).view(np.uint8)
    return np.concatenate([head, np.arange(16, dtype=np.uint8) * 17])


@pytest.mark.parametrize(
    ("scale", "minimum"),
    [
        (0.0, 0.0),
        (0.0, -1.5),
        (6e-8, 1000.0),
        (6e-8, -65504.0),
        (-0.25, 3.0),
        (1.0, 0.0),
        (0.01, -9.0),
    ],
)
def test_extreme_groups_of_q4_1_stay_exact(scale: float, minimum: float) -> None:
    data = q4_1_block(scale, minimum)[None]
    expected = gguf.dequantize(data, Kind.Q4_1)
    got = compiled_weight(Kind.Q4_1, (1, 32), data)
    np.testing.assert_allclose(got, expected, rtol=0, atol=np.abs(expected).max() * 3e-7)


def test_four_bit_weights_stay_four_bits() -> None:
    weights = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)
    for kind in (Kind.Q4_0, Kind.Q4_1):
        weight = decode("w", kind, (64, 64), gguf.quantize(weights, kind))
        assert weight.element_type == ov.Type.u4
        assert weight.values.nbytes == 64 * 64 // 2
