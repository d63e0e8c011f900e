"""Tensors of mapped files.

Pages that were read count as the process' memory until they are given back.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import ConversionError


@dataclass(frozen=True)
class MappedPages:
    """`size` bytes from `start` on of a mapped file, which is only read."""

    mapped: mmap.mmap
    start: int
    size: int

    def give_back(self) -> None:
        """They stay in the system's cache. A later look reads them again."""
        if self.size and hasattr(mmap, "MADV_DONTNEED"):
            first = self.start - self.start % mmap.PAGESIZE
            self.mapped.madvise(mmap.MADV_DONTNEED, first, self.start + self.size - first)


@dataclass(frozen=True)
class MappedTensor:
    """A tensor of a file. `data` are its bytes, u8, a view of the mapped file."""

    name: str
    type: Any  # as the file says: safetensors' "BF16", ggml's GGMLQuantizationType
    shape: tuple[int, ...]  # outermost dimension first
    data: npt.NDArray[np.uint8]
    pages: MappedPages


def check_apart(path: Path, tensors: Iterable[MappedTensor]) -> None:
    """Tensors that share bytes would let a small file become any amount of weights."""
    ordered = sorted(tensors, key=lambda each: (each.pages.start, each.pages.size, each.name))
    for one, following in pairwise(ordered):
        if one.pages.start + one.pages.size > following.pages.start:
            raise ConversionError(
                f"{path} is damaged: tensors {one.name!r} and {following.name!r} overlap"
            )


class PagesInUse:
    """The pages of the weight that was read last.

    Its values may be views of them. So they are given back when the next weight is read, or
    sooner where nothing needs them. A later look at a view reads the file again.
    """

    def __init__(self) -> None:
        self._held: list[MappedPages] = []

    def hold(self, pages: MappedPages) -> None:
        self._held.append(pages)

    def give_back(self) -> None:
        for each in self._held:
            each.give_back()
        self._held.clear()
