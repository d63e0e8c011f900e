"""Tensors of safetensors files, as views of the mapped files, with every length checked.

A reader of our own: the `safetensors` package gives numpy no bf16 or f8 and copies.
Format: u64 length of the header, the header (JSON: name -> dtype, shape, data_offsets), data.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov

from ...errors import ConversionError
from ..files.mapped_file import MappedPages, MappedTensor, check_apart
from ..files.source_folder import SourceFolder, parse_json_object
from ..weights.weight import DenseWeight, dense_f32

# As the format's own library: longer headers are refused.
MAX_HEADER_BYTES = 100_000_000
MAX_DIMENSIONS = 8
INDEX_FILE = "model.safetensors.index.json"

# Bytes of a number.
_ITEM_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL"), 1),
}


def read_safetensors(path: Path) -> dict[str, MappedTensor]:
    """All tensors of one file. Raises ConversionError for anything but a whole file."""
    with path.open("rb") as file:
        size = path.stat().st_size
        if size < 8:
            raise ConversionError(f"{path} is truncated: it ends inside the header")
        (header_bytes,) = struct.unpack("<Q", file.read(8))
        if header_bytes > min(size - 8, MAX_HEADER_BYTES):
            raise ConversionError(
                f"{path} is truncated or no safetensors file: its header of {header_bytes} bytes "
                f"does not fit in {size}"
            )
        header = _parse_header(path, file.read(header_bytes))
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    start = 8 + header_bytes
    tensors: dict[str, MappedTensor] = {}
    for name, entry in header.items():
        dtype, shape, begin, end = _check_entry(path, name, entry, size - start)
        data = np.frombuffer(mapped, np.uint8, end - begin, start + begin)
        pages = MappedPages(mapped, start + begin, end - begin)
        tensors[name] = MappedTensor(name, dtype, shape, data, pages)
    check_apart(path, tensors.values())
    return tensors


def _parse_header(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConversionError(f"{path} is damaged: its header is no JSON: {error}") from None
    header = parse_json_object(text, f"{path} is damaged: its header")
    header.pop("__metadata__", None)
    return header


def _check_entry(
    path: Path, name: str, entry: Any, available: int
) -> tuple[str, tuple[int, ...], int, int]:
    """dtype, shape, first byte and end of one tensor, all consistent."""

    def numbers(value: Any, most: int) -> bool:
        return (
            isinstance(value, list)
            and len(value) <= most
            and all(type(each) is int and 0 <= each < 2**63 for each in value)
        )

    if not isinstance(entry, dict):
        raise ConversionError(f"{path} is damaged: tensor {name!r} is {entry!r:.80}")
    dtype: Any = entry.get("dtype")
    shape: Any = entry.get("shape")
    offsets: Any = entry.get("data_offsets")
    if dtype not in _ITEM_BYTES:
        raise ConversionError(
            f"{path}: tensor {name!r} has the type {dtype!r:.40}; "
            f"known are {', '.join(_ITEM_BYTES)}"
        )
    if not numbers(shape, MAX_DIMENSIONS) or not numbers(offsets, 2) or len(offsets) != 2:
        raise ConversionError(
            f"{path} is damaged: tensor {name!r} has shape {shape!r:.80} "
            f"and data_offsets {offsets!r:.80}"
        )
    begin, end = offsets
    if not begin <= end <= available:
        raise ConversionError(
            f"{path} is truncated or damaged: tensor {name!r} lies at {begin} to {end} "
            f"of {available} bytes"
        )
    if math.prod(shape) * _ITEM_BYTES[dtype] != end - begin:
        raise ConversionError(
            f"{path} is damaged: tensor {name!r} of type {dtype} and shape {shape} "
            f"lies in {end - begin} bytes"
        )
    return dtype, tuple(shape), begin, end


def read_checkpoint(folder: SourceFolder) -> dict[str, MappedTensor]:
    """The tensors of all shards, by the index where there is one.

    Raises ConversionError for a shard that is missing or does not hold what the index says.
    """
    index = folder.read_json(INDEX_FILE)
    if index is None:
        path = folder.file("model.safetensors")
        if path is None:
            raise ConversionError(f"{folder.path} holds no model.safetensors and no {INDEX_FILE}")
        return read_safetensors(path)
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not all(
        isinstance(each, str) for each in weight_map.values()
    ):
        raise ConversionError(f"{folder.path / INDEX_FILE}: 'weight_map' must name files")
    tensors: dict[str, MappedTensor] = {}
    for shard in sorted(set(weight_map.values())):
        path = folder.file(shard)
        if path is None:
            raise ConversionError(f"{folder.path}: the shard {shard} is missing")
        for name, tensor in read_safetensors(path).items():
            if name in tensors:
                raise ConversionError(f"{path}: tensor {name!r} is in another shard too")
            tensors[name] = tensor
    for name, shard in weight_map.items():
        if name not in tensors:
            raise ConversionError(
                f"{folder.path / INDEX_FILE} promises the tensor {name!r}, {shard} has none"
            )
    return tensors


def _decoded(exponent_bits: int, mantissa_bits: int, bias: int) -> npt.NDArray[np.float32]:
    """The value of each byte, without its infinities and NaNs."""
    byte = np.arange(256)
    mantissa = byte & ((1 << mantissa_bits) - 1)
    exponent = byte >> mantissa_bits & ((1 << exponent_bits) - 1)
    normal = (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)
    subnormal = mantissa / (1 << mantissa_bits) * 2.0 ** (1 - bias)
    values = np.where(exponent == 0, subnormal, normal)
    return np.where(byte < 128, values, -values).astype(np.float32)


# By safetensors' name: numpy's type for the bytes, OpenVINO's for the values.
DENSE_TYPES: Mapping[str, tuple[str, ov.Type]] = {
    "F32": ("<f4", ov.Type.f32),
    "F16": ("<f2", ov.Type.f16),
    "BF16": ("<u2", ov.Type.bf16),
}
# By safetensors' name, f32 [256]: the value of each byte.
DECODED: Mapping[str, npt.NDArray[np.float32]] = {
    "F8_E4M3": _decoded(4, 3, 7),
    "F8_E5M2": _decoded(5, 2, 15),
}
DECODED["F8_E4M3"][[0x7F, 0xFF]] = np.nan
DECODED["F8_E5M2"][[0x7C, 0xFC]] = np.inf, -np.inf
DECODED["F8_E5M2"][[0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]] = np.nan


def dequantize(tensor: MappedTensor, scale: MappedTensor | None) -> npt.NDArray[np.float32]:
    """The tensor times its scale: one number, one for each row, or one for each block.

    Blocks are equal, but for the last ones: their size is the tensor's over the scale's,
    rounded up to a power of two. Raises ConversionError for values that are not finite.
    """
    values = DECODED[tensor.type][tensor.data].reshape(tensor.shape)
    if scale is not None:
        values *= _spread(tensor, scale)
    if not np.isfinite(values).all():
        raise ConversionError(f"tensor {tensor.name!r} or its scale is not finite")
    return values


def _spread(tensor: MappedTensor, scale: MappedTensor) -> npt.NDArray[np.float32]:
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


def _read_scale(scale: MappedTensor) -> npt.NDArray[np.float32]:
    if scale.type not in DENSE_TYPES:
        raise ConversionError(f"tensor {scale.name!r} of scales has type {scale.type}")
    dtype, element_type = DENSE_TYPES[scale.type]
    return dense_f32(DenseWeight(scale.data.view(dtype).reshape(scale.shape), element_type))
