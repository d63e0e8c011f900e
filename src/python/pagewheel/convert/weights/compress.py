"""Weight compression without data: groups of neighbours share a scale.

Round to nearest between a group's least and largest value, as NNCF does without a data set.
Written here because it is 100 lines of numpy, and NNCF brings several hundred megabytes of
packages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
import openvino as ov

from ...errors import ConversionError
from .compression import GROUP_SIZES, Compression
from .weight import (
    DenseWeight,
    QuantizedRows,
    QuantizedWeight,
    Weight,
    dense_f32,
    pack_nibbles,
)

# Few values each, or what small errors change much.
_NOT_COMPRESSED = (".mlp.gate", ".bias", ".conv.conv", ".conv1d")
# Beside the embeddings; decays and betas of delta nets and Mamba 2's steps, a row for each head.
_NOT_IN_4_BITS = ("embed_tokens", "lm_head", ".in_proj_a", ".in_proj_b", ".mamba.dt_proj")

# f32 values handled at a time: bounds temporary memory.
_CHUNK_VALUES = 1 << 18


def compressing(
    weight: Callable[[str], Weight],
    compression: Compression,
    give_back_pages: Callable[[], None] = lambda: None,
) -> Callable[[str], Weight]:
    """Gives `weight` with every matrix compressed that is not yet.

    `give_back_pages` is called when what `weight` gave last is needed no more: its compressed
    form is an array of its own. Raises ConversionError for values that are not finite.
    """

    def compressed(name: str) -> Weight:
        dense = weight(name)
        if isinstance(dense, QuantizedWeight):
            return dense
        if dense.values.ndim < 2 or name.endswith(_NOT_COMPRESSED):
            return dense
        try:
            result = _compressed(dense, name, compression)
        except ConversionError as error:
            raise ConversionError(f"weight {name!r}: {error}") from None
        if result is not dense:
            give_back_pages()
        return result

    return compressed


def _compressed(dense: DenseWeight, name: str, compression: Compression) -> Weight:
    if compression.weight_format == "auto":
        return dense
    if compression.weight_format == "f16":
        return _as_f16(dense)
    columns = dense.values.shape[-1]
    if compression.weight_format == "int4" and not name.endswith(_NOT_IN_4_BITS):
        for group_size in sorted(GROUP_SIZES, reverse=True):
            if group_size <= compression.group_size and columns % group_size == 0:
                quantize = _int4_symmetric if compression.symmetric else partial(_between, 15)
                return _quantized(dense, quantize, group_size)
    if compression.symmetric:
        return _quantized(dense, _int8_symmetric, columns)
    return _quantized(dense, partial(_between, 255), columns)


def _as_f16(dense: DenseWeight) -> DenseWeight:
    """Gives f16, or the weight as it is where a value is too large for f16."""
    if dense.element_type == ov.Type.f16:
        return dense
    result = np.empty(dense.values.shape, np.float16)
    rows = result.reshape(-1, dense.shape[-1])
    for start, chunk in _chunks(dense):
        if np.abs(chunk).max(initial=0) > np.finfo(np.float16).max:
            return dense
        rows[start : start + len(chunk)] = chunk
    return DenseWeight(result, ov.Type.f16)


# Makes of f32 [rows, groups, group] u8 values [rows, in], scales and zero points [rows, groups].
_Quantize = Callable[[npt.NDArray[np.float32]], QuantizedWeight]


def _quantized(dense: DenseWeight, quantize: _Quantize, group_size: int) -> QuantizedWeight:
    result = QuantizedRows(math.prod(dense.shape[:-1]))
    for start, chunk in _chunks(dense):
        if not np.isfinite(chunk).all():
            raise ConversionError("its values are not finite")
        quants = quantize(chunk.reshape(len(chunk), -1, group_size))
        if not np.isfinite(quants.scale).all():
            raise ConversionError("its values are too large for scales in f16")
        result.put(start, quants)
    return result.weight(dense.values.shape[:-1])


def _between(levels: int, chunk: npt.NDArray[np.float32]) -> QuantizedWeight:
    """Maps a group's values, from the least to the largest and with 0, onto 0 to `levels`."""
    least = np.minimum(chunk.min(-1), 0)
    largest = np.maximum(chunk.max(-1), 0)
    scale = _f16_scale((largest - least) / np.float32(levels))
    divisor = scale.astype(np.float32)
    zero = np.clip(np.rint(-least / divisor), 0, levels)
    quants = np.clip(np.rint(chunk / divisor[..., None] + zero[..., None]), 0, levels)
    values, element_type = quants.astype(np.uint8).reshape(len(chunk), -1), ov.Type.u8
    if levels < 16:
        values, element_type = pack_nibbles(values), ov.Type.u4
    return QuantizedWeight(values, element_type, scale, zero.astype(np.uint8), chunk.shape[-1])


def _int4_symmetric(chunk: npt.NDArray[np.float32]) -> QuantizedWeight:
    """Maps values onto -8 to 7, stored as 0 to 15: the largest in size becomes -8."""
    extreme = np.take_along_axis(chunk, np.abs(chunk).argmax(-1)[..., None], -1)[..., 0]
    scale = _f16_scale(extreme / np.float32(-8))
    quants = np.clip(np.rint(chunk / scale.astype(np.float32)[..., None]), -8, 7) + 8
    packed = pack_nibbles(quants.astype(np.uint8).reshape(len(chunk), -1))
    return QuantizedWeight(packed, ov.Type.u4, scale, 8, chunk.shape[-1])


def _int8_symmetric(chunk: npt.NDArray[np.float32]) -> QuantizedWeight:
    scale = _f16_scale(np.abs(chunk).max(-1) / np.float32(127))
    quants = np.clip(np.rint(chunk / scale.astype(np.float32)[..., None]), -127, 127)
    values = quants.astype(np.int8).view(np.uint8).reshape(len(chunk), -1)
    return QuantizedWeight(values, ov.Type.i8, scale, None, chunk.shape[-1])


def _f16_scale(scale: npt.NDArray[np.float32]) -> npt.NDArray[np.float16]:
    """Rounds to f16; a group of zeros, or too small for f16, gets a scale of 1."""
    with np.errstate(over="ignore"):
        rounded = scale.astype(np.float16)
    rounded[rounded == 0] = 1
    return rounded


def _chunks(dense: DenseWeight) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
    """Yields some rows at a time, in f32, behind the first one's number."""
    rows = dense.values.reshape(-1, dense.shape[-1])
    step = max(1, _CHUNK_VALUES // rows.shape[1])
    for start in range(0, len(rows), step):
        yield start, dense_f32(DenseWeight(rows[start : start + step], dense.element_type))
