"""Weights as OpenVINO constants. Quantised ones keep their bits; the graph decodes them.

A quantised matrix [out, in] in groups of g along `in` becomes the subgraph that
NNCF and optimum-intel write, and that OpenVINO's plugins fuse into their MatMul and Gather:

    Constant u4, i8... [out, in/g, g] -> Convert f16 -> (Subtract zero point)
        -> Multiply scale f16 [out, in/g, 1] -> Reshape [out, in] -> Convert f32

A fractional zero point or an f32 scale needs more than f16's precision; its subgraph is f32
from the first Convert on. More dimensions than two (the experts of a layer) go in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov
import openvino.opset13 as ops
from openvino.op import Constant

from ...errors import ConversionError


@dataclass(frozen=True)
class DenseWeight:
    """Values as they are: f32, f16, bf16 (held as u16) or i64, any shape."""

    values: npt.NDArray[Any]
    element_type: ov.Type

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)


@dataclass(frozen=True)
class QuantizedWeight:
    """w = (values - zero_point) * scale, group by group.

    values: u8, bytes of `element_type`, [..., bytes of a row]. u4, i4 and f4e2m1 pack two a
    byte, low nibble first; u8, i8 one. scale: f16 or f32 [..., in/group_size]. zero_point:
    f32 or u8 [..., in/group_size], or one number for the whole matrix, or None for zero.
    """

    values: npt.NDArray[np.uint8]
    element_type: ov.Type
    scale: npt.NDArray[Any]
    zero_point: npt.NDArray[Any] | int | None
    group_size: int = 32

    @property
    def shape(self) -> tuple[int, ...]:
        *leading, groups = self.scale.shape
        return (*leading, groups * self.group_size)


Weight = DenseWeight | QuantizedWeight


def pack_nibbles(quants: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Packs neighbours together, the first in the low nibble. u8 [rows, n] -> u8 [rows, n/2]."""
    return quants[:, 0::2] | (quants[:, 1::2] << np.uint8(4))


