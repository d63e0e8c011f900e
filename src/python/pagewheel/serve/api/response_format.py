"""What an answer's text must be: the request's response format and tools, as a grammar."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pagewheel
from pagewheel import StructuredOutputConfig as Grammar
from pagewheel.errors import PagewheelError
from pagewheel.json_schema import Dialect
from pagewheel.serve.api.output_processor import ParserConfig
from pagewheel.serve.api.tools import REQUIRED, Tools
from pagewheel.serve.errors import unavailable
from pagewheel.serve.http.body import Fields, checked, shown
from pagewheel.serve.http.errors import ApiError, bad_field
from pagewheel.serve.models.engine import Engine

_log = logging.getLogger("pagewheel.serve")
_ANY_OBJECT = {"type": "object"}
_OPEN, _CLOSE = "<think>", "</think>"


@dataclass(frozen=True)
class ResponseFormat:
    """`grammar` is a part of a compound one. `field` is whose fault it is if it is refused."""

    field: str
    grammar: Any
    allows_calls: bool = False  # in place of it, where there are tools
    allow_additional_properties: bool = False  # where a schema does not mention them


def take_response_format(fields: Fields) -> ResponseFormat | None:
    """Takes `response_format`, or one of vLLM's fields."""
    return _only([_format(fields, "response_format", _chat_schema), *_extras(fields)])


def take_text_format(fields: Fields, text: Fields) -> ResponseFormat | None:
    """Takes `text.format` of /v1/responses, or one of vLLM's fields."""
    response_format = _format(
        text, "format", lambda form: _schema(form, ("name", "description"), "strict")
    )
    return _only([response_format, *_extras(fields)])


def take_output_format(fields: Fields, config: Fields) -> ResponseFormat | None:
    """Takes `output_config.format` of /v1/messages, its older `output_format`, or vLLM's."""
    found = [_format(fields, "output_format", _schema), _format(config, "format", _schema)]
    return _only([*found, *_extras(fields)])


def take_ollama_format(fields: Fields) -> ResponseFormat | None:
    """Takes `format` of /api/chat and /api/generate: "json", or a schema."""
    value = fields.take_any("format")
    if value is None or value == "":
        return None
    if value != "json" and not isinstance(value, dict):
        raise bad_field("format", f"is {shown(value)}; allowed: 'json', or a schema")
    schema = value if isinstance(value, dict) else _ANY_OBJECT
    return ResponseFormat("format", _json("format", schema), True)


def _format(
    fields: Fields, field: str, schema: Callable[[Fields], tuple[str, Any]]
) -> ResponseFormat | None:
    with fields.inner(field) as form:
        if not form.is_given:
            return None
        kind = form.take_one_of("type", ("text", "json_object", "json_schema"))
        name, given = schema(form) if kind == "json_schema" else (fields.name(field), _ANY_OBJECT)
    return None if kind == "text" else ResponseFormat(name, _json(name, given), True)


def _chat_schema(form: Fields) -> tuple[str, Any]:
    with form.inner("json_schema", is_required=True) as inner:
        inner.need("name", str)
        return _schema(inner, ("description",), "strict")


def _schema(
    fields: Fields, texts: tuple[str, ...] = (), flag: str | None = None
) -> tuple[str, Any]:
    """Gives the field's name and the schema, which every answer follows, strict or not."""
    for each in texts:
        fields.take(each, str)
    if flag is not None:
        fields.take(flag, bool)
    return fields.name("schema"), fields.need("schema", dict)


def _json(field: str, schema: Any) -> Any:
    return Grammar.JSONSchema(
        schema if isinstance(schema, str) else json.dumps(kept_schema(field, schema))
    )


def kept_schema(field: str, schema: Any) -> Any:
    """As a grammar can keep it. Raises ApiError. Formats that are not known are logged, without
    their names."""
    try:
        dialect = Dialect(schema)
    except ValueError as error:
        raise bad_field(field, str(error), "grammar_invalid") from None
    if dialect.formats:
        count = len(dialect.formats)  # which ones is the client's text
        _log.warning("formats of a JSON schema are free text", extra={"formats": count})
    return dialect.schema


def _choice(name: str, value: Any) -> Any:
    texts = checked(name, value, list)
    if not texts or not all(isinstance(each, str) for each in texts):
        raise bad_field(name, "must be an array of texts, one or more")
    return Grammar.Choice(texts)


def _json_extra(name: str, value: Any) -> Any:
    if not isinstance(value, (str, dict)):
        raise bad_field(name, "must be a schema: an object, or its text")
    return _json(name, value)


_EXTRAS: dict[str, Callable[[str, Any], Any]] = {
    "json": _json_extra,
    "regex": lambda name, value: Grammar.Regex(checked(name, value, str)),
    "choice": _choice,
    "grammar": lambda name, value: Grammar.EBNF(checked(name, value, str)),
}


