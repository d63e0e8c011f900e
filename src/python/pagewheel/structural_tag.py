"""Structural tags as JSON, in the words of xgrammar, which openvino_genai takes as text."""

from __future__ import annotations

import json
from typing import Any

from pagewheel._pagewheel import StructuredOutputConfig as Config
from pagewheel.errors import InvalidArgumentError
from pagewheel.json_schema import RoundedNumber, parse_number


def from_json(text: str) -> Any:
    """The part of StructuredOutputConfig that a JSON text describes."""
    try:
        value = json.loads(text, parse_float=_exact)
    except ValueError as error:
        raise InvalidArgumentError(
            f"the text {text[:60]!r} is no structural tag: {error}. "
            "A constant text is ConstString(text)",
            code="grammar_invalid",
        ) from None
    if isinstance(value, dict) and value.get("type") == "structural_tag":
        value = value.get("format")
    return _part(value)


def _exact(text: str) -> float:
    """Numbers of a structural tag are those of its schemas."""
    value = parse_number(text)
    if isinstance(value, RoundedNumber):
        raise ValueError(f"the number {text[:60]} cannot be kept exactly")
    return value


def _part(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in _PARTS:
        raise InvalidArgumentError(
            f"a structural tag of type {kind!r}; allowed are {', '.join(sorted(_PARTS))}",
            code="grammar_invalid",
        )
    try:
        return _PARTS[kind](value)
    except KeyError as error:
        raise InvalidArgumentError(
            f"a structural tag of type {kind!r} needs {error}", code="grammar_invalid"
        ) from None


def _compound(kind: Any, values: list[Any]) -> Any:
    parts = [_part(value) for value in values]
    return parts[0] if len(parts) == 1 else kind(parts)


def _tag(value: dict[str, Any]) -> Config.Tag:
    return Config.Tag(value["begin"], _part(value["content"]), value["end"])


def _flags(value: dict[str, Any]) -> dict[str, bool]:
    return {name: value.get(name, False) for name in ("at_least_one", "stop_after_first")}


_PARTS = {
    "regex": lambda value: Config.Regex(value["pattern"]),
    "json_schema": lambda value: Config.JSONSchema(value["json_schema"]),
    "grammar": lambda value: Config.EBNF(value["grammar"]),
    "const_string": lambda value: Config.ConstString(value["value"]),
    "any_text": lambda value: Config.AnyText(),
    "qwen_xml_parameter": lambda value: Config.QwenXMLParametersFormat(value["json_schema"]),
    "sequence": lambda value: _compound(Config.Concat, value["elements"]),
    "or": lambda value: _compound(Config.Union, value["elements"]),
    "tag": _tag,
    "triggered_tags": lambda value: Config.TriggeredTags(
        value["triggers"], [_tag(tag) for tag in value["tags"]], **_flags(value)
    ),
    "tags_with_separator": lambda value: Config.TagsWithSeparator(
        [_tag(tag) for tag in value["tags"]], value["separator"], **_flags(value)
    ),
}
