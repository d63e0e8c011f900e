"""Prose and code that come with every Python, in two halves: one to tune on and one to test on."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np

SETS = ("tuning", "test")
Encode = Callable[[str], list[int]]

_MOST_CHARACTERS = 400_000


def prose(which: str) -> str:
    """The Python reference manual: every second topic."""
    names = sorted(topics)[SETS.index(which) :: 2]
    return re.sub(r"\s+", " ", " ".join(topics[name] for name in names))[:_MOST_CHARACTERS]


def code(which: str) -> str:
    """The standard library: every second module of those that are one file."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[SETS.index(which) :: 2]
    parts, size = [], 0
    for file in files:
        parts.append(file.read_text(encoding="utf-8", errors="replace"))
        size += len(parts[-1])
        if size >= _MOST_CHARACTERS:
            break
    return "".join(parts)[:_MOST_CHARACTERS]


def excerpts(ids: Sequence[int], length: int, count: int, seed: int) -> list[list[int]]:
    """`count` pieces of the text, from random places. Raises ValueError if it is too short."""
    if len(ids) < length:
        raise ValueError(f"the text has {len(ids)} tokens, {length} are wanted")
    begins = np.random.default_rng(seed).integers(0, len(ids) - length + 1, count)
    return [list(ids[begin : begin + length]) for begin in begins]
