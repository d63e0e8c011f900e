"""Answers in JSON, as Python values."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pagewheel._pagewheel import (
    ChatHistory,
    GenerationConfig,
    GenerationFinishReason,
    LLMPipeline,
    StructuredOutputConfig,
)
from pagewheel.errors import InvalidArgumentError, PagewheelError
from pagewheel.json_schema import to_json_schema

_MOST_TOKENS = 4096


class UnfinishedOutputError(PagewheelError):
    """A text ended before it was whole. `text` is what there is of it."""

    code = "output_unfinished"

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


def generate_json(
    pipeline: LLMPipeline,
    schema: Any,
    prompt: str | ChatHistory,
    generation_config: GenerationConfig | None = None,
    **parameters: Any,
) -> Any:
    """The answer to one prompt, in JSON of a schema.

    schema: a JSON schema (dict or JSON text) gives what json.loads() gives. A pydantic model gives
    an instance of it. With pydantic installed any other type gives a value of this type: list[int],
    Literal["a", "b"], a dataclass.
    parameters: those of generate(), such as max_new_tokens and temperature.

    Raises ValueError for a schema that is refused, and UnfinishedOutputError where the text was cut
    off, as by max_new_tokens: without it, a text without end in a value would fill the context, so
    4096 tokens are the limit then. The model does not see the schema; say in the prompt what you
    want.
    """
    if isinstance(prompt, list):
        raise InvalidArgumentError(
            "prompt is a list; allowed: one str or ChatHistory", parameter="prompt"
        )
    config = GenerationConfig(generation_config or pipeline.get_generation_config())
    config.update_generation_config(**parameters)
    if config.max_new_tokens == config.max_length == GenerationConfig().max_new_tokens:
        config.max_new_tokens = _MOST_TOKENS
    text_schema, read = _schema_and_reader(schema)
    config.structured_output_config = StructuredOutputConfig(json_schema=text_schema)
    # A list of one gives DecodedResults; a plain string gives text.
    result = pipeline.generate([prompt] if isinstance(prompt, str) else prompt, config)
    text, reason = result.texts[0], result.finish_reasons[0]
    if reason != GenerationFinishReason.STOP:
        limit = f" (max_new_tokens is {config.max_new_tokens})"
        raise UnfinishedOutputError(
            f"the JSON ended before it was whole, by {reason.name}"
            f"{limit if reason == GenerationFinishReason.LENGTH else ''}: {_end_of(text)}",
            text,
        )
    try:
        return read(text)
    except json.JSONDecodeError as error:  # a stop string
        raise UnfinishedOutputError(
            f"the JSON ended before it was whole, by a stop string: {error}: {_end_of(text)}", text
        ) from None


def _end_of(text: str) -> str:
    return repr(text if len(text) <= 60 else "..." + text[-60:])


def _schema_and_reader(schema: Any) -> tuple[str, Callable[[str], Any]]:
    """The schema's JSON, and what makes the caller's value of a text."""
    text = to_json_schema(schema)
    if isinstance(schema, (str, dict, bool)):
        return text, json.loads
    from pydantic import TypeAdapter

    def read(answer: str) -> Any:
        json.loads(answer)
        return TypeAdapter(schema).validate_json(answer)

    return json.dumps(_closed(json.loads(text))), read


def _closed(schema: Any) -> Any:
    """Objects of a type have no other properties than its fields: reading would drop them."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: value if key in _VALUES else _closed(value) for key, value in schema.items()}
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed


_VALUES = {"default", "const", "enum", "examples"}
