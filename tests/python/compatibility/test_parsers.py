"""Parsers give what openvino_genai's give for the same texts, but for what is listed here."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import pagewheel
from benchmarks.compatibility.parsers import outcomes

RECORDED = Path(__file__).parents[2] / "data/openvino_genai/parsers.json"
PEER: Mapping[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
OURS = outcomes(pagewheel)

# Of tool calls: where the outcomes differ on purpose, and why.
TWO_CALLS = '{"name": "f", "parameters": {}}; {"name": "g", "parameters": {"b": "}"}}'
DIFFERENT = {
    ("Llama3JsonToolParser", TWO_CALLS): "several calls are found",
    ("Llama3JsonToolParser", '{"foo": 1}'): "no call",
    ("Llama3JsonToolParser", '{"name": "f", "parameters": "text"}'): "no call",
    ("Llama3PythonicToolParser", "[]"): "no call",
    ("Llama3PythonicToolParser", "[f(1, 2)]"): "no call that names its arguments",
    ("Llama3PythonicToolParser", "[f(a=1)]"): "arguments that are no texts are found",
    ("Llama3PythonicToolParser", "[f(a='1')]"): "both of Python's quotes are known",
    ("Llama3PythonicToolParser", '[f(a="1"), g(b="2")]'): "each call has its own arguments",
}  # fmt: skip


def why_different(case: str) -> str:
    """Empty where the outcome is to be the same."""
    name = case.partition("(")[0]
    separator = " of " if "Incremental" in name else "), "
    text = str(ast.literal_eval(case.partition(separator)[2]))
    if (name, text) in DIFFERENT:
        return DIFFERENT[name, text]
    if "Reasoning" not in name:
        return ""
    begins_within = "'expect_open_tag': False" in case or name.startswith("DeepSeek")
    if begins_within:
        return "a tag that is there all the same is no reasoning" * text.startswith("<think>")
    before, tag, inside = text.partition("[T]" if "[T]" in case else "<think>")
    if "Incremental" in name:
        is_lost = bool(text) and (not tag or ("'keep_original_content': False" in case and before))
        return "content before the tag, or without one, is not lost" if is_lost else ""
    return "reasoning may be cut off" if tag and "</think>" not in inside else ""


@pytest.mark.parametrize("case", PEER)
def test_texts_are_parsed_as_by_openvino_genai(case: str) -> None:
    if why_different(case):
        assert OURS[case] != PEER[case]
    else:
        assert OURS[case] == PEER[case]


def test_the_record_has_every_case() -> None:
    assert list(PEER) == list(OURS)
    assert len(PEER) >= 200
    assert sum(not why_different(case) for case in PEER) > len(PEER) / 2
