"""The GGUF container: metadata and tensor directory, with every length checked.

A model split by llama.cpp's gguf-split (`-00001-of-00003.gguf`) is read as one file.

`gguf.GGUFReader` trusts the lengths in the file: a damaged count makes it loop for
hours. So the header is walked here, against the size of the file, and only the types and
block sizes come from the `gguf` package.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from gguf.constants import (
    GGML_QUANT_SIZES,
    GGUF_DEFAULT_ALIGNMENT,
    GGMLQuantizationType,
    GGUFValueType,
)
from gguf.gguf_reader import GGUFReader

from ...errors import ConversionError
from ..files.mapped_file import MappedPages, MappedTensor, check_apart
from ..files.source_folder import shard_paths

MAGIC = b"GGUF"
SUPPORTED_VERSIONS = (2, 3)
# As ggml itself: no tensor has more dimensions, no name is longer than this.
MAX_DIMENSIONS = 4
MAX_NAME_BYTES = 65_535

_SCALARS: Mapping[GGUFValueType, np.dtype[Any]] = {
    kind: np.dtype(scalar).newbyteorder("<")
    for kind, scalar in GGUFReader.gguf_scalar_to_np.items()
}


_Type = TypeVar("_Type", GGUFValueType, GGMLQuantizationType)


class _Cursor:
    """Reads little-endian values one after another and refuses to leave the file."""

    def __init__(self, path: Path, buffer: mmap.mmap) -> None:
        self.path = path
        self.buffer = buffer
        self.size = len(buffer)
        self.offset = 0

    def take(self, count: int, what: str) -> int:
        """Moves past `count` bytes and returns where they start."""
        if count > self.size - self.offset:
            raise ConversionError(
                f"{self.path} is truncated or damaged: {what} at byte {self.offset} needs "
                f"{count} bytes, the file ends after {self.size - self.offset}"
            )
        start = self.offset
        self.offset += count
        return start

    def u32(self, what: str) -> int:
        return int(struct.unpack_from("<I", self.buffer, self.take(4, what))[0])

    def u64(self, what: str) -> int:
        return int(struct.unpack_from("<Q", self.buffer, self.take(8, what))[0])

    def text(self, what: str, limit: int | None = None) -> str:
        length = self.u64(f"the length of {what}")
        if limit is not None and length > limit:
            raise ConversionError(
                f"{self.path} is damaged: {what} at byte {self.offset} is {length} bytes long, "
                f"at most {limit} are allowed"
            )
        start = self.take(length, what)
        try:
            return self.buffer[start : start + length].decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConversionError(f"{self.path}: {what} is not UTF-8: {error}") from None

    def value(self, what: str) -> Any:
        value_type = self.type_of(what, GGUFValueType)
        if value_type is not GGUFValueType.ARRAY:
            return self._plain(value_type, what)
        item_type = self.type_of(what, GGUFValueType)
        if item_type is GGUFValueType.ARRAY:
            raise ConversionError(f"{self.path}: {what} is an array of arrays, not supported")
        count = self.u64(f"the length of {what}")
        if item_type is GGUFValueType.STRING:
            return self._texts(count, what)
        dtype = _SCALARS[item_type]
        start = self.take(count * dtype.itemsize, what)
        return np.frombuffer(self.buffer, dtype, count, start).tolist()

    def _texts(self, count: int, what: str) -> list[str]:
        # A vocabulary has a quarter of a million of these: no call for each. However large the
        # count, each string takes eight bytes of what is left.
        buffer, offset, end = self.buffer, self.offset, self.size
        texts = []
        for index in range(count):
            stop = offset + 8
            if stop <= end:
                stop += int.from_bytes(buffer[offset:stop], "little")
            if stop > end:
                self.offset = offset
                self.text(f"{what}[{index}]")  # says what is wrong
            try:
                texts.append(buffer[offset + 8 : stop].decode())
            except UnicodeDecodeError as error:
                raise ConversionError(
                    f"{self.path}: {what}[{index}] is not UTF-8: {error}"
                ) from None
            offset = stop
        self.offset = offset
        return texts

    def type_of(self, what: str, kind: type[_Type]) -> _Type:
        number = self.u32(f"the type of {what}")
        try:
            return kind(number)
        except ValueError:
            raise ConversionError(f"{self.path}: {what} has the unknown type {number}") from None

    def _plain(self, value_type: GGUFValueType, what: str) -> Any:
        if value_type is GGUFValueType.STRING:
            return self.text(what)
        dtype = _SCALARS[value_type]
        return np.frombuffer(self.buffer, dtype, 1, self.take(dtype.itemsize, what))[0].item()


class GGUFFile:
    """A GGUF file, mapped; tensors are views that live as long as they are referenced.

    The data of a tensor are u8 [rows, bytes per row].

    A split model is opened by any of its files: the metadata is the first one's, the tensors
    are all. Raises FileNotFoundError, or ConversionError for anything that is no whole GGUF
    file. Takes time and memory bounded by the size of the header.
    """

    def __init__(self, path: Path) -> None:
        paths = shard_paths(path)
        self._shards = [_Shard(each) for each in paths]
        self.path = paths[0]
        self.metadata = self._shards[0].metadata
        self.tensors: dict[str, MappedTensor] = {}
        count = self.metadata.get("split.count", 0)
        if count not in (0, len(paths)):
            raise ConversionError(
                f"{self.path} is one of {count} parts (split.count), found by name: {len(paths)}; "
                "keep the names that gguf-split gave"
            )
        for number, shard in enumerate(self._shards):
            if len(paths) > 1 and shard.metadata.get("split.no") != number:
                raise ConversionError(
                    f"{shard.path} must be part {number} (split.no), it says "
                    f"{shard.metadata.get('split.no')!r:.80}"
                )
            twice = self.tensors.keys() & shard.tensors.keys()
            if twice:
                raise ConversionError(f"{shard.path}: tensor {min(twice)!r} is in another part too")
            self.tensors |= shard.tensors
        total = self.metadata.get("split.tensors.count", len(self.tensors))
        if total != len(self.tensors):
            raise ConversionError(
                f"{self.path}: the parts hold {len(self.tensors)} tensors, split.tensors.count "
                f"says {total!r:.80}"
            )

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.tensors = {}
        for shard in self._shards:
            shard.close()


class _Shard:
    """One mapped file."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise FileNotFoundError(f"no such model file: {path}")
        with path.open("rb") as file:
            head = file.read(8)
            if head[:4] != MAGIC:
                raise ConversionError(
                    f"{path} is not a GGUF file: it starts with {head[:4]!r}, not {MAGIC!r}"
                )
            if len(head) < 8:
                raise ConversionError(f"{path} is truncated: it ends inside the header")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.path = path
        cursor = _Cursor(path, self._map)
        cursor.take(4, "the magic")
        version = cursor.u32("the version")
        if version not in SUPPORTED_VERSIONS:
            raise ConversionError(
                f"{path} is GGUF version {version}; supported are "
                f"{' and '.join(map(str, SUPPORTED_VERSIONS))}, little-endian"
            )
        tensor_count = cursor.u64("the tensor count")
        metadata_count = cursor.u64("the metadata count")
        self.metadata = self._read_metadata(cursor, metadata_count)
        self.tensors = self._read_directory(cursor, tensor_count)

    def close(self) -> None:
        self.tensors = {}
        # Where someone still holds a view, the map goes when the view does.
        with contextlib.suppress(BufferError):
            self._map.close()

    def _read_metadata(self, cursor: _Cursor, count: int) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        for index in range(count):
            key = cursor.text(f"metadata key {index}", MAX_NAME_BYTES)
            if key in metadata:
                raise ConversionError(f"{self.path} is damaged: key {key!r} appears twice")
            metadata[key] = cursor.value(f"the value of {key!r}")
        return metadata

    def _read_directory(self, cursor: _Cursor, count: int) -> dict[str, MappedTensor]:
        entries: dict[str, tuple[GGMLQuantizationType, tuple[int, ...], int]] = {}
        for index in range(count):
            name = cursor.text(f"the name of tensor {index}", MAX_NAME_BYTES)
            if name in entries:
                raise ConversionError(f"{self.path} is damaged: tensor {name!r} appears twice")
            rank = cursor.u32(f"the rank of tensor {name!r}")
            if not 1 <= rank <= MAX_DIMENSIONS:
                raise ConversionError(
                    f"{self.path}: tensor {name!r} has {rank} dimensions, "
                    f"1 to {MAX_DIMENSIONS} are allowed"
                )
            shape = tuple(cursor.u64(f"the shape of tensor {name!r}") for _ in range(rank))[::-1]
            kind = cursor.type_of(f"tensor {name!r}", GGMLQuantizationType)
            entries[name] = (kind, shape, cursor.u64("an offset"))
        alignment = self.metadata.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise ConversionError(
                f"{self.path}: general.alignment must be a power of two, got {alignment!r}"
            )
        data_start = -(-cursor.offset // alignment) * alignment
        tensors = {}
        for name, (kind, shape, offset) in entries.items():
            if offset % alignment:
                raise ConversionError(
                    f"{self.path} is damaged: tensor {name!r} starts at byte {offset} of the data, "
                    f"no multiple of the alignment {alignment}"
                )
            tensors[name] = self._tensor(name, kind, shape, data_start + offset)
        check_apart(self.path, tensors.values())
        return tensors

    def _tensor(
        self, name: str, kind: GGMLQuantizationType, shape: tuple[int, ...], start: int
    ) -> MappedTensor:
        block, block_bytes = GGML_QUANT_SIZES[kind]
        columns = shape[-1]
        if columns % block or math.prod(shape) == 0:
            raise ConversionError(
                f"{self.path}: tensor {name!r} of type {kind.name} has shape {list(shape)}; "
                f"its rows must be a positive multiple of {block} long"
            )
        row_bytes = columns // block * block_bytes
        rows = math.prod(shape[:-1])
        if start + rows * row_bytes > len(self._map):
            raise ConversionError(
                f"{self.path} is truncated: tensor {name!r} ends at byte "
                f"{start + rows * row_bytes}, the file has {len(self._map)}"
            )
        data = np.frombuffer(self._map, np.uint8, rows * row_bytes, start)
        pages = MappedPages(self._map, start, data.nbytes)
        return MappedTensor(name, kind, shape, data.reshape(rows, row_bytes), pages)
