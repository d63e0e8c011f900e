"""Parsers of vLLM's as pagewheel's."""

from __future__ import annotations

import json
from typing import Any

from pagewheel._pagewheel import Parser

_REASONING_METHODS = ("extract_reasoning", "extract_reasoning_content")  # vLLM's name changed


class VLLMParserWrapper(Parser):
    """A tool parser or reasoning parser of vLLM, for `GenerationConfig.parsers`.

    `extract_tool_calls(text, None)` is asked for its fields, which are put into the message.
    `extract_reasoning(text, None)` gives message["reasoning"] and the content.
    """

    def __init__(self, py_parser: Any) -> None:
        """Raises ValueError if it has none of these methods."""
        super().__init__()
        self._extract_calls = getattr(py_parser, "extract_tool_calls", None)
        found = (getattr(py_parser, name, None) for name in _REASONING_METHODS)
        self._extract_reasoning = next(filter(None, found), None)
        if self._extract_calls is None and self._extract_reasoning is None:
            raise ValueError(
                f"py_parser is {py_parser!r}, which has neither extract_tool_calls() nor "
                "extract_reasoning()"
            )

    def parse(self, message: dict[str, Any]) -> None:
        """Puts what vLLM's parser finds into the message."""
        text = message["content"]
        if self._extract_reasoning is not None:
            message["reasoning"], message["content"] = self._extract_reasoning(text, None)
        if self._extract_calls is not None:
            message.update(_fields(self._extract_calls(text, None)))


def _fields(result: Any) -> dict[str, Any]:
    """The fields of a pydantic model, of version 2 or 1."""
    for name in ("model_dump_json", "json"):
        if hasattr(result, name):
            fields: dict[str, Any] = json.loads(getattr(result, name)())
            return fields
    raise TypeError(f"extract_tool_calls() gave {result!r}; allowed: a pydantic model")
