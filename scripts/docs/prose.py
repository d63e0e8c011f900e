"""From comments to Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable


def to_markdown(lines: Iterable[str]) -> str:
    """Lines as paragraphs. What is indented, and no continuation of a list, stays as it is."""
    result: list[str] = []
    fenced = is_code = False
    previous = ""
    for line in lines:
        is_code = is_code != line.startswith("```")
        indented = line.startswith("  ") and not is_code
        if indented and not fenced and not previous.lstrip().startswith(("- ", "* ")):
            result += ["", "```text"]
            fenced = True
        elif fenced and not indented:
            result += ["```", ""]
            fenced = False
        result.append(line)
        if not indented:
            previous = line
    text = "\n".join([*result, "```"] if fenced else result).strip()
    return re.sub(r"\n\n\n+", "\n\n", text)
