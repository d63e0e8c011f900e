"""The grammar of an answer: of the tools, of the response format, after reasoning."""

from __future__ import annotations

from typing import Any

import pagewheel
from pagewheel import StructuredOutputConfig as Grammar
from pagewheel.serve.api.output_processor import ParserConfig
from pagewheel.serve.api.response_format import ResponseFormat, kept_schema
from pagewheel.serve.api.tools import REQUIRED, Tools
from pagewheel.serve.http.errors import ApiError, bad_field, unavailable
from pagewheel.serve.models.engine import Engine
from pagewheel.serve.models.refused_grammars import is_busy

_OPEN, _CLOSE = "<think>", "</think>"


async def compiled_grammar(
    engine: Engine,
    response_format: ResponseFormat | None,
    tools: Tools,
    parser: ParserConfig,
    api_key_id: str,
) -> Grammar | None:
    """None where any text will do. Raises ApiError that names the field and the place."""
    may_call = bool(tools.offered) and parser.family is not None
    if tools.choice == REQUIRED and not may_call:
        raise bad_field(
            "tool_choice", "demands a call: the model's chat template knows none", "no_calls"
        )
    with_calls = may_call and (
        tools.needs_grammar if response_format is None else response_format.allows_calls
    )
    if response_format is None and not with_calls:
        return None
    if with_calls and tools.choice == REQUIRED:
        response_format = None  # an answer of calls has no other format
    fields = ["tools"] * with_calls + ([] if response_format is None else [response_format.field])

    def make() -> Grammar:
        parts = []
        if with_calls:
            parts.append(
                _of_calls(parser, tools, tools.choice if response_format is None else REQUIRED)
            )
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
    except ValueError as error:
        message = str(error)[:2000]
        if is_busy(message):
            raise unavailable(message, "grammars_busy") from None
        raise bad_field(_blamed(fields, message), message, "grammar_refused") from None
    except RuntimeError as error:  # the library is missing
        raise ApiError(400, str(error)[:2000], param=fields[0], code="no_grammar_library") from None


def _blamed(fields: list[str], message: str) -> str:
    """The refused one of two fields: a message about tools names them."""
    return fields[0] if "tool" in message else fields[-1]


def _of_calls(parser: ParserConfig, tools: Tools, choice: str) -> Any:
    """Of the one that must be called, or of all."""
    given = list(parser.tools)
    if tools.name is not None:
        given = [each for each in given if each["function"]["name"] == tools.name]
    given = [_kept(each) for each in given]
    is_parallel = tools.is_parallel and tools.name is None
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
    """What is asked for is asked of the answer: a model that thinks does so before."""
    if parser.family is None or _OPEN not in chat_template:
        return part
    tag = "" if parser.starts_in_reasoning else _OPEN
    thought = Grammar.Tag(tag, Grammar.AnyText(), _CLOSE)
    after = Grammar.Concat(thought, Grammar.Regex(r"\s*"), part)
    return after if parser.starts_in_reasoning else Grammar.Union(after, part)
