"""From comments to Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable

_ITEM = re.compile(r"^  (?P<name>\w+)(?P<rest> \(.*?\))?: (?P<text>.*)$")


def to_markdown(lines: Iterable[str]) -> str:
    """Lines as paragraphs. An indented block stays as it is, or is a list if each line is an item.

    Items are `  name (...): text`. What is indented within a list is its continuation.
    """
    result: list[str] = []
    block: list[str] = []
    is_code = in_list = False
    for line in [*lines, ""]:
        indented = line.startswith("  ") and not is_code and not in_list
        if indented:
            block.append(line)
            continue
        result += _block(block)
        block = []
        is_code = is_code != line.startswith("```")
        in_list = line.lstrip().startswith(("- ", "* ")) or (in_list and line.startswith("  "))
        result.append(line)
    return re.sub(r"\n\n\n+", "\n\n", "\n".join(result)).strip()


def _block(lines: list[str]) -> list[str]:
    if not lines:
        return []
    items = [_ITEM.match(line) for line in lines]
    if all(items):
        return ["", *(f"- `{i['name']}`{i['rest'] or ''}: {i['text']}" for i in items if i), ""]
    return ["", "```text", *lines, "```", ""]
