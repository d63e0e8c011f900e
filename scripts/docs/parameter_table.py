"""Members that a header includes from a table of macros, written out as the compiler sees them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

_INCLUDED = re.compile(
    r'^#define PAGEWHEEL_\w+\(.*\n#include "pagewheel/(?P<file>\w+\.def)"$', re.M
)
_ENTRY = re.compile(
    r"^PAGEWHEEL_(?P<kind>[A-Z]+)\((?P<content>.*?)\)$(?=\n[^ ]|\n*\Z)", re.M | re.S
)
_COMMENT = "    /// "
_LITERALS = re.compile(r'"(?:[^"\\]|\\.)*"(?:\s+"(?:[^"\\]|\\.)*")*')


def written_out(code: str, folder: Path) -> str:
    """`code` with the members that tables in `folder` give it."""
    return _INCLUDED.sub(lambda found: "\n".join(_members(folder / found["file"])), code)


def _members(table: Path) -> Iterator[str]:
    for entry in _ENTRY.finditer(table.read_text()):
        if entry["kind"] == "APPLIES":
            continue
        texts = [_joined(literals[0]) for literals in _LITERALS.finditer(entry["content"])]
        if entry["kind"] == "SECTION":
            yield f"\n    // {texts[0]}"
            continue
        kind, name, initial = (part.strip() for part in entry["content"].split(",")[:3])
        allowed, text = texts[-2:]
        comment = f"{text} Allowed: {allowed}." if allowed else text
        yield textwrap.fill(comment, 90, initial_indent=_COMMENT, subsequent_indent=_COMMENT)
        yield f"    {kind} {name} = {initial};"


def _joined(literals: str) -> str:
    return re.sub(r'"\s+"', "", literals)[1:-1].replace('\\"', '"')
