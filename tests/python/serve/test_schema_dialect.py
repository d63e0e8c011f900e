"""Schemas that pydantic makes: formats, names of properties, and what no grammar can keep."""

from __future__ import annotations

import enum
import json
import random
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
from asking import HELLO
from pydantic import BaseModel, Field, SecretStr
from serving import Served, serving, tiny_settings

from pagewheel import json_schema
from pagewheel.json_schema import Dialect, RoundedNumber, parse_number, to_json_schema


class Color(enum.Enum):
    RED = "red.ish"
    BLUE = "blue"


class Account(BaseModel):
    secret: SecretStr = Field(max_length=3)
    place: Path
    price: Decimal
    counts: dict[Literal["a", "b"], int]
    colors: dict[Color, bool]


@pytest.fixture(scope="module")
def served(calling_folder: Path) -> Iterator[Served]:
    with serving(tiny_settings(calling_folder)) as one:
        yield one


def test_a_models_schema_is_served(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    schema = {"name": "account", "schema": Account.model_json_schema()}
    form: Any = {"type": "json_schema", "json_schema": schema}
    answer = served.client.chat.completions.create(
        model="tiny", messages=HELLO, max_tokens=8, response_format=form
    )
    assert (answer.choices[0].message.content or "").lstrip().startswith("{")
    (line,) = [vars(each) for each in caplog.records if "formats" in vars(each)]
    assert line["formats"] == 2  # and not what the client calls them


def test_a_tools_schema_is_served(served: Served) -> None:
    function = {"name": "open", "parameters": Account.model_json_schema()}
    tools: Any = [{"type": "function", "function": function}]
    fields: dict[str, Any] = {"model": "tiny", "messages": HELLO, "tools": tools, "max_tokens": 8}
    assert served.client.chat.completions.create(**fields, tool_choice="required")


def test_unique_items_are_refused_with_a_way_out(served: Served) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    body: dict[str, Any] = {"prompt": "a", "max_tokens": 2, "guided_json": schema}
    error = served.post("/v1/completions", body).json()["error"]
    assert error["param"] == "guided_json"
    assert "/properties/a/uniqueItems" in error["message"]
    assert "lenient" in error["message"]
    schema["x-guidance"] = {"lenient": True}
    assert served.post("/v1/completions", body).status_code == 200
    tool = {"type": "function", "function": {"name": "a", "parameters": {"uniqueItems": True}}}
    with pytest.raises(openai.BadRequestError, match="lenient"):
        served.client.chat.completions.create(
            model="tiny", messages=HELLO, tools=[tool], tool_choice="required"
        )


def test_names_of_properties_become_patterns() -> None:
    found = Dialect(Account.model_json_schema()).schema["properties"]
    assert found["counts"]["patternProperties"] == {"^(a|b)$": {"type": "integer"}}
    assert list(found["colors"]["patternProperties"]) == [r"^(red\.ish|blue)$"]
    assert found["colors"]["additionalProperties"] is False


@pytest.mark.parametrize(
    "schema",
    [
        {"propertyNames": {"maxLength": 3}},
        {"propertyNames": {"enum": ["a"]}, "properties": {"b": True}},
        {"propertyNames": {"enum": ["a"]}, "patternProperties": {"b": True}},
    ],
)
def test_what_patterns_do_not_say_stays(schema: dict[str, Any]) -> None:
    assert Dialect(schema).schema == schema


def test_a_property_may_be_called_format() -> None:
    schema = {"properties": {"format": {"const": "password"}}, "default": {"format": "x"}}
    dialect = Dialect(schema)
    assert dialect.schema == schema
    assert not dialect.formats


def test_python_types_warn_of_formats() -> None:
    with pytest.warns(UserWarning, match="binary"):
        assert json.loads(to_json_schema(bytes)) == {"type": "string"}


def test_numbers_whose_double_loses_digits_are_told_apart() -> None:
    generator = random.Random(5)
    texts = ["0.0", "-0.0", "1.50", "1e5", "1e-400", "5e-324", "1.00000000000000000001"]
    for _ in range(5000):
        digits = "".join(generator.choices("0123456789", k=generator.randint(1, 20)))
        exponent = generator.choice(["", "", "e5", "E-30", "e-320"])
        texts.append(f"{generator.choice(['', '-'])}{generator.randint(0, 99)}.{digits}{exponent}")
    for text in texts:
        value = parse_number(text)
        assert value == float(text)
        is_exact = Fraction(repr(float(text))) == Fraction(text)
        assert isinstance(value, RoundedNumber) != is_exact, text


def test_usual_numbers_are_not_compared_digit_by_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    monkeypatch.setattr(json_schema, "Decimal", compared.append)
    for text in ("0.5", "-1.25", "0.10", "0.123456789012", repr(1 / 3), repr(-2e300 / 3)):
        assert parse_number(text) == float(text)
    assert compared == []
