# ruff: noqa: RUF001 (DeepSeek's markers)
"""Tools, how the families write calls of them, and whether a text's calls are valid."""

from __future__ import annotations

from typing import Any

import jsonschema
from messages import named_calls, parsed
from renderings import STYLES, Call

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "where"},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
        "unit": {"type": "string", "enum": ["celsius", "it's F"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "options": {
            "type": "object",
            "properties": {
                "deep": {"type": "boolean"},
                "ratio": {"type": "number"},
                "inner": {"type": "array", "items": {"type": ["integer", "null"]}, "maxItems": 3},
            },
            "required": ["deep"],
        },
        "exact": {"type": ["boolean", "null"]},
    },
    "required": ["days"],
}
PARAMETERS: dict[str, dict[str, Any]] = {
    "get_weather": WEATHER,
    "now": {"type": "object", "properties": {}},
    "get": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": schema}}
    for name, schema in PARAMETERS.items()
]
# Tokens behind the calls, which end the turn.
ENDS = (
    "</s>", "<｜end▁of▁sentence｜>", "<|end|>", "<|end_of_text|>", "<|eot|>", "<|call|>",
    "<|message_sep|>\n\n",
)  # fmt: skip
VARIANTS = sorted(name for name, style in STYLES.items() if style.is_written)
FAMILIES = sorted({variant.partition("/")[0] for variant in STYLES})
# What ends values and calls.
CLOSERS = [
    "</｜DSML｜parameter>", "</parameter>", "</arg_value>", "<escape>", '<|"|>', "<|end|>", '"}',
    '"', "'", "]", "}", ")", "7",
]  # fmt: skip


def rendered(variant: str, calls: list[Call]) -> str:
    text = STYLES[variant].calls(calls)
    for end in ENDS:
        text = text.removesuffix(end)
    return text


def opening(family: str) -> str:
    """What begins a call in free text."""
    if family == "llama3_pythonic":  # without a trigger the function's name makes the call
        return "[get_weather("
    whole = rendered(next(v for v in VARIANTS if v.partition("/")[0] == family), [Call("now", {})])
    return whole[: whole.index("now")]


def check_calls(family: str, text: str) -> int:
    message = parsed(family, text, tools=TOOLS)
    calls = message.get("tool_calls", [])
    assert all("complete" not in call for call in calls), text
    for name, arguments in named_calls(message):
        jsonschema.validate(arguments, PARAMETERS[name])
        assert set(arguments) <= set(PARAMETERS[name]["properties"])
    return len(calls)
