"""JSON schemas of what Python programs describe data with."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any

# Formats that grammars keep. JSON Schema calls any other one an annotation.
_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"}
    | {"unknown"}
)
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SCHEMAS = (
    *("items", "additionalProperties", "additionalItems", "not", "if", "then", "else"),
    *("contains", "unevaluatedItems", "unevaluatedProperties"),
)
_NUMBERS = (
    *("const", "enum", "multipleOf"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
)
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")


class RoundedNumber(float):
    """A number of a JSON text with more digits than its double keeps. `text` has them all."""

    text: str


def parse_number(text: str) -> float:
    """What json.loads() takes as parse_float; a RoundedNumber where digits are lost."""
    value = float(text)
    # Most numbers: with a point, 16 characters have 15 digits, which every double keeps.
    if len(text) <= 16 and "." in text and "e" not in text and "E" not in text:
        return value
    if repr(value) == text:
        return value
    with suppress(InvalidOperation):  # of an exponent with which no double is
        if Decimal(repr(value)) == Decimal(text):
            return value
    rounded = RoundedNumber(value)
    rounded.text = text
    return rounded


class Dialect:
    """Translates one schema. `formats` are those that became free text."""

    def __init__(self, schema: Any) -> None:
        self.formats: set[str] = set()
        self._root = schema
        options = schema.get("x-guidance") if isinstance(schema, dict) else None
        self._is_lenient = isinstance(options, dict) and bool(options.get("lenient"))
        self.schema = self._translated(schema, "")

    def _translated(self, schema: Any, place: str) -> Any:
        """Raises ValueError for what no grammar can keep."""
        if not isinstance(schema, dict):
            return schema
        found = {name: self._value(name, one, f"{place}/{name}") for name, one in schema.items()}
        form = found.get("format")
        if isinstance(form, str) and form not in _FORMATS:
            self.formats.add(form)
            del found["format"]
        if found.get("uniqueItems") is False:
            del found["uniqueItems"]
        if found.get("uniqueItems") is True and not self._is_lenient:
            raise ValueError(
                f"JSON schema: no grammar can keep uniqueItems; at {place}/uniqueItems. "
                'With "x-guidance": {"lenient": true} at its top it is left out: items may repeat'
            )
        return self._with_named_properties(found)

    def _value(self, name: str, value: Any, place: str) -> Any:
        if name in _NUMBERS:
            _refuse_rounded(value, place)
        if name in _MAPS and isinstance(value, dict):
            return {key: self._translated(one, f"{place}/{key}") for key, one in value.items()}
        if name in _LISTS and isinstance(value, list):
            return [self._translated(one, f"{place}/{n}") for n, one in enumerate(value)]
        return self._translated(value, place) if name in _SCHEMAS else value

    def _with_named_properties(self, schema: dict[str, Any]) -> dict[str, Any]:
        """`propertyNames` as `patternProperties`, where that says the same."""
        if "propertyNames" not in schema or "patternProperties" in schema:
            return schema
        pattern = self._pattern_of(schema["propertyNames"])
        rest = {name: one for name, one in schema.items() if name != "propertyNames"}
        if pattern is None or "unevaluatedProperties" in schema:
            return schema
        if pattern == "":
            return rest
        if not all(_matches(pattern, name) for name in schema.get("properties", {})):
            return schema
        others = rest.pop("additionalProperties", True)
        return {**rest, "patternProperties": {pattern: others}, "additionalProperties": False}

    def _pattern_of(self, names: Any) -> str | None:
        """A pattern of the allowed names; empty: all are. None where it is not known."""
        if isinstance(names, dict) and set(names) == {"$ref"}:
            names = self._resolved(names["$ref"])
        if names is True:
            return ""
        if not isinstance(names, dict):
            return None
        names = {key: one for key, one in names.items() if key not in ("type", "title")}
        if "const" in names:
            names["enum"] = [names.pop("const")]
        if not names:
            return ""
        if set(names) == {"pattern"} and isinstance(names["pattern"], str):
            return names["pattern"]
        allowed = names.get("enum")
        if set(names) != {"enum"} or not isinstance(allowed, list):
            return None
        texts = [_SPECIAL.sub(r"\\\g<0>", one) for one in allowed if isinstance(one, str)]
        return f"^({'|'.join(texts)})$" if texts else None

    def _resolved(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return None
        found = self._root
        for part in reference[2:].split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, Mapping) else None
        return found


def _refuse_rounded(value: Any, place: str) -> None:
    if isinstance(value, RoundedNumber):
        raise ValueError(
            f"JSON schema: the number {value.text[:60]} cannot be kept exactly; at {place}"
        )
    if isinstance(value, (list, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            _refuse_rounded(each, place)


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return False


def to_json_schema(schema: Any) -> str:
    """A JSON text as it is; the schema of a dict, of a pydantic model, or of another type.

    Types other than models need pydantic too: dataclasses, TypedDict, Literal, list[int]...
    """
    if isinstance(schema, str):
        return schema
    if isinstance(schema, (dict, bool)):
        return json.dumps(schema)
    if hasattr(schema, "model_json_schema"):
        return _text_of(schema.model_json_schema())
    try:
        from pydantic import TypeAdapter
    except ImportError:
        raise TypeError(
            f"a JSON schema is a JSON text or a dict; of a type like {schema!r} the package "
            "pydantic makes one, which is not installed"
        ) from None
    return _text_of(TypeAdapter(schema).json_schema())


def _text_of(schema: Any) -> str:
    """Writes keywords that a grammar can keep. Warns of formats that are not known."""
    dialect = Dialect(schema)
    if dialect.formats:
        names = ", ".join(sorted(dialect.formats))
        warnings.warn(f"formats of the JSON schema that any text has: {names}", stacklevel=3)
    return json.dumps(dialect.schema)
