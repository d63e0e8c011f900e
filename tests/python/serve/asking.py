"""What tests of tools and response formats ask for, through the official clients."""

from __future__ import annotations

from typing import Any

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"place": {"enum": ["Rome", "Oslo"]}},
    "required": ["place"],
    "additionalProperties": False,
}
WEATHER = {"name": "weather", "description": "Of a place", "parameters": SCHEMA}
TIME = {"name": "time", "parameters": {"type": "object", "properties": {}}}
CHAT_TOOLS: list[Any] = [{"type": "function", "function": each} for each in (WEATHER, TIME)]
RESPONSE_TOOLS: list[Any] = [{"type": "function", **each} for each in (WEATHER, TIME)]
MESSAGE_TOOLS: list[Any] = [
    {"name": "weather", "description": "Of a place", "input_schema": SCHEMA},
    {"name": "time", "input_schema": TIME["parameters"]},
]


def call_text(place: str = "Rome") -> str:
    return f'<tool_call>\n{{"name": "weather", "arguments": {{"place": "{place}"}}}}\n</tool_call>'


# Of a model with random weights: what it says is demanded.
THOUGHT = "<think>Which place?</think>Let me look. " + call_text()
TWO_CALLS = call_text("Rome") + call_text("Oslo")
BROKEN = '<tool_call>\n{"name": "weather", "arguments": {"place": Rome'


def saying(text: str) -> dict[str, Any]:
    """Fields of a request whose answer is this text."""
    return {"extra_body": {"structured_outputs": {"choice": [text]}}}
