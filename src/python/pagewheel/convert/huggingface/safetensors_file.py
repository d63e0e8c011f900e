"""Tensors of safetensors files, as views of the mapped files, with every length checked.

A reader of our own: the `safetensors` package gives numpy no bf16 or f8 and copies.
Format: u64 length of the header, the header (JSON: name -> dtype, shape, data_offsets), data.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ConversionError
from ..files.json_file import parse_json_object
from ..files.mapped_pages import MappedPages
from .source_folder import SourceFolder

# As the format's own library: longer headers are refused.
MAX_HEADER_BYTES = 100_000_000
MAX_DIMENSIONS = 8
INDEX_FILE = "model.safetensors.index.json"

_ITEM_BYTES: Mapping[str, int] = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U64": 8,
    "U32": 4,
    "U16": 2,
    "U8": 1,
    "BOOL": 1,
}


@dataclass(frozen=True)
class StoredTensor:
    """`data` are the tensor's bytes, a view of the mapped file."""

    name: str
    dtype: str  # "BF16", "F32"... as the file says
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]
    pages: MappedPages


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
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
    tensors: dict[str, StoredTensor] = {}
    places: list[tuple[int, int, str]] = []
    for name, entry in header.items():
        dtype, shape, begin, end = _check_entry(path, name, entry, size - start)
        places.append((begin, end, name))
        data = np.frombuffer(mapped, np.uint8, end - begin, start + begin)
        pages = MappedPages(mapped, start + begin, end - begin)
        tensors[name] = StoredTensor(name, dtype, shape, data, pages)
    places.sort()
    for (_, end, name), (begin, _, other) in pairwise(places):
        if begin < end:
            raise ConversionError(f"{path} is damaged: tensors {name!r} and {other!r} overlap")
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


def read_checkpoint(folder: SourceFolder) -> dict[str, StoredTensor]:
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
    tensors: dict[str, StoredTensor] = {}
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
