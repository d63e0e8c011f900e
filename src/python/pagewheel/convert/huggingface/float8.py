"""8-bit floats with scales beside them, as f32."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ..errors import ConversionError
from .safetensors_file import StoredTensor


def _decoded(exponent_bits: int, mantissa_bits: int, bias: int) -> npt.NDArray[np.float32]:
    """The value of each byte, without its infinities and NaNs."""
    byte = np.arange(256)
    mantissa = byte & ((1 << mantissa_bits) - 1)
    exponent = byte >> mantissa_bits & ((1 << exponent_bits) - 1)
    normal = (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)
    subnormal = mantissa / (1 << mantissa_bits) * 2.0 ** (1 - bias)
    values = np.where(exponent == 0, subnormal, normal)
    return np.where(byte < 128, values, -values).astype(np.float32)


def _e4m3() -> npt.NDArray[np.float32]:
    values = _decoded(4, 3, 7)
    values[[0x7F, 0xFF]] = np.nan
    return values


def _e5m2() -> npt.NDArray[np.float32]:
    values = _decoded(5, 2, 15)
    values[[0x7C, 0xFC]] = np.inf, -np.inf
    values[[0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]] = np.nan
    return values


# By safetensors' name, f32 [256]: the value of each byte.
DECODED: Mapping[str, npt.NDArray[np.float32]] = {"F8_E4M3": _e4m3(), "F8_E5M2": _e5m2()}


def dequantize(tensor: StoredTensor, scale: StoredTensor | None) -> npt.NDArray[np.float32]:
    """The tensor times its scale: one number, one for each row, or one for each block.

    Blocks are equal, but for the last ones: their size is the tensor's over the scale's,
    rounded up to a power of two. Raises ConversionError for values that are not finite.
    """
    values = DECODED[tensor.dtype][tensor.data].reshape(tensor.shape)
    if scale is not None:
        values *= _spread(tensor, scale)
    if not np.isfinite(values).all():
        raise ConversionError(f"tensor {tensor.name!r} or its scale is not finite")
    return values


def _spread(tensor: StoredTensor, scale: StoredTensor) -> npt.NDArray[np.float32]:
    factors = _read_scale(scale)
    if factors.size == 1:
        return factors.reshape(-1)
    if factors.ndim != len(tensor.shape):
        raise ConversionError(
            f"tensor {scale.name!r} has shape {list(scale.shape)}, "
            f"its weight has {list(tensor.shape)}"
        )
    for axis, (size, blocks) in enumerate(zip(tensor.shape, factors.shape, strict=True)):
        if blocks in (1, size):
            continue
        block = 1 << (-(-size // blocks) - 1).bit_length()
        if -(-size // block) != blocks:
            raise ConversionError(
                f"tensor {scale.name!r} has {blocks} scales for {size} values along axis {axis}"
            )
        factors = np.repeat(factors, block, axis)[(slice(None),) * axis + (slice(size),)]
    return factors


def _read_scale(scale: StoredTensor) -> npt.NDArray[np.float32]:
    if scale.dtype == "F32":
        return scale.data.view("<f4").reshape(scale.shape)
    if scale.dtype == "F16":
        return scale.data.view("<f2").reshape(scale.shape).astype(np.float32)
    if scale.dtype == "BF16":
        bits = scale.data.view("<u2").astype(np.uint32) << 16
        return bits.view(np.float32).reshape(scale.shape)
    raise ConversionError(f"tensor {scale.name!r} of scales has type {scale.dtype}")
