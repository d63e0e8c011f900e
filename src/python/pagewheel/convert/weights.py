"""Tensors as OpenVINO constants: quantised ones keep their bits and are dressed.

A quantised matrix [out, in] in groups of 32 along `in` becomes the subgraph that
NNCF and optimum-intel write and OpenVINO's plugins fuse into their MatMul and Gather:

    Constant u4 or i8 [out, in/32, 32] -> Convert f16 -> (Subtract zero point)
        -> Multiply scale f16 [out, in/32, 1] -> Reshape [out, in] -> Convert f32

A fractional zero point needs more than f16's precision; its subgraph is f32 from the first
Convert on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov
import openvino.opset13 as ops
from gguf.constants import GGMLQuantizationType
from openvino.op import Constant

from .errors import ConversionError

GROUP_SIZE = 32

# Rows handled at a time: bounds temporary memory without slowing numpy down.
_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True)
class DenseWeight:
    """Values as they are: f32, f16 or bf16 (held as u16), any shape."""

    values: npt.NDArray[Any]
    element_type: ov.Type


@dataclass(frozen=True)
class QuantizedWeight:
    """w = (values - zero_point) * scale, group by group.

    values: u8, bytes of `element_type`. u4 packs two a byte, low nibble first:
    [out, in/2]; i8: [out, in]. scale: f16 [out, in/32]. zero_point: f32 [out, in/32], or
    one number for the whole matrix, or None for zero.
    """

    values: npt.NDArray[np.uint8]
    element_type: ov.Type
    scale: npt.NDArray[np.float16]
    zero_point: npt.NDArray[np.float32] | int | None

    @property
    def shape(self) -> tuple[int, int]:
        rows, groups = self.scale.shape
        return rows, groups * GROUP_SIZE


Weight = DenseWeight | QuantizedWeight


def _fields(data: npt.NDArray[np.uint8], *names_and_types: tuple[str, str]) -> npt.NDArray[Any]:
    """Views rows of quantisation blocks as records. u8 [rows, bytes] -> [rows, blocks]."""
    return np.ascontiguousarray(data).view(np.dtype(list(names_and_types)))


def _pack_nibbles(quants: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """GGUF keeps values 0..15 of a group in low nibbles and 16..31 in high ones;
    OpenVINO keeps neighbours together. u8 [rows, groups, 16] -> u8 [rows, groups * 16].
    """
    rows, groups, _ = quants.shape
    low = quants & 0x0F
    high = quants >> 4
    packed = np.empty_like(quants)
    packed[..., :8] = low[..., 0::2] | (low[..., 1::2] << 4)
    packed[..., 8:] = high[..., 0::2] | (high[..., 1::2] << 4)
    return packed.reshape(rows, groups * 16)


def _decode_q4_0(data: npt.NDArray[np.uint8]) -> QuantizedWeight:
    blocks = _fields(data, ("scale", "<f2"), ("quants", "16u1"))
    return QuantizedWeight(_pack_nibbles(blocks["quants"]), ov.Type.u4, blocks["scale"].copy(), 8)


def _decode_q4_1(data: npt.NDArray[np.uint8]) -> QuantizedWeight:
    """w = q * d + m becomes (q - zero_point) * d with zero_point = -m/d in f32.

    That equals q * d + m to |m| / 2**23. In f16 the zero point would move a weight by up to
    |m| / 2048, which costs SmolLM2's logits 6e-3 at the worst position instead of 7e-6; the
    CPU plugin holds zero points in f32 whatever the file has. A group whose d is 0 is
    constant: (0 - -1) * m.
    """
    blocks = _fields(data, ("scale", "<f2"), ("minimum", "<f2"), ("quants", "16u1"))
    scale = blocks["scale"].copy()
    minimum = blocks["minimum"]
    quants = blocks["quants"]
    constant = scale == 0
    if constant.any():
        quants = quants.copy()
        quants[constant] = 0
        scale[constant] = minimum[constant]
    divisor = np.where(constant, np.float32(1), scale.astype(np.float32))
    zero_point = np.where(constant, np.float32(-1), -minimum.astype(np.float32) / divisor)
    return QuantizedWeight(_pack_nibbles(quants), ov.Type.u4, scale, zero_point)


def _decode_q8_0(data: npt.NDArray[np.uint8]) -> QuantizedWeight:
    blocks = _fields(data, ("scale", "<f2"), ("quants", "32u1"))
    rows, groups = blocks.shape
    values = blocks["quants"].reshape(rows, groups * GROUP_SIZE)
    return QuantizedWeight(values, ov.Type.i8, blocks["scale"].copy(), None)


_QUANTIZED: Mapping[GGMLQuantizationType, Callable[[npt.NDArray[np.uint8]], QuantizedWeight]] = {
    GGMLQuantizationType.Q4_0: _decode_q4_0,
    GGMLQuantizationType.Q4_1: _decode_q4_1,
    GGMLQuantizationType.Q8_0: _decode_q8_0,
}
_DENSE: Mapping[GGMLQuantizationType, tuple[str, ov.Type]] = {
    GGMLQuantizationType.F32: ("<f4", ov.Type.f32),
    GGMLQuantizationType.F16: ("<f2", ov.Type.f16),
    GGMLQuantizationType.BF16: ("<u2", ov.Type.bf16),
}
SUPPORTED_TYPES = tuple(kind.name for kind in (*_QUANTIZED, *_DENSE))


def decode(
    name: str,
    kind: GGMLQuantizationType,
    shape: tuple[int, ...],
    data: npt.NDArray[np.uint8],
) -> Weight:
    """Turns a tensor's bytes, u8 [rows, bytes per row], into a weight.

    Raises ConversionError, naming the tensor, for another type or for scales that are
    not finite.
    """
    if kind in _DENSE:
        dtype, element_type = _DENSE[kind]
        return DenseWeight(np.ascontiguousarray(data).view(dtype).reshape(shape), element_type)
    if kind not in _QUANTIZED:
        raise ConversionError(
            f"tensor {name!r} has type {kind.name}; supported are {', '.join(SUPPORTED_TYPES)}"
        )
    if len(shape) != 2:
        raise ConversionError(f"tensor {name!r} of type {kind.name} must be a matrix, not {shape}")
    step = max(1, _CHUNK_BYTES // data.shape[1])
    chunks = [_QUANTIZED[kind](data[i : i + step]) for i in range(0, len(data), step)]
    weight = _join(chunks)
    zero_point = weight.zero_point
    if not np.isfinite(weight.scale).all() or (
        isinstance(zero_point, np.ndarray) and not np.isfinite(zero_point).all()
    ):
        raise ConversionError(f"tensor {name!r} holds a scale or minimum that is not finite")
    return weight


def _join(chunks: list[QuantizedWeight]) -> QuantizedWeight:
    if len(chunks) == 1:
        return chunks[0]
    zero_point = chunks[0].zero_point
    if isinstance(zero_point, np.ndarray):
        zero_point = np.concatenate([chunk.zero_point for chunk in chunks])
    return QuantizedWeight(
        np.concatenate([chunk.values for chunk in chunks]),
        chunks[0].element_type,
        np.concatenate([chunk.scale for chunk in chunks]),
        zero_point,
    )


def take_rows(weight: Weight, rows: npt.NDArray[np.intp]) -> Weight:
    """The weight with its rows in the given order."""
    if isinstance(weight, DenseWeight):
        return DenseWeight(weight.values[rows], weight.element_type)
    zero_point = weight.zero_point
    if isinstance(zero_point, np.ndarray):
        zero_point = zero_point[rows]
    return QuantizedWeight(weight.values[rows], weight.element_type, weight.scale[rows], zero_point)


def dense_f32(weight: Weight) -> npt.NDArray[np.float32]:
    """The weight's values in f32; for small tensors (norms, frequencies)."""
    if isinstance(weight, QuantizedWeight):
        raise ConversionError("a vector must not be quantised")
    if weight.element_type == ov.Type.bf16:
        return (weight.values.astype(np.uint32) << 16).view(np.float32)
    return weight.values.astype(np.float32)


