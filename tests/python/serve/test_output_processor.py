"""Texts become content, reasoning and calls, however they are cut."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from asking import BROKEN, CHAT_TOOLS, THOUGHT, TWO_CALLS, call_text

import pagewheel
from pagewheel import StructuredOutputConfig
from pagewheel.serve.api.output_processor import (
    ChoiceMessage,
    MessagePart,
    ParserConfig,
    arguments_of,
)
from pagewheel.serve.api.response_format import after_reasoning, of_final_message
from pagewheel.serve.http.request_context import json_text
from pagewheel.serve.models.generation import OutputDelta


def delta(
    text: str = "", tokens: Sequence[int] = (), finish_reason: str | None = None
) -> OutputDelta:
    return OutputDelta(0, text, list(tokens), finish_reason=finish_reason)


def pieces_of(text: str, size: int) -> Iterator[OutputDelta]:
    for begin in range(0, len(text), size):
        yield delta(text[begin : begin + size])
    yield delta(finish_reason="stop")


def told(parts: Sequence[MessagePart]) -> list[Any]:
    return [(each.kind, each.text, each.index, each.name, each.is_complete) for each in parts]


@pytest.mark.parametrize("text", [THOUGHT, TWO_CALLS, BROKEN, call_text() + "Done." + call_text()])
@pytest.mark.parametrize("size", [1, 3, 7])
def test_parts_do_not_depend_on_how_the_text_is_cut(text: str, size: int) -> None:
    parser = ParserConfig("qwen", CHAT_TOOLS)
    by_one, cut = ChoiceMessage(parser), ChoiceMessage(parser)
    for each in pieces_of(text, 1):
        by_one.add(each)
    joined: list[MessagePart] = []
    for each in pieces_of(text, size):
        joined += cut.add(each)
    assert told(cut.parts) == told(by_one.parts)
    arguments = [each.text for each in joined if each.kind == "call"]
    assert "".join(arguments) == "".join(each.text for each in cut.calls())


def test_without_a_family_all_is_content() -> None:
    text = ChoiceMessage(ParserConfig())
    for each in pieces_of(THOUGHT, 5):
        text.add(each)
    assert told(text.parts) == [("content", THOUGHT, 0, "", True)]


def test_reasoning_that_the_prompt_began_ends_in_the_answer() -> None:
    text = ChoiceMessage(ParserConfig("think", starts_in_reasoning=True))
    for each in pieces_of("So be it</think>Yes", 4):
        text.add(each)
    assert [(each.kind, each.text) for each in text.parts] == [
        ("reasoning", "So be it"),
        ("content", "Yes"),
    ]


def test_mistrals_calls_have_ids_that_its_templates_take() -> None:
    text = ChoiceMessage(ParserConfig("mistral", CHAT_TOOLS))
    for each in pieces_of('[TOOL_CALLS]weather[ARGS]{"place": "Rome"}', 4):
        text.add(each)
    (call,) = text.calls()
    assert len(call.id) == 9
    assert call.id.isalnum()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1]}', {"a": [1]}),
        ('{"a": [1', {"a": [1]}),
        ('{"a": 1, "b', {"a": 1}),
        ("", {}),
        ("[1]", {}),
    ],
)
def test_arguments_that_were_cut_off_have_what_there_is(text: str, value: Any) -> None:
    assert json.loads(arguments_of(text).text) == value


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1e999, "b": -1e999}',
        '{"a": ' + "9" * 5000 + "}",
        '{"a": 1, "a": 2}',
        '{"a": 1.00000000000000000000001}',
        '{"a": "\\ud83d"}',
        '{\n "a" : [ ] }',
    ],
    ids=range(6),
)
def test_arguments_that_are_json_stay_as_they_are(text: str) -> None:
    answer = json_text({"input": arguments_of(text), "text": text})
    assert answer.startswith('{"input":' + text + ',"text":')


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": NaN, "b": -Infinity}', {"a": "NaN", "b": "-Infinity"}),
        ('{"a": NaN, "b": "\\ud83d"}', {"a": "NaN", "b": "\ud83d"}),
        ('{"a": 1e999, "b": [1', {"a": "Infinity", "b": [1]}),
        ('{"a": NaN, "b": 1e999}', {"a": "NaN", "b": "1e999"}),
        ("[" * 100_000, {}),
    ],
    ids=range(5),
)
def test_arguments_that_are_nearly_json_lose_no_answer(text: str, value: Any) -> None:
    assert json.loads(json_text({"input": arguments_of(text)}))["input"] == value


@pytest.mark.parametrize(
    ("starts", "allowed", "refused"),
    [
        (True, ["Hm</think>\n\nyes"], ["yes", "Hm</think>maybe"]),
        (False, ["yes", "<think>Hm</think>yes"], ["Hm</think>yes", "<think>Hm"]),
    ],
)
def test_a_shape_is_asked_of_what_follows_reasoning(
    calling_folder: Path, starts: bool, allowed: list[str], refused: list[str]
) -> None:
    part = after_reasoning(
        "...<think>...",
        ParserConfig("think", starts_in_reasoning=starts),
        StructuredOutputConfig.Choice(["yes", "no"]),
    )
    config = StructuredOutputConfig(compound_grammar=part)
    grammar = pagewheel.Grammar(config, pagewheel.Tokenizer(calling_folder))
    assert all(grammar.accepts(text) for text in allowed)
    assert not any(grammar.accepts(text) for text in refused)


def test_gpt_oss_answers_in_its_final_channel(calling_folder: Path) -> None:
    part = of_final_message(ParserConfig("harmony"), StructuredOutputConfig.Choice(["yes"]))
    config = StructuredOutputConfig(compound_grammar=part)
    grammar = pagewheel.Grammar(config, pagewheel.Tokenizer(calling_folder))
    final = "<|channel|>final<|message|>yes"
    analysis = "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant"
    assert grammar.accepts(final)
    assert grammar.accepts(analysis + final)
    assert not grammar.accepts("yes")
