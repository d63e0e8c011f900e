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
    """Half of the Python reference manual. Topics quote each other, so a paragraph counts once."""
    parts = [part for name in sorted(topics) for part in topics[name].split("\n\n")]
    unique = list(dict.fromkeys(re.sub(r"\s+", " ", part) for part in parts))
    middle = len(unique) // 2
    half = unique[:middle] if which == SETS[0] else unique[middle:]
    return " ".join(half)[:_MOST_CHARACTERS]


def code(which: str) -> str:
    """The standard library: every second module of those that are one file. Some systems have the
    settings of Python's build there, twice."""
    library = Path(sysconfig.get_path("stdlib"))
    modules = [file for file in library.glob("*.py") if not file.name.startswith("_sysconfigdata")]
    files = sorted(modules)[SETS.index(which) :: 2]
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
