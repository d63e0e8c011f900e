"""A page of the API reference for each public header, from its comments and declarations.

The headers are formatted by clang-format, so that lines say what they are: what stands at the left
edge of the namespace begins there, and ends in `};`, `}` or `;`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from parameter_table import written_out
from prose import to_markdown

HEADERS = Path(__file__).parents[2] / "src/cpp/include/pagewheel"
_LEFT_OUT = {"visibility.hpp"}  # holds a macro alone
_FORWARD = re.compile(r"^(class|struct) \w+;$")
_NAME = re.compile(
    r"^(?:class|struct|enum class) (?P<type>\w+)|^using (?P<alias>\w+) =|(?P<function>[\w<=]+)\("
    r"|(?P<constant>\w+)\{",
    re.M,
)
_DIRECTIVE = re.compile(r"^#(?:\\\n|.)*\n", re.M)


@dataclass(frozen=True)
class Entry:
    """A type or function at the level of the namespace."""

    name: str
    prose: str
    code: str


def public_headers() -> list[Path]:
    return sorted(path for path in HEADERS.glob("*.hpp") if path.name not in _LEFT_OUT)


def page(header: Path) -> str:
    """The page in Markdown."""
    lines = written_out(header.read_text(), header.parent).splitlines()
    parts = [
        f"# {header.name}",
        _prose(line for line in lines if line.startswith("// ")),
        f"```cpp\n#include <pagewheel/{header.name}>\n```",
    ]
    for name, group in _by_name(entries(lines)):
        parts.append(f"## {name}")
        for entry in group:
            parts += [entry.prose, f"```cpp\n{entry.code}\n```"]
    return "\n\n".join(part for part in parts if part) + "\n"


def entries(lines: list[str]) -> Iterator[Entry]:
    """What the namespace declares, in order; private members and forward declarations left out."""
    lines = _DIRECTIVE.sub("", "\n".join(lines) + "\n").splitlines()
    first = lines.index("namespace pagewheel {") + 1 if "namespace pagewheel {" in lines else None
    if first is None:  # pagewheel.hpp includes the others and declares nothing
        return
    comment: list[str] = []
    code: list[str] = []
    for line in lines[first:]:
        if line == "}  // namespace pagewheel":
            return
        if re.match(r"namespace \w+ \{$|\}  // namespace ", line):  # within pagewheel's
            comment = []
            continue
        if not code and (line.startswith("//") or not line):
            comment = [*comment, line] if line else []
            continue
        code.append(line)
        if re.search(r"^\};?$|;( +///?<? .*)?$", line) and not _is_open(code):
            text = "\n".join(code).replace("PAGEWHEEL_API ", "")
            if not _FORWARD.match(text):
                yield Entry(_name(text), _prose(comment), _public(text))
            comment, code = [], []


def _by_name(found: Iterator[Entry]) -> list[tuple[str, list[Entry]]]:
    groups: dict[str, list[Entry]] = {}
    for entry in found:
        groups.setdefault(entry.name, []).append(entry)
    return list(groups.items())


def _is_open(code: list[str]) -> bool:
    text = "\n".join(line.split("//")[0] for line in code)
    return text.count("{") > text.count("}") or text.count("(") > text.count(")")


def _name(code: str) -> str:
    found = _NAME.search(code)
    if found is None:
        raise ValueError(f"a declaration without a name that the reference knows: {code}")
    return found["type"] or found["alias"] or found["function"] or found["constant"]


def _prose(comment: Iterable[str]) -> str:
    return to_markdown(re.sub(r"^///? ?", "", line) for line in comment)


def _public(code: str) -> str:
    """The declaration without its private part."""
    shown = []
    hidden = False
    for line in code.splitlines():
        if re.match(r"^(public|private|protected):", line):
            hidden = line.startswith("private")
        if line.startswith("}"):
            hidden = False
        if not hidden and not line.strip().startswith(("class Impl;", "friend ", "struct Impl;")):
            shown.append(line)
    text = re.sub(r"\n\n+(?=\})", "\n", "\n".join(shown))
    return re.sub(r"\n\n\n+", "\n\n", text)
