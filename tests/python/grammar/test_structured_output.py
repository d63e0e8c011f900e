"""Structured output: which texts each kind of grammar accepts, names and errors."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, Literal

import pytest

import pagewheel
from pagewheel import StructuralTagItem, StructuralTagsConfig, StructuredOutputConfig as Config

SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "string"},
        "b": {"type": "integer"},
        "c": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["a", "b"],
}
NUMBER = Config.Tag("<n>", Config.Regex("[0-9]+"), "</n>")
JSON_NUMBER = Config.Tag("<n>", Config.JSONSchema({"type": "integer"}), "</n>")

# A grammar, what it accepts, and what not. Where openvino_genai has it, so does that.
CASES: dict[str, tuple[Any, list[str], list[str]]] = {
    "regex": (Config.Regex("^a/+|b$"), ["a//", "b"], ["a", "^b", "ab"]),
    "const": (Config.ConstString('a"\\\n\u00e9'), ['a"\\\n\u00e9'], ["a", ""]),
    "choice": (Config.Choice(["a", "ab", ""]), ["a", "ab", ""], ["b", "aab"]),
    "json": (
        Config.JSONSchema(SCHEMA),
        ['{"a":"x","b":1}', '{ "a" : "x" ,\n\t"b":1, "c": [1, 2]}'],
        [
            '{"b":1,"a":"x"}',
            '{"a":"x"}',
            ' {"a":"x","b":1}',
            '{"a":' + " " * 129 + '"x","b":1}',
            '{"a":"x","b":1,"z":null}',
        ],
    ),
    "any text": (Config.AnyText(), ["", "x", "\u65e5\n"], []),
    "tag": (
        Config.Tag("<a>", Config.AnyText(), "</a>"),
        ["<a></a>", "<a>x</b></a>"],
        ["<a>x</a>y", "<a>x</a></a>", "x"],
    ),
    "concat": (Config.AnyText() + Config.ConstString("X"), ["X", "abXcX"], ["ab", "Xa"]),
    "union": (
        Config.Regex("a+") | Config.JSONSchema(SCHEMA),
        ["aaa", '{"a":"x","b":1}'],
        ['aaa{"a":"x","b":1}', ""],
    ),
    "text and json": (
        Config.AnyText() + Config.Tag("```json\n", Config.JSONSchema(SCHEMA), "\n```"),
        ['so: ```json\n{"a":"x","b":1}\n```', '```json\n{"a":"x","b":1}\n```'],
        ["so", '```json\n{"b":1}\n```'],
    ),
    "triggered": (
        Config.TriggeredTags(["<n"], [NUMBER]),
        ["", "hi", "hi <n>1</n>", "<n>1</n> x <n>2</n> y", "a<"],
        ["<n>x", "hi <nx", "<n>1</n"],
    ),
    "triggered, at least one": (
        Config.TriggeredTags(["<n"], [JSON_NUMBER], at_least_one=True),
        ["<n>1</n> x <n>2</n> y", "<n>1</n>"],
        ["", "hi <n>1</n>"],
    ),
    "triggered, one": (
        Config.TriggeredTags(["<n"], [NUMBER], stop_after_first=True),
        ["", "hi", "hi <n>1</n>"],
        ["<n>1</n> z", "<n>1</n> x <n>2</n>"],
    ),
    "triggered, exactly one": (
        Config.TriggeredTags(["<n"], [NUMBER], at_least_one=True, stop_after_first=True),
        ["<n>1</n>"],
        ["", "hi <n>1</n>", "<n>1</n> z"],
    ),
    "separated": (
        Config.TagsWithSeparator([NUMBER], ","),
        ["", "<n>1</n>", "<n>1</n>,<n>2</n>"],
        ["<n>1</n>,", "<n>1</n><n>2</n>"],
    ),
    "separated json": (
        Config.TagsWithSeparator([JSON_NUMBER], ",", at_least_one=True, stop_after_first=True),
        ["<n>1</n>"],
        ["", "<n>1</n>,<n>2</n>"],
    ),
    "qwen": (
        Config.QwenXMLParametersFormat(SCHEMA),
        [
            "<parameter=a>x<y</parameter><parameter=b>1</parameter>",
            "<parameter=a>\nx\n</parameter>\n<parameter=b>\n1\n</parameter>\n",
            "<parameter=a>x</parameter><parameter=b>1</parameter><parameter=c>[1, 2]</parameter>",
        ],
        [
            "<parameter=b>1</parameter><parameter=a>x</parameter>",
            "<parameter=a>x</parameter><parameter=b>y</parameter>",
            "<parameter=a>x</parameter><parameter=b>1</parameter><parameter=z>q</parameter>",
        ],
    ),
    "ebnf": (
        Config.EBNF(
            'root ::= value  # comment\nvalue ::= list | [0-9]+ | "\\"" [^"]* "\\""\n'
            'list ::= "[" (value ("," value){0,2})? "]"'
        ),
        ['[1,"a,",[]]', "12", '""'],
        ["[1,]", "[1,2,3,4]", '"'],
    ),
    "ebnf escapes": (
        Config.EBNF('root ::= "\\u00e9\\x41\\n" [\\u4e00-\\u9fff] [^a-c\\n\\]-]?'),
        ["\u00e9A\n\u4e2d", "\u00e9A\n\u4e2dx"],
        ["\u00e9A\n\u4e2da", "\u00e9A\n\u4e2d-", "\u00e9A\nx"],
    ),
    "lark": (
        Config.ConstString("<") + Config.Lark('start: "a" b\nb: /c{2}/ | %json {"const": 1}'),
        ["<acc", "<a1"],
        ["<ac", "acc"],
    ),
    "special tokens": (
        Config.Tag("<|im_start|>a\n", Config.AnyText(), "<|im_end|>"),
        ["<|im_start|>a\nhi<|im_end|>"],
        ["a\nhi", "<|im_start|>a\nhi"],
    ),
    "xgrammar's words": (
        Config.Regex("b") + '{"type": "const_string", "value": "hello"}',
        ["bhello"],
        ["b"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_grammars_accept(name: str, smollm2_tokenizer: pagewheel.Tokenizer) -> None:
    part, good, bad = CASES[name]
    grammar = pagewheel.Grammar(part, smollm2_tokenizer)
    assert [text for text in good if not grammar.accepts(text)] == []
    assert [text for text in bad if grammar.accepts(text)] == []
    assert grammar.accepts_prefix(good[0]) and grammar.accepts_prefix("")


def test_configs_accept_what_their_parts_do(smollm2_tokenizer: pagewheel.Tokenizer) -> None:
    tags = StructuralTagsConfig(
        structural_tags=[StructuralTagItem(begin="<f>", schema={"type": "integer"}, end="</f>")],
        triggers=["<f"],
    )
    for config, good, bad in [
        (Config(json_schema={"type": "integer"}), "12", "x"),
        (Config(regex="a+"), "aa", "b"),
        (Config(grammar='root ::= "a"'), "a", "b"),
        (Config(structural_tags_config=tags), "so <f>1</f>", "so <f>x</f>"),
        (Config(structural_tags_config=NUMBER), "<n>1</n>", "1"),
        (Config(compound_grammar=NUMBER | Config.ConstString("x")), "x", "y"),
    ]:
        grammar = pagewheel.Grammar(config, smollm2_tokenizer)
        assert grammar.accepts(good) and not grammar.accepts(bad)


def test_types_of_python_are_schemas(smollm2_tokenizer: pagewheel.Tokenizer) -> None:
    pydantic = pytest.importorskip("pydantic")

    @dataclass
    class Point:
        x: int
        kind: Literal["a", "b"]

    model = pydantic.create_model("Model", points=(list[Point], ...))
    grammar = pagewheel.Grammar(Config(json_schema=model), smollm2_tokenizer)
    assert grammar.accepts('{"points":[{"x":1,"kind":"b"}]}')
    assert not grammar.accepts('{"points":[{"x":1,"kind":"c"}]}')
    assert pagewheel.Grammar(Config.JSONSchema(list[int]), smollm2_tokenizer).accepts("[1, 2]")


ERRORS: dict[str, tuple[Any, str]] = {
    "keyword": (
        Config.JSONSchema({"properties": {"a": {"not": {}}}}),
        'JSON schema: keywords that are not supported: ["not"]; at /properties/a/not',
    ),
    "keyword in a compound": (
        Config.ConstString("a") + Config.JSONSchema({"items": {"uniqueItems": True}}),
        'JSON schema: keywords that are not supported: ["uniqueItems"]; at /items/uniqueItems',
    ),
    "format": (
        Config.JSONSchema({"properties": {"a": {"type": "string", "format": "regex"}}}),
        "JSON schema: Unknown format: regex; at /properties/a/format",
    ),
    "no json": (Config.JSONSchema('{"a":\n x}'), "JSON schema is no JSON: parse error at line 2"),
    "unsatisfiable": (
        Config.JSONSchema({"type": "integer", "minimum": 5, "maximum": 3}),
        "JSON schema: Unsatisfiable schema: minimum (5) is greater than maximum (3)",
    ),
    "reference": (Config.JSONSchema({"$ref": "#/$defs/x"}), "does not exist; at /$ref"),
    "regex": (Config.Regex("(a"), "grammar: invalid regex"),
    "look-around": (Config.Regex("(?=a)"), "look-around"),
    "lark": (Config.Lark("start: y"), 'Lark grammar, line(column) at 1(8): unknown name: "y"'),
    "ebnf": (Config.EBNF("root ::= a"), "EBNF, line 1, column 10: rule 'a' is not defined"),
    "ebnf macro": (Config.EBNF('root ::= "a" (="b")'), "lookahead (= ...) is not supported"),
    "zero byte": (Config.Lark('start: "a\0"'), "zero byte"),
    "qwen": (
        Config.QwenXMLParametersFormat(
            {"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}}
        ),
        "keyword 'pattern' of the string at /properties/a is not supported",
    ),
    "trigger": (Config.TriggeredTags(["<x"], [NUMBER]), "begins with none of the triggers"),
    "empty choice": (Config.Choice([]), "Choice without values"),
}


def test_many_optional_parameters_of_qwen_stay_within_the_limits(
    smollm2_tokenizer: pagewheel.Tokenizer,
) -> None:
    properties = {f"p{i}": {"type": ["string", "integer"][i % 2]} for i in range(120)}
    schema = {"type": "object", "properties": properties}
    grammar = pagewheel.Grammar(Config.QwenXMLParametersFormat(schema), smollm2_tokenizer)
    every = [f"<parameter=p{i}>{i}</parameter>\n" for i in range(120)]
    assert grammar.accepts("".join(every))
    assert grammar.accepts(every[7] + every[90])
    assert not grammar.accepts(every[90] + every[7])


@pytest.mark.parametrize("name", ERRORS)
def test_errors_tell_the_place(name: str, smollm2_tokenizer: pagewheel.Tokenizer) -> None:
    part, message = ERRORS[name]
    with pytest.raises(ValueError) as raised:
        pagewheel.Grammar(part, smollm2_tokenizer)
    assert message in str(raised.value)


PLACES: dict[str, tuple[dict[str, Any], str]] = {
    "const": ({"const": 1234567890123456789}, "/const"),
    "enum": ({"enum": [1, [{"a": -9007199254740993}]]}, "/enum"),
    "minimum": ({"type": "integer", "minimum": 9007199254740993}, "/minimum"),
    "exclusive": ({"type": "integer", "exclusiveMinimum": 9007199254740992}, "/exclusiveMinimum"),
    "number": ({"type": "number", "maximum": 2**63 - 1}, "/maximum"),
    # llguidance 1.9.1 ends the process with this one.
    "least": ({"properties": {"a": {"const": -(2**63)}}}, "/properties/a/const"),
    "least integer": ({"allOf": [{"type": "integer"}, {"const": -1e30}]}, "/allOf/1/const"),
    "by reference": ({"$ref": "#/examples/0", "examples": [{"const": 2**64}]}, "/examples/0/const"),
}


@pytest.mark.parametrize("name", PLACES)
def test_numbers_that_a_grammar_would_change_are_refused(
    name: str, smollm2_tokenizer: pagewheel.Tokenizer
) -> None:
    schema, place = PLACES[name]
    for part in (
        Config.JSONSchema(schema),
        Config.Tag("<n>", Config.JSONSchema(schema), "</n>"),
        {"type": "tag", "begin": "<", "content": {"type": "json_schema", "json_schema": schema}}
        | {"end": ">"},
    ):
        text = json.dumps(part) if isinstance(part, dict) else part
        with pytest.raises(ValueError, match=f"cannot be kept exactly; at {place}"):
            pagewheel.Grammar(Config.ConstString("x") + text, smollm2_tokenizer)


def test_long_decimals_are_refused(smollm2_tokenizer: pagewheel.Tokenizer) -> None:
    schema = '{"const": 0.12345678901234567890}'
    with pytest.raises(
        ValueError, match=r"0\.12345678901234567890 cannot be kept exactly; at /const"
    ):
        pagewheel.Grammar(Config.JSONSchema(schema), smollm2_tokenizer)
    with pytest.raises(ValueError, match=r"0\.12345678901234567890 cannot be kept exactly"):
        Config.ConstString("x") + f'{{"type": "json_schema", "json_schema": {schema}}}'


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ('{"const": 9007199254740991}', "9007199254740991", "9007199254740992"),
        ('{"const": 1e18}', str(10**18), str(10**18 + 1)),
        ('{"const": 0.1234567890123456}', "0.1234567890123456", "0.1234567890123457"),
        ('{"type": "integer", "maximum": 1e18}', str(10**18), str(10**18 + 1)),
        ('{"type": "integer", "maximum": 9223372036854775807}', str(2**63 - 1), str(2**63)),
        ('{"type": ["integer", "null"], "maximum": 1e30}', str(2**63 - 1), str(2**63)),
        ('{"type": "integer", "maximum": 18446744073709551615}', str(2**63 - 1), str(2**64)),
        ('{"type": "number", "minimum": -1e18}', str(-(10**18)), str(-(10**18) - 1)),
        ('{"type": "integer"}', "1" * 40, "1.5"),
    ],
)
def test_numbers_that_are_kept_are_kept_exactly(
    schema: str, good: str, bad: str, smollm2_tokenizer: pagewheel.Tokenizer
) -> None:
    grammar = pagewheel.Grammar(Config.JSONSchema(schema), smollm2_tokenizer)
    assert grammar.accepts(good) and not grammar.accepts(bad)


def test_one_member_is_set() -> None:
    with pytest.raises(ValueError, match="has 2 of json_schema, regex"):
        Config(regex="a", json_schema="{}")
    with pytest.raises(ValueError, match="has 0 of"):
        Config().validate()
    with pytest.raises(TypeError, match="unexpected argument 'foo'"):
        Config(foo=1)


def test_parts_are_shown_as_they_are_written() -> None:
    part = Config.Regex("a+") | Config.Tag("<a>", Config.AnyText(), "</a>") + Config.EBNF("b")
    text = repr(part)
    assert text == (
        "Union(Regex('a+'), Concat(Tag(begin='<a>', content=AnyText(), end='</a>'), EBNF('b')))"
    )
    assert repr(part | Config.AnyText()) == text[:-1] + ", AnyText())"
    assert eval(text, {name: getattr(Config, name) for name in dir(Config)}).elements


def test_texts_that_are_no_parts_are_refused() -> None:
    with pytest.raises(ValueError, match="A constant text is ConstString"):
        Config.Regex("a") + "b"
    with pytest.raises(ValueError, match="allowed are any_text"):
        Config.Regex("a") + json.dumps({"type": "other"})
    with pytest.raises(TypeError, match="expected a part"):
        Config.Regex("a") + 1
    with pytest.raises(ValueError, match="at least two elements"):
        Config.Concat(Config.AnyText())


def _run_with_tokenizer(code: str) -> None:
    """Runs the code in a process of its own, whose first argument is a folder with a tokenizer."""
    from pagewheel.default_model import default_model

    run = subprocess.run(
        [sys.executable, "-c", code, str(default_model(progress=False))],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def test_two_threads_may_need_the_package_first() -> None:
    # The first thread gives up the interpreter's lock while it looks for the package.
    _run_with_tokenizer("""
