"""Quantised tensors become constants that dequantise to what the gguf package gives."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import openvino as ov
import openvino.opset13 as ops
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Kind
from gguf_tensors import random_tensor
from openvino.op import Parameter
from openvino_core import CORE

from pagewheel.convert import ConversionError
from pagewheel.convert.gguf.blocks import SUPPORTED_TYPES, decode, decode_transposed
from pagewheel.convert.weights.weight import (
    QuantizedWeight,
    Weight,
    dense_f32,
    emit,
    interleave_rows,
    with_column_blocks,
)

COMPUTE_F32 = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}


def compiled_weight(kind: Kind, shape: tuple[int, int], data: np.ndarray[Any, Any]) -> Any:
    """The weight as OpenVINO's CPU plugin multiplies with it: identity times its transpose."""
    x = Parameter(ov.Type.f32, ov.PartialShape([-1, shape[1]]))
    weight = emit(decode("w", kind, shape, data), "w")
    model = ov.Model([ops.matmul(x, weight, False, True)], [x], "one")
    compiled = CORE.compile_model(model, "CPU", COMPUTE_F32)
    layers = {
        op.get_rt_info()["layerType"].astype(str) for op in compiled.get_runtime_model().get_ops()
    }
    assert "FullyConnected" in layers
    return compiled(np.eye(shape[1], dtype=np.float32))[0].T


EXACT = (Kind.F32, Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q5_0, Kind.Q8_0)
EXACT = (*EXACT, Kind.Q3_K, Kind.IQ4_NL, Kind.IQ4_XS, Kind.MXFP4)
WITH_MINIMUM = (Kind.Q4_1, Kind.Q5_1, Kind.Q4_K, Kind.Q5_K)
IN_HALVES = (Kind.Q4_K, Kind.Q5_K)  # scales and minimums
ROUNDED = (Kind.TQ1_0, Kind.TQ2_0, Kind.IQ1_S, Kind.IQ2_XXS, Kind.IQ2_XS, Kind.IQ2_S)
ROUNDED = (*ROUNDED, Kind.IQ3_XXS, Kind.IQ3_S, Kind.Q2_K)


def deviation(kind: Kind, expected: np.ndarray[Any, Any], weight: Weight) -> np.ndarray[Any, Any]:
    """docs/gguf.md's bound for each weight."""
    bound = np.abs(expected) * 2.0**-23
    if kind in WITH_MINIMUM:
        assert isinstance(weight, QuantizedWeight)
        minimum = np.abs(weight.zero_point * weight.scale.astype(np.float64))
        minimum = np.repeat(minimum, weight.group_size, axis=-1)
        bound += minimum * 2.0**-22
        if kind in IN_HALVES:
            # 2^-25 is half the step of the smallest f16 numbers; a value is 31 at most.
            bound += 2.0**-11 * (np.abs(expected) + 2 * minimum) + 32 * 2.0**-25
    if kind == Kind.Q6_K:  # pairs of groups of 16 are joined
        assert isinstance(weight, QuantizedWeight)
        step = np.repeat(np.abs(weight.scale.astype(np.float64)), 32, axis=-1)
        # Half a step, a whole one where the other group's sign makes 128 of -128.
        clipped = weight.values.view(np.int8) == 127
        bound += step * np.where(clipped, 1, 0.5) + np.abs(expected) * 2.0**-11
    if kind in ROUNDED:
        largest = np.abs(expected).reshape(len(expected), -1, 32).max(axis=-1)
        bound += np.repeat(largest, 32, axis=-1) / 254 * (1 + 1e-5)
    return bound


@pytest.mark.parametrize(
    "kind", [*EXACT, *WITH_MINIMUM, Kind.Q6_K, *ROUNDED], ids=lambda kind: kind.name
)
def test_constants_equal_the_gguf_packages(kind: Kind) -> None:
    data = random_tensor(kind, 70, 512, np.random.default_rng(3))
    expected = gguf.dequantize(data, kind).astype(np.float64)
    got = compiled_weight(kind, (70, 512), data)
    excess = np.abs(got - expected) - deviation(kind, expected, decode("w", kind, (70, 512), data))
    assert excess.max() <= 0


BYTES_PER_WEIGHT = {
    Kind.F32: 4,
    Kind.F16: 2,
    Kind.BF16: 2,
    Kind.Q4_0: 0.5625,
    Kind.Q4_1: 0.6875,
    Kind.Q5_0: 1.0625,
    Kind.Q5_1: 1.1875,
    Kind.Q8_0: 1.0625,
    Kind.Q2_K: 1.125,
    Kind.Q3_K: 1 + 2 / 256,
    Kind.Q4_K: 0.6875,
    Kind.Q5_K: 1.1875,
    Kind.Q6_K: 1.0625,
    Kind.IQ4_NL: 1.0625,
    Kind.IQ4_XS: 1.125,
    Kind.MXFP4: 1.125,
    Kind.IQ3_S: 1.125,
}


