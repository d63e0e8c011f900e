"""Hostile grammars end with an error, in bounded time and memory, and harm no other."""

from __future__ import annotations

import json
import random
import re
import resource
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from fuzzing import TIMES
from walks import walk

import pagewheel
from pagewheel import StructuredOutputConfig as Config


def nested(depth: int, key: str) -> object:
    schema: object = {}
    for _ in range(depth):
        schema = {key: schema if key != "allOf" else [schema, schema]}
    return schema


def hostile() -> dict[str, object]:
    chain = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}", "type": "object"} for i in range(5000)}
    return {
        "deep": Config.JSONSchema(json.dumps(nested(90, "items"))),
        "too deep": Config.JSONSchema("[" * 100_000),
        "doubling": Config.JSONSchema(json.dumps(nested(18, "allOf"))),
        "chain of references": Config.JSONSchema({"$ref": "#/$defs/d0", "$defs": chain}),
        "circle": Config.JSONSchema({"$ref": "#", "minLength": 1}),
        "huge enum": Config.JSONSchema({"enum": [f"value {i} {i * i}" for i in range(50_000)]}),
        "many properties": Config.JSONSchema(
            {"properties": {f"p{i}": {"type": "string", "minLength": i} for i in range(3000)}}
        ),
        "long string": Config.JSONSchema({"type": "string", "minLength": 1_000_000}),
        "many items": Config.JSONSchema({"type": "array", "minItems": 1_000_000_000}),
        "number": Config.JSONSchema({"type": "number", "multipleOf": 1e-300}),
        "explosion": Config.Regex("(a|aa|aaa|b){1,5000}c{5000}"),
        "states": Config.Regex("(?:.*a.{60}){20}"),
        "nested counts": Config.Regex("((((a{100}){100}){100}){100})"),
        "parentheses": Config.Regex("(" * 50_000 + "a" + ")" * 50_000),
        "alternatives": Config.Choice([f"{i:09}" for i in range(100_000)]),
        "ebnf counts": Config.EBNF('root ::= (("a"{1000}){1000}){1000}'),
        "ebnf parentheses": Config.EBNF("root ::= " + "(" * 100_000),
        "ebnf repetitions": Config.EBNF("root ::= " + "(" * 198 + '"a"' + (")" + "*" * 199) * 198),
        "ebnf left recursion": Config.EBNF('root ::= root root | root | "a"'),
        "ebnf chain": Config.EBNF(
            "root ::= r0\n"
            + "".join(f'r{i} ::= r{i + 1} | "a" root\n' for i in range(3000))
            + 'r3000 ::= "b"'
        ),
        "ebnf endless": Config.EBNF("root ::= root"),
        "lark parentheses": Config.Lark("start: " + "(" * 10_000),
        "lark itself": Config.Lark("start: start | "),
        "lark counts": Config.Lark('start: ("a"{1000000}){1000000}'),
        "ambiguous": Config.EBNF('root ::= ("a" | "a" "a" | root root)*'),
    }


def peak_kilobytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("name", hostile())
def test_hostile_grammars_are_refused_or_harmless(
    name: str, smollm2_tokenizer: pagewheel.Tokenizer
) -> None:
    begin, peak = time.process_time(), peak_kilobytes()
    try:
        matcher = pagewheel.Grammar(hostile()[name], smollm2_tokenizer).matcher()
        walk(matcher, smollm2_tokenizer.get_eos_token_id(), random.Random(1), most=20)
    except (ValueError, RuntimeError) as error:
        assert len(str(error)) < 5000
    assert time.process_time() - begin < 30
    grammar = pagewheel.Grammar(Config.Regex("a"), smollm2_tokenizer)
    assert grammar.accepts("a")
    assert peak_kilobytes() < peak + 4_000_000  # whatever ran in this process before


def test_repetitions_of_repetitions_are_refused(smollm2_tokenizer: pagewheel.Tokenizer) -> None:
    for depth in (150, 175, 198):
        text = "root ::= " + "(" * depth + '"a"' + (")" + "*" * 199) * depth
        with pytest.raises(ValueError, match="together more than 700 deep"):
            pagewheel.Grammar(Config.EBNF(text), smollm2_tokenizer)


def test_the_documents_tell_the_bound_of_the_lexers_states() -> None:
    root = Path(__file__).parents[3]
    header = (root / "src/cpp/src/grammar/grammar_limits.hpp").read_text()
    documents = (root / "docs/structured_output.md").read_text()
    bound = re.search(r"lexer_states = ([0-9']+)", header)
    assert bound is not None
    number = bound[1].replace("'", ",")
    assert f"| states of its lexer, shared by all its texts | {number} of" in documents


@pytest.mark.fuzz
def test_random_grammars_never_harm(smollm2_tokenizer: pagewheel.Tokenizer) -> None:
    rng = random.Random(7)
    words = [
        *'"[](){}|*+?.,:;-\\/^$<>#=&~ \n\0ab01',
        "root ::= ", "start: ", '"a"', "[a-z]", "/a+/", "%json ", "%ignore ", "{1,3}", "<|im_end|>",
        "{}", '{"type":"object"}', '{"$ref":"#"}', '{"enum":[1,"a"]}', "(?:", "\\d", "\\u{",
        "\u00e9", "[lazy]", "%llguidance {}", "@x", "\\x{110000}", "{99999}",
    ]  # fmt: skip
    kinds = [Config.Regex, Config.EBNF, Config.Lark, Config.JSONSchema]
    for _ in range(400 * TIMES):
        text = "".join(rng.choices(words, k=rng.randint(1, 25)))
        kind = rng.choice(kinds)
        if kind in (Config.EBNF, Config.Lark) and rng.random() < 0.7:
            text = ("root ::= " if kind is Config.EBNF else "start: ") + text
        try:
            matcher = pagewheel.Grammar(kind(text), smollm2_tokenizer).matcher()
            walk(matcher, smollm2_tokenizer.get_eos_token_id(), rng, most=10)
        except (ValueError, RuntimeError):
            pass


def test_nothing_is_written_to_stderr(smollm2_tokenizer: pagewheel.Tokenizer) -> None:
    from pagewheel.default_model import default_model

    code = """
        import sys, pagewheel
        from pagewheel import StructuredOutputConfig as Config
        tokenizer = pagewheel.Tokenizer(sys.argv[1])
        for part in (Config.Regex("("), Config.Lark("start: x"), Config.JSONSchema({"not": {}}),
                     Config.Lark('start: a\\na[stop=""]: /.*/'), Config.Regex("a{9}{9}{9}{9}{9}")):
            try:
                pagewheel.Grammar(part, tokenizer).matcher().compute_mask()
            except (ValueError, RuntimeError):
                pass
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(default_model(progress=False))],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
