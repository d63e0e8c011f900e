"""Random calls in each family's format are parsed to the same calls, however the text is cut."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from fuzzing import TIMES
from messages import deltas, joined, named_calls, parsed
from renderings import STYLES, Call, Style

import pagewheel

LETTERS = "abcXYZ019_"
PIECES = [
    "a", "Zürich", "你好", "👋🏽", " ", "\n", "\t", '"', "'", "\\", "\\n", "{", "}", "[", "]", "(",
    ")", ",", ":", "=", "</tool", "<tool_call>", "```", "</think>", "\x7f", "\u2028", "e\u0301",
    "0", "%s", "<", ">", "|", "&amp;", "<|", "\\u00e9", "$", "`", "#", "null", "True", "]]>",
]  # fmt: skip


def random_text(rng: random.Random, style: Style) -> str:
    text = "".join(rng.choices(PIECES, k=rng.randrange(6)))
    for marker in style.unwritable:
        text = text.replace(marker, "")
    return text


def random_name(rng: random.Random, style: Style) -> str:
    name = rng.choice("abcXYZ_") + "".join(rng.choices(LETTERS, k=rng.randrange(6)))
    return name if style.plain_names else name + rng.choice(["", "-2", ".x", "ü"])


def random_value(rng: random.Random, style: Style, depth: int = 0) -> Any:
    kind = rng.randrange(8 if depth < 3 else 5)
    if kind == 0:
        return rng.choice([0, -1, 7, 10**12, -(2**53)])
    if kind == 1:
        return rng.choice([0.5, -1e-7, 1e300, 3.0])
    if kind == 2:
        return rng.choice([True, False, None])
    if kind in (3, 4):
        return random_text(rng, style)
    if kind == 5:
        return [random_value(rng, style, depth + 1) for _ in range(rng.randrange(4))]
    return {
        random_name(rng, style): random_value(rng, style, depth + 1)
        for _ in range(rng.randrange(4))
    }


def random_calls(rng: random.Random, style: Style) -> list[Call]:
    names = [random_name(rng, style) for _ in range(1 if style.one_call else rng.randrange(1, 4))]
    return [
        Call(
            name=name,
            arguments={
                random_name(rng, style): random_value(rng, style) for _ in range(rng.randrange(4))
            },
            id=style.id_of(name, rng.randrange(1000)),
        )
        for name in names
    ]


def tools_of(calls: list[Call]) -> list[dict[str, Any]]:
    """Of formats without quotes only the schema knows whether "3" is a number."""
    by_name: dict[str, dict[str, Any]] = {}
    for call in calls:
        properties = by_name.setdefault(call.name, {})
        for key, value in call.arguments.items():
            properties[key] = {"type": "string" if isinstance(value, str) else "object"}
    return [
        {
            "type": "function",
            "function": {"name": name, "parameters": {"type": "object", "properties": properties}},
        }
        for name, properties in by_name.items()
    ]


def cuts(text: str, rng: random.Random) -> Iterator[list[str]]:
    """At every character; in two, at each place; in random pieces."""
    yield list(text)
    for i in range(1, len(text), 1 + len(text) // 60):
        yield [text[:i], text[i:]]
    for _ in range(5):
        places = sorted(rng.sample(range(len(text)), k=min(len(text), rng.randrange(1, 9))))
        yield [text[i:j] for i, j in zip([0, *places], [*places, len(text)], strict=True)]


def written_content(family: str, content: str) -> str:
    """Harmony's is a message of its own."""
    if family != "harmony" or not content:
        return content
    return f"<|channel|>commentary<|message|>{content}<|end|><|start|>assistant"


@pytest.mark.parametrize("variant", STYLES)
@pytest.mark.fuzz
def test_random_calls_are_parsed_to_the_same_calls_however_they_are_cut(variant: str) -> None:
    style, family = STYLES[variant], variant.partition("/")[0]
    rng = random.Random(variant)
    for _ in range(25 * TIMES):
        calls = random_calls(rng, style)
        content = rng.choice(["", "Let me look. ", "Ü: 5 < 6\n"])
        reasoning = rng.choice(["", "\nHm, why?\n", "a <b> c"]) if style.reasoning else ""
        text = style.message(written_content(family, content), reasoning, calls)
        tools = tools_of(calls)
        whole = parsed(family, text, tools=tools)
        assert named_calls(whole) == [(call.name, call.arguments) for call in calls], text
        assert [call.get("id", "") for call in whole["tool_calls"]] == [call.id for call in calls]
        assert whole["content"] == content
        assert whole.get("reasoning_content", "") == reasoning
        for pieces in cuts(text, rng):
            assert joined(deltas(family, pieces, tools=tools)) == whole, pieces


def test_every_family_with_tools_has_a_rendering() -> None:
    tested = {variant.partition("/")[0] for variant in STYLES}
    assert {family.name for family in pagewheel.parser_families()} == tested | {"think"}


@pytest.mark.parametrize("variant", STYLES)
def test_a_call_that_is_cut_off_is_a_call_that_says_so_or_content(variant: str) -> None:
    style, family = STYLES[variant], variant.partition("/")[0]
    call = Call("look_up", {"city": "Zürich", "days": [1, {"a": "b"}]}, style.id_of("look_up", 7))
    text = style.calls([call])
    whole = named_calls(parsed(family, text))
    states = set()
    for end in range(len(text)):
        message = parsed(family, text[:end])
        assert joined(deltas(family, text[:end])) == message
        for found in message.get("tool_calls", []):
            assert found["function"]["name"] == "look_up"
            if "complete" in found:
                states.add("incomplete")
                assert found["complete"] is False
                assert not message["content"]
            else:
                states.add("whole")
                assert named_calls(message) == whole
        if "tool_calls" not in message:
            states.add("content")
    assert states >= {"incomplete", "content"}


def test_arguments_come_before_the_call_has_ended() -> None:
    text = '<tool_call>\n{"name": "f", "arguments": {"a": "long text"}}\n</tool_call>'
    got = deltas("qwen", text)
    with_arguments = [
        i for i, delta in enumerate(got) if delta.get("tool_calls") and "tool_calls" in delta
    ]
    assert with_arguments[0] == text.index('{"a"')
    assert len(with_arguments) == len('{"a": "long text"}')


def test_only_what_may_become_a_marker_is_held_back() -> None:
    shown = [delta["content"] for delta in deltas("qwen", "a <b <tool <tool_calling")]
    assert "".join(shown[:-1]) == "a <b <tool <tool_calling"
    assert shown[2:5] == ["", "<b", " "]
    assert shown[:-1].count("") == len("<" + "<tool" + "<tool_call")
