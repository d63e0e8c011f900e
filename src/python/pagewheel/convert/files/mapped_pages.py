"""Pages of mapped files. Once read they count as the process' memory until they are given back."""

from __future__ import annotations

import mmap
from dataclasses import dataclass


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
