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
from pagewheel.serve.api.grammars import after_reasoning, of_final_message
from pagewheel.serve.api.output_processor import (
    ChoiceMessage,
    MessagePart,
    ParserConfig,
    arguments_of,
)
from pagewheel.serve.api.verbatim_text import VerbatimText
from pagewheel.serve.http.request_context import json_text
from pagewheel.serve.models.generation import OutputDelta


def delta(
    text: str = "", tokens: Sequence[int] = (), finish_reason: str | None = None
) -> OutputDelta:
    return OutputDelta(0, text, list(tokens), [], [], finish_reason=finish_reason)


def pieces_of(text: str, size: int) -> Iterator[OutputDelta]:
    for begin in range(0, len(text), size):
        yield delta(text[begin : begin + size])
    yield delta(finish_reason="stop")


def told(parts: Sequence[MessagePart]) -> list[Any]:
    return [(each.kind, each.text, each.index, each.name, each.is_complete) for each in parts]


@pytest.mark.parametrize("text", [THOUGHT, TWO_CALLS, BROKEN, call_text() + "Done." + call_text()])
@pytest.mark.parametrize("size", [1, 3, 7])
def test_sections_do_not_depend_on_how_the_text_is_cut(text: str, size: int) -> None:
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


def verbatim(folder: Path, stop: Sequence[str] = (), with_stop: bool = False) -> VerbatimText:
    return VerbatimText(pagewheel.Tokenizer(folder), stop, with_stop)


def tokens_of(folder: Path, text: str) -> list[int]:
    encoded = pagewheel.Tokenizer(folder).encode(text, add_special_tokens=False)
    return [int(each) for each in encoded.input_ids.data[0]]


def test_verbatim_text_has_the_special_tokens(calling_folder: Path) -> None:
    text = verbatim(calling_folder)
    tokens = tokens_of(calling_folder, "a<|im_end|>bé")
    found = "".join(text.add(delta(tokens=[each])) for each in tokens)
    assert found + text.add(delta(finish_reason="stop")) == "a<|im_end|>bé"


@pytest.mark.parametrize(("with_stop", "expected"), [(False, "one "), (True, "one two")])
def test_verbatim_text_ends_before_a_stop_string(
    calling_folder: Path, with_stop: bool, expected: str
) -> None:
    text = verbatim(calling_folder, ["two", "twofold"], with_stop)
    found = ""
    for each in tokens_of(calling_folder, "one two three"):
        found += text.add(delta(tokens=[each]))
        assert expected.startswith(found)
    assert found + text.add(delta(finish_reason="stop")) == expected


@pytest.mark.parametrize("size", [1, 3, 100])
def test_no_stop_string_ends_in_the_verbatim_text_of_the_first_tokens(
    calling_folder: Path, size: int
) -> None:
    tokens = tokens_of(calling_folder, "a b a b a b")
    tokenizer = pagewheel.Tokenizer(calling_folder)
    early = len(str(tokenizer.decode(tokens[:4])))
    text = VerbatimText(tokenizer, ["b"], False, min_tokens=4)
    deltas = [tokens[i : i + size] for i in range(0, len(tokens), size)]
    found = "".join(text.add(delta(tokens=each)) for each in deltas)
    found += text.add(delta(finish_reason="stop"))
    assert found == "a b a b a b"[: "a b a b a b".index("b", early)]


def test_texts_that_share_stop_strings_end_each_by_its_own(calling_folder: Path) -> None:
    first = verbatim(calling_folder, ["two"])
    texts = [first, VerbatimText(pagewheel.Tokenizer(calling_folder), [], False, like=first)]
    said = ["one two three", "one, three, two"]
    for text, whole in zip(texts, said, strict=True):
        found = "".join(text.add(delta(tokens=[each])) for each in tokens_of(calling_folder, whole))
        assert found + text.add(delta(finish_reason="stop")) == whole[: whole.index("two")]


def test_what_may_begin_a_stop_string_comes_once_it_does_not(calling_folder: Path) -> None:
    text = verbatim(calling_folder, ["abc"])
    tokens = tokens_of(calling_folder, "xabab")
    found = "".join(text.add(delta(tokens=[each])) for each in tokens)
    assert found == "xab"
    assert found + text.add(delta(finish_reason="stop")) == "xabab"


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
