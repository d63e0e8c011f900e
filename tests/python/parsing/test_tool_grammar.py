"""Grammars of tool calls: they allow what a family writes, and only what parses to valid calls."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from fuzzing import TIMES
from messages import named_calls, parsed
from renderings import Call
from valid_calls import CLOSERS, FAMILIES, TOOLS, VARIANTS, check_calls, opening, rendered

import pagewheel

ONE_CALL = {"harmony", "gigachat"}
TEXTS = ["Zurich", "", "a b", "it's", 'say "hi"', "a\\b", "[x](y)", "{}", "3", "a\nb"]


def grammar_of(tokenizer: pagewheel.Tokenizer, family: str, **options: Any) -> pagewheel.Grammar:
    return pagewheel.Grammar(pagewheel.tool_call_grammar(TOOLS, family, **options), tokenizer)


def random_call(rng: random.Random) -> Call:
    values: dict[str, Any] = {
        "city": rng.choice(TEXTS),
        "days": rng.randint(1, 7),
        "unit": rng.choice(["celsius", "it's F"]),
        "tags": rng.choices(TEXTS, k=rng.randrange(4)),
        "options": rng.choice(
            [
                {"deep": True},
                {"deep": False, "ratio": -0.5, "inner": [1, None]},
                {"deep": True, "inner": []},
            ]
        ),
        "exact": rng.choice([True, False, None]),
    }
    kept = {key: value for key, value in values.items() if key == "days" or rng.random() < 0.5}
    return rng.choice(
        [Call("get_weather", kept), Call("now", {}), Call("get", {"key": rng.choice(TEXTS)})]
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_calls_in_the_familys_format_are_accepted(
    smollm2_tokenizer: pagewheel.Tokenizer, variant: str
) -> None:
    family, rng = variant.partition("/")[0], random.Random(variant)
    required = grammar_of(smollm2_tokenizer, family, tool_choice="required")
    auto = grammar_of(smollm2_tokenizer, family)
    one = grammar_of(smollm2_tokenizer, family, parallel_tool_calls=False, tool_choice="required")
    for _ in range(20 * TIMES):
        count = 1 if family in ONE_CALL else rng.randrange(1, 4)
        text = rendered(variant, [random_call(rng) for _ in range(count)])
        assert required.accepts(text), text
        assert auto.accepts(text), text
        assert one.accepts(text) == (count == 1), text


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("choice", ["required", "auto"])
def test_calls_that_the_schema_does_not_allow_are_refused(
    smollm2_tokenizer: pagewheel.Tokenizer, variant: str, choice: str
) -> None:
    grammar = grammar_of(smollm2_tokenizer, variant.partition("/")[0], tool_choice=choice)
    good = {"city": "Rome", "days": 3}
    assert grammar.accepts(rendered(variant, [Call("get_weather", good)]))
    for bad in [
        Call("get_whether", good),
        Call("get_weather", {"city": "Rome"}),
        Call("get_weather", {"days": True}),
        Call("get_weather", {"days": 8}),
        Call("get_weather", {"days": 3, "unit": "kelvin"}),
        Call("get_weather", {"days": 3, "options": {"deep": 1}}),
        Call("get_weather", {"days": 3, "options": {"ratio": 1}}),
        Call("get_weather", {"days": 3, "more": 1}),
        Call("now", {"days": 3}),
    ]:
        assert not grammar.accepts(rendered(variant, [bad])), bad


def random_text(
    matcher: pagewheel.GrammarMatcher,
    tokenizer: pagewheel.Tokenizer,
    rng: random.Random,
    begin: str,
) -> str | None:
    """`begin`, and random tokens; after some, mostly what closes a value. None: it did not end."""
    tokens = (
        [
            int(token)
            for token in tokenizer.encode(begin, add_special_tokens=False).input_ids.data[0]
        ]
        if begin
        else []
    )
    assert all(matcher.accept(token) for token in tokens), begin
    end = tokenizer.get_eos_token_id()
    patience = rng.randrange(5, 60)
    closers = [
        [int(token) for token in tokenizer.encode(text, add_special_tokens=False).input_ids.data[0]]
        for text in CLOSERS
    ]
    while len(tokens) < 600 and not matcher.is_finished:
        is_late = len(tokens) > len(begin) + patience
        if is_late and matcher.is_accepting:
            break
        closer = rng.choice(closers)
        if is_late and rng.random() < 0.8:
            taken = 0
            while taken < len(closer) and matcher.accept(closer[taken]):
                taken += 1
            if taken == len(closer):
                tokens += closer
                continue
            if taken:
                matcher.roll_back(taken)
        token = rng.choice(matcher.allowed_tokens())
        assert matcher.accept(token)
        if token == end:
            break
        tokens.append(token)
    if not (matcher.is_accepting or matcher.is_finished):
        return None
    return tokenizer.decode(tokens, skip_special_tokens=False)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.fuzz
def test_what_the_grammar_requires_parses_to_valid_calls(
    smollm2_tokenizer: pagewheel.Tokenizer, family: str
) -> None:
    rng = random.Random(family)
    required = grammar_of(smollm2_tokenizer, family, tool_choice="required")
    named = grammar_of(smollm2_tokenizer, family, tool_choice="get_weather")
    finished = 0
    for _ in range(8 * TIMES):
        text = random_text(required.matcher(), smollm2_tokenizer, rng, "")
        if text is not None:
            assert check_calls(family, text) > 0, text
            finished += 1
        text = random_text(named.matcher(), smollm2_tokenizer, rng, "")
        if text is not None:
            assert check_calls(family, text) == 1, text
            assert named_calls(parsed(family, text, tools=TOOLS))[0][0] == "get_weather"
            finished += 1
    assert finished >= 4 * TIMES


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.fuzz
def test_free_text_that_begins_a_call_parses_to_valid_calls(
    smollm2_tokenizer: pagewheel.Tokenizer, family: str
) -> None:
    rng = random.Random(family)
    auto = grammar_of(smollm2_tokenizer, family)
    begin = opening(family)
    before = "" if family in ("harmony", "llama3_json") or "pythonic" in family else "Let me see. "
    finished = 0
    for _ in range(8 * TIMES):
        text = random_text(auto.matcher(), smollm2_tokenizer, rng, before + begin)
        if text is not None:
            assert check_calls(family, text) > 0, text
            finished += 1
    assert finished >= 2 * TIMES
    plain = "<|channel|>final<|message|>No {call}." if family == "harmony" else "No {call}."
    assert auto.accepts(plain)


@pytest.mark.parametrize("family", FAMILIES)
def test_without_calls_no_call_can_be_written(
    smollm2_tokenizer: pagewheel.Tokenizer, family: str
) -> None:
    none = grammar_of(smollm2_tokenizer, family, tool_choice="none")
    no_tools = pagewheel.Grammar(pagewheel.tool_call_grammar([], family), smollm2_tokenizer)
    for variant in VARIANTS:
        if variant.partition("/")[0] != family:
            continue
        text = rendered(variant, [Call("get", {"key": "a"})])
        assert not none.accepts(text)
        assert not no_tools.accepts(text)
    plain = "<|channel|>final<|message|>Hello [x](y)." if family == "harmony" else "Hello [x](y)."
    assert none.accepts(plain)
    assert no_tools.accepts(plain)


def test_the_choice_of_a_function_may_be_openais_dict(
    smollm2_tokenizer: pagewheel.Tokenizer,
) -> None:
    choice = {"type": "function", "function": {"name": "now"}}
    grammar = grammar_of(smollm2_tokenizer, "qwen", tool_choice=choice)
    assert grammar.accepts(rendered("qwen", [Call("now", {})]))
    assert not grammar.accepts(rendered("qwen", [Call("now", {}), Call("now", {})]))
    assert not grammar.accepts(rendered("qwen", [Call("get", {"key": ""})]))


@pytest.mark.parametrize(
    ("family", "tools", "options", "error"),
    [
        ("quen", TOOLS, {}, "family is 'quen'; allowed: harmony"),
        ("think", TOOLS, {}, "family think has no tool calls"),
        ("qwen", TOOLS, {"tool_choice": "other"}, "tool_choice is 'other'; allowed: none, auto, "),
        ("qwen", [], {"tool_choice": "required"}, "tool_choice is 'required', but there are no"),
        ("qwen", {}, {}, "tools must be a JSON array"),
        ("qwen", [{"type": "function"}], {}, "the name of a function"),
        ("qwen", [TOOLS[0], TOOLS[0]], {}, "two functions have the name 'get_weather'"),
        ("qwen", TOOLS, {"tool_choice": {"name": "f"}}, "tool_choice must name a function"),
        ("llama3_pythonic", [{"name": "1a"}], {}, "cannot call a function of the name '1a'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(
    family: str, tools: Any, options: dict[str, Any], error: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(error)):
        pagewheel.tool_call_grammar(tools, family, **options)


@pytest.mark.parametrize(
    ("family", "schema", "error"),
    [
        ("functiongemma", {"type": "object"}, "an object of any properties"),
        ("gemma4", {"type": "string", "pattern": "a+"}, "keyword 'pattern'"),
        ("gemma4", {}, "a value of any type"),
        ("glm", {"type": "string", "maxLength": 3}, "keyword 'maxLength'"),
        ("gemma", {"type": "array", "uniqueItems": True}, "keyword 'uniqueItems'"),
        ("llama3_pythonic", {"oneOf": [{"type": "string"}]}, "keyword 'oneOf'"),
        ("llama4_pythonic", {"$ref": "#/properties/a"}, "goes so deep, or in a circle"),
        ("llama4_pythonic", {"$ref": "https://else.where"}, "'$ref' to 'https://else.where'"),
        ("llama4_pythonic", {"$ref": "#/~2"}, "'$ref' to '#/~2'"),
    ],
)
def test_schemas_that_a_notation_cannot_keep_are_refused_with_family_and_place(
    family: str, schema: dict[str, Any], error: str
) -> None:
    tool = {"name": "f", "parameters": {"type": "object", "properties": {"a": schema}}}
    with pytest.raises(ValueError) as raised:
        pagewheel.tool_call_grammar([tool], family)
    for part in (error, f"family {family}, tool 'f'", "'/properties/a"):
        assert part in str(raised.value)


@pytest.mark.parametrize("family", ["gemma", "llama3_pythonic", "functiongemma", "gemma4"])
@pytest.mark.parametrize(
    "definitions",
    [
        {"a": {"$ref": "#/$defs/a"}},
        {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        {"a": {"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}}},
        {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}},
        {"a": {"anyOf": [{"type": "boolean"}, {"$ref": "#/$defs/a"}]}},
    ],
)
def test_a_circle_of_references_is_refused(family: str, definitions: dict[str, Any]) -> None:
    parameters = {
        "type": "object",
        "properties": {"p": {"$ref": "#/$defs/a"}},
        "$defs": definitions,
    }
    with pytest.raises(ValueError, match=f"family {family}, tool 'f'.*in a circle.*/properties/p"):
        pagewheel.tool_call_grammar([{"name": "f", "parameters": parameters}], family)


def test_references_that_multiply_are_refused() -> None:
    last = 12
    definitions: dict[str, Any] = {
        f"a{i}": {
            "type": "object",
            "properties": {key: {"$ref": f"#/$defs/a{i + 1}"} for key in "xyz"},
        }
        for i in range(last)
    }
    definitions[f"a{last}"] = {"type": "boolean"}
    parameters = {
        "type": "object",
        "properties": {"p": {"$ref": "#/$defs/a0"}},
        "$defs": definitions,
    }
    with pytest.raises(ValueError, match="over 10000 values"):
        pagewheel.tool_call_grammar([{"name": "f", "parameters": parameters}], "gemma")


def test_python_values_of_every_kind_are_written(smollm2_tokenizer: pagewheel.Tokenizer) -> None:
    properties = {
        "any": {},
        "dict": {"type": "object"},
        "ref": {"$ref": "#/$defs/point"},
        "either": {"anyOf": [{"type": "integer"}, {"const": "none"}]},
        "date": {"type": "string", "format": "date"},
        "short": {"type": "string", "maxLength": 2},
        "two": {"type": "array", "items": {"type": "integer"}, "minItems": 2},
    }
    point = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}
    parameters = {"type": "object", "properties": properties, "$defs": {"point": point}}
    config = pagewheel.tool_call_grammar(
        [{"name": "f", "parameters": parameters}], "llama3_pythonic", tool_choice="f"
    )
    grammar = pagewheel.Grammar(config, smollm2_tokenizer)
    for good in (
        "", "any=None", "any={'a': [1, True, {}]}", "dict={'a': 1}", "dict={}", "ref={'x': 1.5}",
        "either='none'", "either=3, two=[1, 2, 3]", 'date="2024-02-29"', "short='éü'", "two=[1, 2]",
    ):  # fmt: skip
        assert grammar.accepts(f"[f({good})]"), good
    for bad in (
        "any=x", "dict=[]", "ref={}", "either='nil'", 'date="today"', "short='abc'", "two=[1]",
        "two=[1, 2], any=1", ", any=1",
    ):  # fmt: skip
        assert not grammar.accepts(f"[f({bad})]"), bad


@pytest.mark.parametrize("family", FAMILIES)
def test_any_of_many_tools_without_required_arguments_can_be_called(
    family: str, smollm2_tokenizer: pagewheel.Tokenizer
) -> None:
    point = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    schema = {"type": "object", "properties": {f"p{i}": point for i in range(6)}}
    tools = [
        {"type": "function", "function": {"name": f"tool_{i}", "parameters": schema}}
        for i in range(60)
    ]
    config = pagewheel.tool_call_grammar(tools, family, tool_choice="required")
    matcher = pagewheel.Grammar(config, smollm2_tokenizer).matcher()
    variant = next(v for v in VARIANTS if v.partition("/")[0] == family)
    call = rendered(variant, [Call("tool_59", {"p1": {"x": 1}, "p5": {"x": 2}})])
    for token in smollm2_tokenizer.encode(call, add_special_tokens=False).input_ids.data[0]:
        assert token in matcher.allowed_tokens()
        matcher.accept(int(token))
    assert matcher.is_accepting


def test_arguments_that_the_schema_leaves_open_come_where_it_says_so(
    smollm2_tokenizer: pagewheel.Tokenizer,
) -> None:
    schema = {"type": "object", "properties": {"a": {}}, "additionalProperties": True}
    tool = {"name": "f", "parameters": schema}
    grammar = pagewheel.Grammar(pagewheel.tool_call_grammar([tool], "qwen"), smollm2_tokenizer)
    text = "<tool_call>\n" + json.dumps({"name": "f", "arguments": {"b": 1}}) + "\n</tool_call>"
    assert grammar.accepts(text)


def test_large_numbers_are_exact_or_refused(smollm2_tokenizer: pagewheel.Tokenizer) -> None:
    number = 1234567890123456789
    schema = {"type": "object", "properties": {"a": {"enum": [number]}}, "required": ["a"]}
    tools = [{"name": "f", "parameters": schema}]
    written = pagewheel.tool_call_grammar(tools, "llama4_pythonic", tool_choice="required")
    grammar = pagewheel.Grammar(written, smollm2_tokenizer)
    assert grammar.accepts(f"[f(a={number})]")
    assert not grammar.accepts(f"[f(a={int(float(number))})]")
    read_by_the_library = pagewheel.tool_call_grammar(tools, "qwen", tool_choice="required")
    with pytest.raises(ValueError, match=f"{number} cannot be kept exactly; at /properties/a/enum"):
        pagewheel.Grammar(read_by_the_library, smollm2_tokenizer)
    tools[0]["parameters"] = {**schema, "properties": {"a": {"const": 2**70}}}
    with pytest.raises(ValueError, match=f"tools: the number {2**70} cannot be kept exactly"):
        pagewheel.tool_call_grammar(tools, "llama4_pythonic", tool_choice="required")