def _extras(fields: Fields) -> list[ResponseFormat | None]:
    """Takes vLLM's `structured_outputs`, and its older `guided_json` and so on."""
    found = [_extra(fields, f"guided_{name}", name) for name in _EXTRAS]
    with fields.inner("structured_outputs") as inner:
        is_open = not inner.take("disable_additional_properties", bool, True)
        found += [
            each and replace(each, allow_additional_properties=is_open)
            for each in (_extra(inner, name, name) for name in _EXTRAS)
        ]
        if inner.take("json_object", bool, False):
            name = inner.name("json_object")
            found.append(ResponseFormat(name, _json("json_object", _ANY_OBJECT)))
    return found


def _extra(fields: Fields, field: str, kind: str) -> ResponseFormat | None:
    value = fields.take_any(field)
    name = fields.name(field)
    return None if value is None else ResponseFormat(name, _EXTRAS[kind](name, value))


def _only(found: list[ResponseFormat | None]) -> ResponseFormat | None:
    formats = [each for each in found if each is not None]
    if len(formats) > 1:
        raise bad_field(formats[1].field, f"stands beside {formats[0].field}: give one of them")
    return formats[0] if formats else None


async def compiled_grammar(
    engine: Engine,
    response_format: ResponseFormat | None,
    tools: Tools,
    parser: ParserConfig,
    api_key_id: str,
) -> Grammar | None:
    """None where any text will do. Raises ApiError that names the field and the place."""
    may_call = bool(tools.offered) and parser.family is not None
    with_calls = may_call and (
        tools.needs_grammar if response_format is None else response_format.allows_calls
    )
    if response_format is None and not with_calls:
        return None
    if with_calls and tools.choice == REQUIRED:
        response_format = None  # an answer of calls has no other format
    fields = ["tools"] * with_calls + ([] if response_format is None else [response_format.field])

    blamed = fields[-1]

    def make() -> Grammar:
        nonlocal blamed
        parts = []
        if with_calls:
            blamed = "tools"  # while they are translated
            parts.append(
                _of_calls(parser, tools, tools.choice if response_format is None else REQUIRED)
            )
            blamed = fields[-1]
        if response_format is not None:
            parts.append(of_final_message(parser, response_format.grammar))
        part = parts[0] if len(parts) == 1 else Grammar.Union(*parts)
        return Grammar(
            compound_grammar=after_reasoning(engine.chat_template, parser, part),
            allow_additional_properties=response_format is not None
            and response_format.allow_additional_properties,
        )

    try:
        return await engine.compiled(make, api_key_id)
    except PagewheelError as error:
        message = str(error)[:2000]
        if error.code == "grammar_busy":
            raise unavailable(message, error.code) from None
        if error.code == "grammar_library_missing":
            raise ApiError(400, message, param=fields[0], code=error.code) from None
        raise bad_field(blamed, message, error.code) from None


def _of_calls(parser: ParserConfig, tools: Tools, choice: str) -> Any:
    """Allows the tool that must be called, or all."""
    given = list(parser.tools)
    if tools.name is not None:
        given = [each for each in given if each["function"]["name"] == tools.name]
    given = [_kept(each) for each in given]
    is_parallel = tools.name is None and not parser.stops_after_call
    assert parser.family is not None
    return pagewheel.tool_call_grammar(
        given, parser.family, tool_choice=choice, parallel_tool_calls=is_parallel
    ).compound_grammar


def _kept(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    if "parameters" not in function:
        return tool
    schema = kept_schema("tools", function["parameters"])
    return {**tool, "function": {**function, "parameters": schema}}


def of_final_message(parser: ParserConfig, part: Any) -> Any:
    """gpt-oss answers in a channel of its own, after a message of analysis or none."""
    if parser.family != "harmony":
        return part
    final = Grammar.Tag("<|channel|>final<|message|>", part, "")
    analysis = Grammar.Tag(
        "<|channel|>analysis<|message|>", Grammar.AnyText(), "<|end|><|start|>assistant"
    )
    return Grammar.Union(Grammar.Concat(analysis, final), final)


def after_reasoning(chat_template: str, parser: ParserConfig, part: Any) -> Any:
    """A model that thinks does so before the answer, of which alone the format is asked."""
    if parser.family is None or _OPEN not in chat_template:
        return part
    tag = "" if parser.starts_in_reasoning else _OPEN
    thought = Grammar.Tag(tag, Grammar.AnyText(), _CLOSE)
    after = Grammar.Concat(thought, Grammar.Regex(r"\s*"), part)
    return after if parser.starts_in_reasoning else Grammar.Union(after, part)