import faulthandler, sys, threading, time
import pagewheel
import pagewheel.grammar_library
faulthandler.dump_traceback_later(60, exit=True)
find = pagewheel.grammar_library.find_library
def find_slowly():
    time.sleep(0.3)
    return find()
pagewheel.grammar_library.find_library = find_slowly
tokenizer = pagewheel.Tokenizer(sys.argv[1])
accepted = []
def compile_grammar():
    regex = pagewheel.StructuredOutputConfig.Regex("a")
    accepted.append(pagewheel.Grammar(regex, tokenizer).accepts("a"))
threads = [threading.Thread(target=compile_grammar) for _ in range(2)]
for each in threads:
    each.start()
for each in threads:
    each.join()
assert accepted == [True, True]
""")


def test_without_the_package_an_error_says_what_to_install() -> None:
    code = """
import sys
sys.modules["llguidance"] = None
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "llguidance" else found(name, *a)
import pagewheel
tokenizer = pagewheel.Tokenizer(sys.argv[1])
try:
    pagewheel.Grammar(pagewheel.StructuredOutputConfig.Regex("a"), tokenizer)
except RuntimeError as error:
    assert 'pip install "llguidance>=1.9.0,<1.10"' in str(error)
else:
    raise SystemExit("no error")
"""
    _run_with_tokenizer(code)
