"""Answers of a demanded format, by the official clients' ways to demand one."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any, Literal

import anthropic
import openai
import pytest
from asking import CHAT_TOOLS, HELLO, SCHEMA
from pydantic import BaseModel
from serving import Served

from pagewheel.serve.api.response_format import take_response_format
from pagewheel.serve.http.body import Fields

SERVED = "calling_folder"
pytestmark = pytest.mark.usefixtures("nothing_is_left")

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
COMPACT = {**SCHEMA, "x-guidance": {"whitespace_flexible": False}}


class Place(BaseModel):
    name: Literal["Rome", "Oslo"]
    is_far: bool


class Trip(BaseModel):
    first: Place
    then: Literal["rest", "go on"]


def json_schema(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}


def test_openais_parse_gives_a_pydantic_model(served: Served) -> None:
    for seed in range(2):
        answer = served.client.chat.completions.parse(
            model="tiny",
            messages=HELLO,
            response_format=Trip,
            seed=seed,
            temperature=1.0,
            max_tokens=1000,
        )
        assert isinstance(answer.choices[0].message.parsed, Trip)


def test_openais_parse_of_a_response_gives_a_pydantic_model(served: Served) -> None:
    answer = served.client.responses.parse(
        model="tiny", input="Hello", text_format=Trip, max_output_tokens=1000
    )
    assert isinstance(answer.output_parsed, Trip)


def test_anthropics_parse_gives_a_pydantic_model(claude: anthropic.Anthropic) -> None:
    message = claude.messages.parse(
        model="tiny", messages=HELLO, output_format=Trip, max_tokens=1000
    )
    assert isinstance(message.parsed_output, Trip)


def test_async_clients_parse_too(served: Served) -> None:
    async def ask() -> tuple[Any, Any]:
        async with (
            openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none") as client,
            anthropic.AsyncAnthropic(base_url=served.url, api_key="none") as claude,
        ):
            return await asyncio.gather(
                client.chat.completions.parse(
                    model="tiny", messages=HELLO, response_format=Place, max_tokens=1000
                ),
                claude.messages.parse(
                    model="tiny", messages=HELLO, output_format=Place, max_tokens=1000
                ),
            )

    chat, message = asyncio.run(ask())
    assert isinstance(chat.choices[0].message.parsed, Place)
    assert isinstance(message.parsed_output, Place)


def test_a_stream_of_a_shape_joined_is_the_unstreamed_answer(served: Served) -> None:
    with served.client.chat.completions.stream(
        model="tiny", messages=HELLO, response_format=Place, max_tokens=1000
    ) as stream:
        final = stream.get_final_completion()
    whole = served.client.chat.completions.parse(
        model="tiny", messages=HELLO, response_format=Place, max_tokens=1000
    )
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert final.choices[0].message.parsed == whole.choices[0].message.parsed


def test_several_choices_all_have_the_shape(served: Served) -> None:
    answer = served.client.chat.completions.create(
        model="tiny",
        messages=HELLO,
        n=4,
        seed=1,
        temperature=1.5,
        response_format=json_schema(COMPACT),  # type: ignore[arg-type]
        max_tokens=100,
    )
    found = [json.loads(each.message.content or "") for each in answer.choices]
    assert all(each in ({"place": "Rome"}, {"place": "Oslo"}) for each in found)


def test_a_json_object_is_one(served: Served) -> None:
    body = {"messages": HELLO, "max_tokens": 30, "response_format": {"type": "json_object"}}
    text = served.post(CHAT, body).json()["choices"][0]["message"]["content"]
    assert text.startswith("{")


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES, MESSAGES])
@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({"guided_choice": ["yes", "no"]}, ["yes", "no"]),
        ({"guided_regex": "a{3}b"}, ["aaab"]),
        ({"guided_grammar": 'root ::= "x" "y"'}, ["xy"]),
        ({"guided_json": COMPACT}, ['{"place":"Rome"}', '{"place":"Oslo"}']),
        ({"structured_outputs": {"json": json.dumps({"const": 5})}}, ["5"]),
        ({"structured_outputs": {"choice": ["left", "right"]}}, ["left", "right"]),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_vllms_fields_demand_a_shape_everywhere(
    served: Served, path: str, fields: dict[str, Any], texts: list[str]
) -> None:
    answer = served.post(path, {**RIGHT[path], **fields}).json()
    assert text_of(path, answer) in texts


@pytest.mark.parametrize(
    ("given", "is_open"),
    [
        ({}, False),
        ({"disable_additional_properties": True}, False),
        ({"disable_additional_properties": False}, True),
    ],
)
def test_vllms_field_says_whether_undeclared_properties_may_come(
    given: dict[str, bool], is_open: bool
) -> None:
    taken = take_response_format(Fields({"structured_outputs": {"json": SCHEMA, **given}}))
    assert taken is not None
    assert taken.allow_additional_properties is is_open


RIGHT: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HELLO, "max_tokens": 50},
    COMPLETIONS: {"prompt": "a", "max_tokens": 50},
    RESPONSES: {"input": "a", "max_output_tokens": 50},
    MESSAGES: {"messages": HELLO, "max_tokens": 50},
}


def text_of(path: str, answer: Any) -> str:
    ways = {
        CHAT: lambda: answer["choices"][0]["message"]["content"],
        COMPLETIONS: lambda: answer["choices"][0]["text"],
        RESPONSES: lambda: answer["output"][0]["content"][0]["text"],
        MESSAGES: lambda: answer["content"][0]["text"],
    }
    return str(ways[path]())


def test_a_shape_beside_tools_is_of_answers_that_do_not_call(served: Served) -> None:
    kinds = set()
    for seed in range(4):
        answer = served.client.chat.completions.create(
            model="tiny",
            messages=HELLO,
            tools=CHAT_TOOLS,
            seed=seed,
            temperature=2.0,
            response_format=json_schema(COMPACT),  # type: ignore[arg-type]
            max_tokens=200,
        )
        message = answer.choices[0].message
        kinds.add(bool(message.tool_calls))
        if not message.tool_calls:
            assert json.loads(message.content or "")["place"] in ("Rome", "Oslo")
    assert False in kinds


UNSUPPORTED = {"type": "object", "properties": {"a": {"not": {}}}}
UNSUPPORTED_TEXT = {"format": {"type": "json_schema", "name": "a", "schema": UNSUPPORTED}}
UNSUPPORTED_OUTPUT = {"format": {"type": "json_schema", "schema": UNSUPPORTED}}
NO_SCHEMA = {"type": "json_schema", "json_schema": {"name": "a"}}
TWO_SHAPES = {"response_format": {"type": "json_object"}, "guided_regex": "a"}
FORMAT_SCHEMA = "response_format.json_schema.schema"
PLACE = "/properties/a/not"


@pytest.mark.parametrize(
    ("path", "fields", "param", "place"),
    [
        (CHAT, {"response_format": json_schema(UNSUPPORTED)}, FORMAT_SCHEMA, PLACE),
        (CHAT, {"response_format": {"type": "xml"}}, "response_format.type", ""),
        (CHAT, {"response_format": {"type": "json_schema"}}, "response_format.json_schema", ""),
        (CHAT, {"response_format": NO_SCHEMA}, FORMAT_SCHEMA, ""),
        (CHAT, TWO_SHAPES, "guided_regex", ""),
        (CHAT, {"guided_regex": "(?=a)"}, "guided_regex", ""),
        (CHAT, {"guided_choice": []}, "guided_choice", ""),
        (CHAT, {"guided_grammar": "root ::= nothing"}, "guided_grammar", "1"),
        (CHAT, {"structured_outputs": {"banana": 1}}, "structured_outputs.banana", ""),
        (RESPONSES, {"text": UNSUPPORTED_TEXT}, "text.format.schema", PLACE),
        (MESSAGES, {"output_config": UNSUPPORTED_OUTPUT}, "output_config.format.schema", PLACE),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_a_shape_that_is_refused_is_named_with_its_place(
    served: Served, path: str, fields: dict[str, Any], param: str, place: str
) -> None:
    answer = served.post(path, {**RIGHT[path], **fields})
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert message.startswith(f"{param}: ") or f": {param}" in message
    assert place in message


LONG_NUMBERS = ["1234567890123456789", "-9223372036854775808", "0.12345678901234567890", "1e-400"]


@pytest.mark.parametrize("number", LONG_NUMBERS)
@pytest.mark.parametrize("keyword", ["const", "enum", "minimum", "multipleOf"])
def test_numbers_that_a_grammar_would_change_are_refused(
    served: Served, number: str, keyword: str
) -> None:
    """As texts, because clients would round them too."""
    value = f"[1, {number}]" if keyword == "enum" else number
    schema = f'{{"type": "object", "properties": {{"a": {{"{keyword}": {value}}}}}}}'
    form = f'{{"type": "json_schema", "json_schema": {{"name": "a", "schema": {schema}}}}}'
    tool = f'{{"type": "function", "function": {{"name": "f", "parameters": {schema}}}}}'
    start = '{"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 9'
    for field, rest in (
        (FORMAT_SCHEMA, f'"response_format": {form}'),
        ("guided_json", f'"guided_json": {json.dumps(schema)}'),
        ("tools", f'"tools": [{tool}], "tool_choice": "required"'),
    ):
        headers = {"Content-Type": "application/json"}
        answer = served.http.post(CHAT, content=f"{start}, {rest}}}", headers=headers)
        assert answer.status_code == 400, field
        error = answer.json()["error"]
        assert (error["param"], error["code"]) == (field, "grammar_invalid")
        assert f"the number {number} cannot be kept exactly" in error["message"]
        assert f"/properties/a/{keyword}" in error["message"]


def test_integers_that_a_grammar_keeps_are_exact(served: Served) -> None:
    shape = json_schema({"const": 9007199254740991})
    answer = served.post(CHAT, {"messages": HELLO, "response_format": shape, "max_tokens": 30})
    assert answer.json()["choices"][0]["message"]["content"] == "9007199254740991"


def hostile_schema() -> dict[str, Any]:
    """Costs the compiler more than it may have."""
    alternatives = [{"pattern": f"^(a|b|ab){{{900 + number}}}$"} for number in range(40)]
    return {"type": "object", "properties": {"a": {"anyOf": alternatives}}, "required": ["a"]}


def test_a_hostile_schema_holds_nobody_else(served: Served) -> None:
    answers: list[Any] = []

    def attack() -> None:
        schema = hostile_schema()
        body = {**RIGHT[CHAT], "response_format": json_schema(schema)}
        answers.append(served.http.post(CHAT, json=body, timeout=60))

    attackers = [threading.Thread(target=attack) for _ in range(3)]
    for each in attackers:
        each.start()
    slowest = 0.0
    while any(each.is_alive() for each in attackers):
        begin = time.monotonic()
        assert served.post(CHAT, {"messages": HELLO, "max_tokens": 3}).status_code == 200
        slowest = max(slowest, time.monotonic() - begin)
    for each in attackers:
        each.join()
    assert slowest < 6.0  # compiling may take up to 10 s
    for answer in answers:
        assert answer.status_code in (200, 400)
