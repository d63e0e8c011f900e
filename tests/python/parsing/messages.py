"""What parsers make of texts, whole and in pieces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pagewheel


def parsed(family: str, text: str, **options: Any) -> dict[str, Any]:
    message = {"content": text}
    pagewheel.ToolCallParser(family, **options).parse(message)
    return message


def deltas(family: str, pieces: Iterable[str], **options: Any) -> list[dict[str, Any]]:
    """The last one is of the end."""
    parser = pagewheel.ToolCallIncrementalParser(family, **options)
    all_deltas: list[dict[str, Any]] = []
    for piece in pieces:
        delta: dict[str, Any] = {}
        delta["content"] = parser.parse(delta, piece)
        all_deltas.append(delta)
    last: dict[str, Any] = {}
    last["content"] = parser.finish(last)
    return [*all_deltas, last]


def joined(all_deltas: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """One message of deltas, as a client of OpenAI's joins them."""
    message: dict[str, Any] = {"content": ""}
    for delta in all_deltas:
        message["content"] += delta["content"]
        if "reasoning_content" in delta:
            message["reasoning_content"] = (
                message.get("reasoning_content", "") + delta["reasoning_content"]
            )
        for piece in delta.get("tool_calls", []):
            calls = message.setdefault("tool_calls", [])
            if piece["index"] == len(calls):
                calls.append({"type": piece["type"], "function": dict(piece["function"])})
            else:
                assert piece["index"] == len(calls) - 1
                calls[-1]["function"]["arguments"] += piece.get("function", {}).get("arguments", "")
            calls[-1].update({key: piece[key] for key in ("id", "complete") if key in piece})
    return message


def named_calls(message: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Name and arguments of each, which must be whole."""
    calls = []
    for call in message.get("tool_calls", []):
        assert "complete" not in call
        calls.append((call["function"]["name"], json.loads(call["function"]["arguments"])))
    return calls