def _constant(
    values: npt.NDArray[Any], shape: tuple[int, ...], element_type: ov.Type, name: str
) -> ov.Node:
    # The tensor owns its memory: one made over a numpy array does not keep the array alive.
    tensor = ov.Tensor(element_type, ov.Shape(shape))
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    tensor.data.reshape(-1).view(np.uint8)[:] = raw
    node = Constant(tensor, shared_memory=True)
    node.set_friendly_name(name)
    return node


def _named(node: ov.Node, name: str) -> ov.Node:
    node.set_friendly_name(name)
    return node


def emit(weight: Weight, name: str) -> ov.Node:
    """The weight as a subgraph whose output is f32, of the weight's shape."""
    if isinstance(weight, DenseWeight):
        values = _constant(weight.values, weight.values.shape, weight.element_type, name)
        if weight.element_type == ov.Type.f32:
            return values
        return _named(ops.convert(values, "f32"), f"{name}/convert")
    rows, columns = weight.shape
    groups = columns // GROUP_SIZE
    precision = "f32" if isinstance(weight.zero_point, np.ndarray) else "f16"
    values = _constant(weight.values, (rows, groups, GROUP_SIZE), weight.element_type, name)
    result = _named(ops.convert(values, precision), f"{name}/convert")
    if weight.zero_point is not None:
        result = ops.subtract(result, _zero_point(weight.zero_point, name))
        result = _named(result, f"{name}/subtract")
    scale = _constant(weight.scale, (rows, groups, 1), ov.Type.f16, f"{name}/scale")
    if precision == "f32":
        scale = _named(ops.convert(scale, "f32"), f"{name}/scale/convert")
    result = _named(ops.multiply(result, scale), f"{name}/fq_weights_1")
    shape = ops.constant(np.array([rows, columns], np.int64))
    result = _named(ops.reshape(result, shape, False), f"{name}/fq_weights_1/reshape")
    if precision == "f32":
        return result
    return _named(ops.convert(result, "f32"), f"{name}/fq_weights_1/convert")


def _zero_point(zero_point: npt.NDArray[np.float32] | int, name: str) -> ov.Node:
    if isinstance(zero_point, int):
        value = np.array([zero_point], np.uint8)
        constant = _constant(value, (1, 1, 1), ov.Type.u8, f"{name}/zero_point")
        return _named(ops.convert(constant, "f16"), f"{name}/zero_point/convert")
    return _constant(zero_point, (*zero_point.shape, 1), ov.Type.f32, f"{name}/zero_point")
