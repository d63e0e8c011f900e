"""Texts that parsers were asked about, and what a module's parsers make of them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

REASONING_TEXTS = (
    "<think>a b</think>c",
    "a b</think>c",
    "x<think>a</think>c<think>d</think>e",
    "<think>unfinished",
    "no tags",
    "",
    "<think></think>",
    "<think>\n\na\n</think>\n\n c ",
    "</think>only",
    "x</think>y</think>z",
    "<think>a<think>b</think>c</think>d",
    "a<think>b",
    "<think>ü 你好 <th </thin</think>👋",
)
REASONING_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"expect_open_tag": False},
    {"keep_original_content": False},
    {"expect_open_tag": False, "keep_original_content": False},
    {"open_tag": "[T]", "close_tag": "[/T]"},
)
JSON_TEXTS = (
    '{"name": "f", "parameters": {"a": 1}}',
    '<|python_tag|>{"name": "f", "parameters": {"a": 1}}',
    'hi {"name": "f", "parameters": {"a": 1}} there',
    '{"type": "function", "function": "f", "parameters": {"x": [1, 2.5, null, "é\\u00e9"]}}',
    '{"name": "f", "parameters": {}}; {"name": "g", "parameters": {"b": "}"}}',
    '{"name": "f", "arguments": {"z": 1, "a": {"c": 1, "b": 2}}}',
    '{"foo": 1}',
    "none",
    '{"name": "f", "parameters": {"a": 1',
    '[{"name": "f", "parameters": {}}]',
    "",
    "a } b { c",
    '{"name": "f", "parameters": "text"}',
    '{"name": "f", "parameters": {"z": 1}, "id": "q"} ',
)
PYTHON_TEXTS = (
    '[f(a="1")]',
    '[get_weather(city="Paris", metric="celsius")]<|eot|>',
    'x [f(a="ü, y=3")] y',
    "[f()]",
    '[a.b(x="1")]',
    '<|python_tag|>[f(a="b")]',
    "f(a=1)",
    "[f(a=1",
    "none",
    "",
    "[]",
    "[f(a=1)]",
    '[f(a="1"), g(b="2")]',
    "[f(a='1')]",
    "[f(1, 2)]",
)


def cases(module: ModuleType) -> dict[str, Callable[[], Any]]:
    """By what is called, in words."""
    found: dict[str, Callable[[], Any]] = {}
    for text in REASONING_TEXTS:
        for options in REASONING_OPTIONS:
            parser = module.ReasoningParser(**options)
            found[f"ReasoningParser(**{options!r}), {text!r}"] = _whole(parser, text)
            for way, pieces in (("whole", [text]), ("characters", list(text))):
                incremental = module.ReasoningIncrementalParser(**options)
                found[f"ReasoningIncrementalParser(**{options!r}), {way} of {text!r}"] = (
                    _incremental(incremental, pieces)
                )
        for name in ("DeepSeekR1ReasoningParser", "Phi4ReasoningParser"):
            found[f"{name}(), {text!r}"] = _whole(getattr(module, name)(), text)
    for text in JSON_TEXTS:
        found[f"Llama3JsonToolParser(), {text!r}"] = _whole(module.Llama3JsonToolParser(), text)
    for text in PYTHON_TEXTS:
        python_parser = module.Llama3PythonicToolParser()
        found[f"Llama3PythonicToolParser(), {text!r}"] = _whole(python_parser, text)
    return found


def outcomes(module: ModuleType) -> dict[str, Any]:
    return {case: call() for case, call in cases(module).items()}


def _whole(parser: Any, text: str) -> Callable[[], Any]:
    def call() -> Any:
        message = {"content": text, "role": "assistant"}
        try:
            parser.parse(message)
        except RuntimeError:
            return "RuntimeError"
        return message

    return call


def _incremental(parser: Any, pieces: list[str]) -> Callable[[], Any]:
    """The text that passes, and the reasoning of all deltas."""

    def call() -> Any:
        passed, reasoning = "", ""
        for piece in pieces:
            delta: dict[str, Any] = {}
            passed += parser.parse(delta, piece)
            reasoning += delta.get("reasoning_content", "")
        if hasattr(parser, "finish"):  # the other one keeps what it holds back
            delta = {}
            passed += parser.finish(delta)
            reasoning += delta.get("reasoning_content", "")
        return {"passed": passed, "reasoning": reasoning}

    return call