@pytest.mark.parametrize("kind", BYTES_PER_WEIGHT, ids=lambda kind: kind.name)
def test_constants_take_the_documented_bytes(kind: Kind) -> None:
    weight = decode("w", kind, (8, 512), random_tensor(kind, 8, 512, np.random.default_rng(1)))
    parts = [weight.values]
    if isinstance(weight, QuantizedWeight):
        parts += [part for part in (weight.scale, weight.zero_point) if not np.isscalar(part)]
    assert (
        sum(part.nbytes for part in parts if part is not None) / (8 * 512)
        == (BYTES_PER_WEIGHT[kind])
    )


QUANTISED = [Kind[name] for name in SUPPORTED_TYPES if GGML_QUANT_SIZES[Kind[name]][0] > 1]


@pytest.mark.parametrize("kind", QUANTISED, ids=lambda kind: kind.name)
def test_quantised_matrices_take_a_form_that_kernels_for_int8_activations_know(kind: Kind) -> None:
    weights, size = GGML_QUANT_SIZES[kind]
    data = np.zeros((6, 512 // weights * size), np.uint8)
    matrix, stack = decode("w", kind, (6, 512), data), decode("w", kind, (3, 2, 512), data)
    assert isinstance(matrix, QuantizedWeight) and isinstance(stack, QuantizedWeight)
    assert matrix.element_type in (ov.Type.u4, ov.Type.u8, ov.Type.i8)
    assert stack.element_type in (ov.Type.f4e2m1, matrix.element_type)
    assert matrix.group_size % 32 == 0 and stack.group_size % 32 == 0


def test_stacked_experts_in_mxfp4_keep_their_four_bits() -> None:
    data = random_tensor(Kind.MXFP4, 3 * 5, 256, np.random.default_rng(2))
    weight = decode("w", Kind.MXFP4, (3, 5, 256), data)
    assert isinstance(weight, QuantizedWeight)
    assert weight.values.nbytes + weight.scale.nbytes == 0.625 * 3 * 5 * 256
    compiled = CORE.compile_model(ov.Model([emit(weight, "w")], [], "w"), "CPU", COMPUTE_F32)
    expected = gguf.dequantize(data, Kind.MXFP4).reshape(3, 5, 256)
    np.testing.assert_allclose(compiled([])[0], expected, rtol=2e-6, atol=1e-6)


def test_a_stack_is_transposed_by_value() -> None:
    for kind, tolerance in ((Kind.F32, 0), (Kind.BF16, 0), (Kind.Q4_K, 2.0**-11)):
        data = random_tensor(kind, 3 * 5, 256, np.random.default_rng(2))
        expected = gguf.dequantize(data, kind).reshape(3, 5, 256).transpose(0, 2, 1)
        got = dense_f32(decode_transposed("w", kind, (3, 5, 256), data))
        np.testing.assert_allclose(got, expected.reshape(3 * 256, 5), rtol=tolerance, atol=1e-7)


def test_large_groups_are_divided_where_heads_or_another_matrix_have_smaller_ones() -> None:
    rng = np.random.default_rng(4)
    wide = decode("w", Kind.Q3_K, (4, 512), random_tensor(Kind.Q3_K, 4, 512, rng))
    other = decode("w", Kind.Q8_0, (4, 512), random_tensor(Kind.Q8_0, 4, 512, rng))
    order = [3, 1, 0, 2]
    heads = dense_f32(wide).reshape(4, 4, 128)[:, order].reshape(4, 512)
    np.testing.assert_array_equal(dense_f32(with_column_blocks(wide, order)), heads)
    both = dense_f32(interleave_rows(wide, other))
    np.testing.assert_array_equal(both[0::2], dense_f32(wide))
    np.testing.assert_array_equal(both[1::2], dense_f32(other))
    with pytest.raises(ConversionError, match="groups of 32 values do not fit heads of 16"):
        with_column_blocks(other, range(32))


def test_chunks_of_a_large_tensor_join() -> None:
    data = random_tensor(Kind.Q4_1, 4000, 2048, np.random.default_rng(5))
    whole = decode("w", Kind.Q4_1, (4000, 2048), data)
    for row in (0, 203, 204, 3999):  # a chunk of 256 KB has 204 rows
        one = decode("w", Kind.Q4_1, (1, 2048), data[row : row + 1])
        assert isinstance(whole, QuantizedWeight) and isinstance(one, QuantizedWeight)
        assert (whole.values[row] == one.values[0]).all()
        assert (whole.scale[row] == one.scale[0]).all()
        assert (whole.zero_point[row] == one.zero_point[0]).all()


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q5_1, Kind.Q6_K, Kind.MXFP4, Kind.IQ3_S])
def test_scales_that_are_not_finite_are_refused(kind: Kind) -> None:
    data = np.full_like(random_tensor(kind, 1, 256, np.random.default_rng(1)), 0xFF)
    with pytest.raises(ConversionError, match=r"'blk\.3\.w'.*not finite"):
        decode("blk.3.w", kind, (1, 256), data)


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
