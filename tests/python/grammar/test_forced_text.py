"""Text that a grammar forces: its tokens are the tokenizer's, and the model would not change it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from conftest import batching_pipeline, drain
from fuzzing import TIMES
from schemas import in_schema_order, real_schemas, suite
from suite_run import tokens_of
from walks import Vocabulary, closers, walk

import pagewheel
from pagewheel import GenerationConfig, StructuredOutputConfig, StructuredOutputConfig as Config

# What tokenizers split in ways of their own: words, spaces, digits, line ends, marks, characters
# of several bytes, tokens of several characters.
TEXTS = [
    '{"full_name": "',
    "def main():\n    return [1, 2, 3]\n\n\n    # end  \n",
    "The quick  brown fox, don't   jump. I'll we're CAN'T\n\n",
    "Gr\u00fc\u00dfe an \u4e16\u754c! \U0001f642\U0001f44d\U0001f3fd \u00a0x",
    "1234567890 3.14159 2024-02-29",
    "   before and behind   ",
    "\t\tTabs\n\n\n\r\nlines",
    '</tool_call>\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "',
    "AAAAAAAAAAAAAAAAA////////----------======",
    "e\u0301 \u200d \ufeff",
]
# A choice before the text and one behind it, each with texts of it.
SURROUNDINGS: list[tuple[str, list[str], str, list[str]]] = [
    ("[a-c]", ["a", "c"], "[0-9]", ["1"]),
    ("[a-c ]?", [" ", "", "a"], " ?[A-Za-z]{0,5}", ["", " x", "abc", " "]),
    ("(a|the )", ["a", "the "], "[^0-9]{1,5}", [" the", "ing", " ", "\u00e9\U0001f642"]),
]


def check_forced(grammar: pagewheel.Grammar, text: str, tokenizer: pagewheel.Tokenizer) -> int:
    """Where the text so far is tokens of the whole text's, what is forced are the next of them, in
    number as well: tokens that later text might change are not forced. Returns how many were."""
    tokens = tokens_of(tokenizer, text)
    matcher = grammar.matcher()
    num_forced = 0
    for place, token in enumerate(tokens):
        forced = matcher.jump_forward_tokens()
        assert forced == tokens[place : place + len(forced)], (text, place)
        num_forced += bool(forced)
        assert matcher.accept(token), (text, place)
    assert matcher.is_accepting or matcher.is_finished
    return num_forced


@pytest.mark.parametrize("surrounding", SURROUNDINGS, ids=lambda each: each[0])
def test_a_constant_between_choices_has_the_tokens_of_the_whole_text(
    surrounding: tuple[str, list[str], str, list[str]], real_tokenizer: pagewheel.Tokenizer
) -> None:
    before, begins, behind, ends = surrounding
    for text in TEXTS:
        parts = Config.Concat(Config.Regex(before), Config.ConstString(text), Config.Regex(behind))
        grammar = pagewheel.Grammar(Config(compound_grammar=parts), real_tokenizer)
        for begin in begins:
            for end in ends:
                assert check_forced(grammar, begin + text + end, real_tokenizer) > 0


def test_the_instances_of_the_suite_have_the_tokens_of_the_whole_text(
    real_tokenizer: pagewheel.Tokenizer,
) -> None:
    num_forced = 0
    for case in suite():
        try:
            grammar = pagewheel.Grammar(Config.JSONSchema(json.dumps(case.schema)), real_tokenizer)
        except ValueError:
            continue
        for _, value, is_valid in case.instances:
            ordered = in_schema_order(value, case.schema, case.schema)
            text = json.dumps(ordered, ensure_ascii=False)
            if is_valid and grammar.accepts(text):
                num_forced += check_forced(grammar, text, real_tokenizer)
    assert num_forced > 100


@pytest.mark.fuzz
def test_texts_of_real_schemas_have_the_tokens_of_the_whole_text(
    smollm2_tokenizer: pagewheel.Tokenizer,
) -> None:
    """Written without white space, which forces more."""
    tokenizer = smollm2_tokenizer
    vocabulary, rng = Vocabulary.of(tokenizer), random.Random(19)
    ends = closers(vocabulary)
    num_forced = 0
    for number, text in enumerate(real_schemas().values()):
        if number % 5 >= TIMES:
            continue
        try:
            grammar = pagewheel.Grammar(Config.JSONSchema(compact(text)), tokenizer)
        except ValueError:
            continue
        tokens = walk(grammar.matcher(), vocabulary.end, rng, closers=ends)
        if tokens is not None:
            written = b"".join(vocabulary.tokens[token] for token in tokens).decode()
            num_forced += check_forced(grammar, written, tokenizer)
    assert num_forced > 20


def compact(schema: str | dict[str, Any]) -> dict[str, Any]:
    schema = json.loads(schema) if isinstance(schema, str) else schema
    return {**schema, "x-guidance": {"whitespace_flexible": False}}


RECORD = {
    "type": "object",
    "properties": {
        "identification_number": {"type": "integer", "minimum": 0, "maximum": 99},
        "first_and_last_name": {"type": "string", "maxLength": 12},
        "favourite_colour": {"enum": ["light green", "light blue", "dark red"]},
        "Stra\u00dfe \u4e16\u754c": {"type": "boolean"},
    },
    "required": ["identification_number", "first_and_last_name", "favourite_colour"],
    "additionalProperties": False,
}
FIND = {
    "name": "find_record",
    "parameters": {
        "type": "object",
        "properties": {
            "identification_number": {"type": "integer"},
            "wanted_field": {"enum": ["date_of_birth", "date_of_death"]},
        },
        "required": ["identification_number", "wanted_field"],
    },
}
GRAMMARS: dict[str, StructuredOutputConfig] = {
    "compact JSON": Config(json_schema=compact(RECORD)),
    "JSON": Config(json_schema=RECORD),
    "a list": Config(json_schema=compact({"type": "array", "items": RECORD, "maxItems": 2})),
    "a regex": Config(regex="(Yes, of course|Yes, but not now|No, by no means)( at all)?[.!]"),
    "EBNF": Config(grammar='root ::= ("SELECT name FROM people WHERE age > " [0-9] [0-9] "; ")+'),
    "a tag": Config(
        compound_grammar=Config.Tag("<answer>\n  ", Config.Regex("[0-9]{1,3}"), "\n</answer>\n")
    ),
    "calls": pagewheel.tool_call_grammar([FIND], "qwen", tool_choice="required"),
    "Python calls": pagewheel.tool_call_grammar([FIND], "gemma", tool_choice="required"),
}


@pytest.mark.parametrize("way", ["greedy", "sampled"])
def test_a_text_is_the_same_where_nothing_is_appended_ahead(way: str, real_folder: Path) -> None:
    """With log-probabilities the model is asked for each token. Steps show that it was."""
    pipeline = batching_pipeline(real_folder, {"batch_invariant": True}, num_kv_blocks=300)
    sampling = {"do_sample": True, "temperature": 1.5} if way == "sampled" else {}
    ids, steps = [], []
    for extra in ({}, {"logprobs": 1}):
        before = pipeline.get_statistics().num_steps
        handles = [
            pipeline.add_request(
                number,
                "Describe a person.",
                GenerationConfig(
                    max_new_tokens=40 if name == "JSON" else 80,  # white space is not forced
                    rng_seed=number,
                    structured_output_config=grammar,
                    **sampling,
                    **extra,
                ),
            )
            for number, (name, grammar) in enumerate(GRAMMARS.items())
        ]
        drain(pipeline)
        outputs = [handle.read_all(with_text=True)[0] for handle in handles]
        ids.append({name: each.generated_ids for name, each in zip(GRAMMARS, outputs, strict=True)})
        steps.append(pipeline.get_statistics().num_steps - before)
    assert ids[0] == ids[1]
    assert steps[0] < steps[1]


def test_durations_are_of_tokens_in_calls_and_handles(real_folder: Path) -> None:
    pipeline = batching_pipeline(real_folder, {}, num_kv_blocks=100)
    config = GenerationConfig(max_new_tokens=60, structured_output_config=GRAMMARS["calls"])
    before = pipeline.get_statistics().num_steps
    [result] = pipeline.generate(["Find a record."], [config])
    steps = pipeline.get_statistics().num_steps - before
    handle = pipeline.add_request(0, "Find a record.", config)
    drain(pipeline)
    ids = handle.read_all()[0].generated_ids
    of_call = result.perf_metrics.raw_metrics
    of_handle = handle.get_perf_metrics().raw_metrics
    in_first_step = of_call.m_batch_sizes[0]
    assert len(of_call.m_durations) == len(of_handle.m_durations) == len(ids) - in_first_step
    assert len(of_call.m_durations) > steps
    assert min(of_handle.m_durations) > 0
