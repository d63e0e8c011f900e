"""The project's Markdown files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
_PATTERNS = (
    "*.md",
    "docs/**/*.md",
    "benchmarks/*.md",
    "samples/**/*.md",
    "tests/data/**/*.md",
    ".github/**/*.md",
)


def markdown_files() -> list[Path]:
    return sorted({path for pattern in _PATTERNS for path in ROOT.glob(pattern)})


def plain_lines(page: Path) -> Iterator[str]:
    """The lines that are no code."""
    fenced = False
    for line in page.read_text().splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield line
