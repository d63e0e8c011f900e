"""Undeclared properties: none by default, and under the option what the schema allows."""

from __future__ import annotations

import json
from typing import Any

import pytest

import pagewheel
from pagewheel import StructuredOutputConfig as Config

POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


def accepts(
    tokenizer: pagewheel.Tokenizer, schema: dict[str, Any], value: Any, *, is_open: bool = False
) -> bool:
    config = Config(json_schema=schema, allow_additional_properties=is_open)
    return pagewheel.Grammar(config, tokenizer).accepts(json.dumps(value))


@pytest.mark.parametrize(
    ("schema", "declared", "undeclared"),
    [
        (POINT, {"x": 1}, {"x": 1, "y": 2}),
        ({"items": POINT}, [{"x": 1}], [{"x": 1, "y": 2}]),
        ({"properties": {"p": POINT}}, {"p": {"x": 1}}, {"p": {"x": 1, "y": 2}}),
        ({"$ref": "#/$defs/p", "$defs": {"p": POINT}}, {"x": 1}, {"x": 1, "y": 2}),
        ({"allOf": [POINT], "description": "one"}, {"x": 1}, {"x": 1, "y": 2}),
        ({"anyOf": [POINT, {"type": "null"}]}, {"x": 1}, {"x": 1, "y": 2}),
        ({**POINT, "patternProperties": {"^z": {"type": "null"}}}, {"x": 1, "z": None}, {"y": 2}),
    ],
)
def test_objects_have_the_declared_properties_only_unless_asked_otherwise(
    smollm2_tokenizer: pagewheel.Tokenizer, schema: dict[str, Any], declared: Any, undeclared: Any
) -> None:
    assert accepts(smollm2_tokenizer, schema, declared)
    assert accepts(smollm2_tokenizer, schema, declared, is_open=True)
    assert not accepts(smollm2_tokenizer, schema, undeclared)
    if undeclared != {"y": 2}:
        assert accepts(smollm2_tokenizer, schema, undeclared, is_open=True)


OTHER = {"properties": {"y": {"type": "integer"}}, "required": ["y"]}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({**POINT, "additionalProperties": True}, {"x": 1, "y": 2}),
        ({"type": "object"}, {"x": 1}),
        ({"allOf": [POINT, OTHER]}, {"x": 1, "y": 2}),
        ({**POINT, "allOf": [OTHER]}, {"x": 1, "y": 2}),
        ({**POINT, "$ref": "#/$defs/o", "$defs": {"o": OTHER}}, {"x": 1, "y": 2}),
        ({**POINT, "anyOf": [OTHER]}, {"x": 1, "y": 2}),
        (
            {"allOf": [{"properties": {"p": POINT}}, {"properties": {"p": OTHER}}]},
            {"p": {"x": 1, "y": 2}},
        ),
        ({"properties": {"x": {}}, "required": ["y"]}, {"y": 2}),
    ],
)
def test_what_several_schemas_describe_together_can_still_be_written(
    smollm2_tokenizer: pagewheel.Tokenizer, schema: dict[str, Any], value: Any
) -> None:
    # In which order they come depends on where they are declared.
    in_turn = dict(reversed(value.items()))
    assert accepts(smollm2_tokenizer, schema, value) or accepts(smollm2_tokenizer, schema, in_turn)


def test_the_option_is_shown_and_holds_for_parts(smollm2_tokenizer: pagewheel.Tokenizer) -> None:
    part = Config.ConstString("<") + Config.JSONSchema(POINT)
    text = '<{"x": 1, "y": 2}'
    assert not pagewheel.Grammar(part, smollm2_tokenizer).accepts(text)
    config = Config(compound_grammar=part, allow_additional_properties=True)
    assert "allow_additional_properties=True" in repr(config)
    assert pagewheel.Grammar(config, smollm2_tokenizer).accepts(text)