@dataclass
class QuantizedRows:
    """A quantised matrix that is filled rows by rows, so that no copy of it is made."""

    count: int
    whole: QuantizedWeight | None = None

    def put(self, start: int, chunk: QuantizedWeight) -> None:
        if self.whole is None:
            arrays: dict[str, Any] = {
                name: self._empty(each) for name, each in _arrays(chunk).items()
            }
            self.whole = replace(chunk, **arrays)
        stop = start + len(chunk.values)
        for name, array in _arrays(self.whole).items():
            array[start:stop] = getattr(chunk, name)

    def weight(self, leading: tuple[int, ...]) -> QuantizedWeight:
        """Gives what was put, with its rows spread over the `leading` dimensions."""
        assert self.whole is not None
        arrays = _arrays(self.whole).items()
        return replace(self.whole, **{name: each.reshape(*leading, -1) for name, each in arrays})

    def _empty(self, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.empty((self.count, *like.shape[1:]), like.dtype)


def _arrays(weight: QuantizedWeight) -> dict[str, Any]:
    """Gives the members that have an entry for each row."""
    members = {name: getattr(weight, name) for name in ("values", "scale", "zero_point")}
    return {name: each for name, each in members.items() if isinstance(each, np.ndarray)}


def _with_groups_of(weight: QuantizedWeight, size: int) -> QuantizedWeight:
    """The same weight, with each group divided into some of `size`, a divisor of its own."""
    parts = weight.group_size // size
    point = weight.zero_point
    if isinstance(point, np.ndarray):
        point = np.repeat(point, parts, axis=-1)
    scale = np.repeat(weight.scale, parts, axis=-1)
    return replace(weight, scale=scale, zero_point=point, group_size=size)


def interleave_rows(first: Weight, second: Weight) -> Weight:
    """Takes a row of the first, one of the second, and so on.

    Both must be stored in the same type and have as many rows.
    """
    if first.element_type == second.element_type:
        if isinstance(first, DenseWeight) and isinstance(second, DenseWeight):
            return replace(first, values=_interleaved(first.values, second.values))
        if isinstance(first, QuantizedWeight) and isinstance(second, QuantizedWeight):
            group_size = min(first.group_size, second.group_size)
            first, second = (_with_groups_of(each, group_size) for each in (first, second))
            own, other = _arrays(first), _arrays(second)
            has_points = "zero_point" in own
            if own.keys() == other.keys() and (has_points or first.zero_point == second.zero_point):
                rows: dict[str, Any] = {n: _interleaved(own[n], other[n]) for n in own}
                return replace(first, **rows)
    raise ConversionError("two weights of one matrix must be stored in the same type")


def with_column_blocks(weight: Weight, order: Sequence[int]) -> Weight:
    """The weight's columns in as many blocks as `order` is long, in that order.

    Larger groups of quantised values are divided, where a block ends, to 32 at least. Raises
    ConversionError where a smaller one is in two blocks.
    """

    def moved(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        blocks = array.reshape(*array.shape[:-1], len(order), -1)
        return blocks[..., list(order), :].reshape(array.shape)

    if isinstance(weight, DenseWeight):
        return replace(weight, values=moved(weight.values))
    size = weight.shape[-1] // len(order)
    group_size = gcd(size, weight.group_size)
    if group_size < min(weight.group_size, 32):
        raise ConversionError(f"groups of {weight.group_size} values do not fit heads of {size}")
    weight = _with_groups_of(weight, group_size)
    arrays: dict[str, Any] = {name: moved(each) for name, each in _arrays(weight).items()}
    return replace(weight, **arrays)


def _interleaved(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[Any]:
    *leading, rows, columns = first.shape
    return np.stack([first, second], -2).reshape(*leading, 2 * rows, columns)


def dense_f32(weight: Weight) -> npt.NDArray[np.float32]:
    """Gives the weight's values in f32; it is for small tensors (norms, frequencies).

    Raises ConversionError for a type narrower than eight bits: nobody packs vectors so.
    """
    if isinstance(weight, DenseWeight):
        if weight.element_type == ov.Type.bf16:
            return (weight.values.astype(np.uint32) << 16).view(np.float32)
        return weight.values.astype(np.float32)
    if weight.element_type not in (ov.Type.u8, ov.Type.i8):
        raise ConversionError(f"a vector must not be quantised to {weight.element_type}")
    dtype = np.uint8 if weight.element_type == ov.Type.u8 else np.int8
    values = weight.values.view(dtype).astype(np.float32)
    groups = values.reshape(*weight.scale.shape, weight.group_size)
    if isinstance(weight.zero_point, np.ndarray):
        groups = groups - weight.zero_point[..., None]
    elif weight.zero_point is not None:
        groups = groups - np.float32(weight.zero_point)
    return (groups * weight.scale.astype(np.float32)[..., None]).reshape(weight.shape)


def dense_i64(weight: Weight) -> npt.NDArray[np.int64]:
    """Gives whole numbers. Raises ConversionError for others."""
    if not isinstance(weight, DenseWeight) or weight.element_type != ov.Type.i64:
        raise ConversionError(f"whole numbers must be of type i64, not {weight.element_type}")
    return weight.values


def _constant(
    values: npt.NDArray[Any], shape: tuple[int, ...], element_type: ov.Type, name: str
) -> ov.Node:
    # The tensor owns its memory: one made over a numpy array does not keep the array alive.
    tensor = ov.Tensor(element_type, ov.Shape(shape))
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    tensor.data.reshape(-1).view(np.uint8)[:] = raw
    return named(Constant(tensor, shared_memory=True), name)


def named(node: ov.Node, name: str) -> ov.Node:
    node.set_friendly_name(name)
    return node


def emit(weight: Weight, name: str) -> ov.Node:
    """Makes a subgraph of the weight, whose output is f32 of the weight's shape."""
    if isinstance(weight, DenseWeight):
        values = _constant(weight.values, weight.values.shape, weight.element_type, name)
        if weight.element_type == ov.Type.f32:
            return values
        return named(ops.convert(values, "f32"), f"{name}/convert")
    # A group as long as the row needs no dimension of its own.
    whole_rows = weight.scale.shape[-1] == 1
    grouped = weight.shape if whole_rows else (*weight.scale.shape, weight.group_size)
    ones = (*grouped[:-1], 1)
    exact = weight.scale.dtype == np.float32 or (
        isinstance(weight.zero_point, np.ndarray) and weight.zero_point.dtype == np.float32
    )
    precision = "f32" if exact else "f16"
    values = _constant(weight.values, grouped, weight.element_type, name)
    result = named(ops.convert(values, precision), f"{name}/convert")
    if weight.zero_point is not None:
        points, shape = weight.zero_point, ones
        if isinstance(points, int):
            points, shape = np.array([points], np.uint8), (1,) * len(ones)
        zero_point = _operand(points, shape, precision, f"{name}/zero_point")
        result = named(ops.subtract(result, zero_point), f"{name}/subtract")
    scale = _operand(weight.scale, ones, precision, f"{name}/scale")
    result = ops.multiply(result, scale)
    result = named(result, f"{name}/fq_weights_1")
    if not whole_rows:
        shape = ops.constant(np.array(weight.shape, np.int64))
        result = named(ops.reshape(result, shape, False), f"{name}/fq_weights_1/reshape")
    if exact:
        return result
    return named(ops.convert(result, "f32"), f"{name}/fq_weights_1/convert")


def _operand(
    values: npt.NDArray[Any], shape: tuple[int, ...], precision: str, name: str
) -> ov.Node:
    """Makes a constant of scales or zero points, in the subgraph's precision."""
    constant = _constant(values, shape, ov.Type(values.dtype), name)
    if values.dtype == {"f16": np.float16, "f32": np.float32}[precision]:
        return constant
    return named(ops.convert(constant, precision), f"{name}/convert")
