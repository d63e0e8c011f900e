"""Anthropic's content blocks: of a request as messages for templates, of an answer as blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pagewheel.serve.api.conversation import (
    check_count,
    part_text,
    read_message,
    text_of,
    tool_call,
)
from pagewheel.serve.api.output_processor import CALL, CONTENT, REASONING, MessagePart, arguments_of
from pagewheel.serve.http.errors import bad_field
from pagewheel.serve.http.fields import Fields, checked

_THINKING = ("thinking", "redacted_thinking")


def read_blocks(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """`messages` of a request in OpenAI's form: results of tools are messages of their own."""
    check_count("messages", messages)
    found: list[dict[str, Any]] = []
    for number, each in enumerate(messages):
        where = f"messages[{number}]"
        content = checked(where, each, dict).get("content")
        if isinstance(content, list):
            found += _read_parts(where, each, content)
        else:
            found.append(read_message(where, each))
    return found


def _read_parts(where: str, value: dict[str, Any], content: list[Any]) -> list[dict[str, Any]]:
    fields = Fields(value, where + ".")
    role = fields.take_one_of("role", ("user", "assistant", "system"))
    fields.take_any("content")
    fields.refuse_rest()
    message: dict[str, Any] = {"role": role, "content": ""}
    results: list[dict[str, Any]] = []
    for number, part in enumerate(content):
        place = f"{where}.content[{number}]"
        kind = checked(place, part, dict).get("type")
        inner = Fields(part, place + ".")
        if role == "assistant" and kind == "tool_use":
            message.setdefault("tool_calls", []).append(_tool_use(inner))
        elif role == "assistant" and kind in _THINKING:
            _add_thinking(inner, message)
        elif role == "user" and kind == "tool_result":
            results.append(_tool_result(inner))
        else:
            message["content"] += part_text(place, part)
    has_more = message["content"] or len(message) > 2 or not results
    return [*results, message] if has_more else results


def _tool_use(fields: Fields) -> dict[str, Any]:
    fields.take_any("type")
    call = tool_call(fields.need("id", str), fields.need("name", str), fields.need("input", dict))
    for hint in ("cache_control", "caller"):
        fields.take(hint, dict)
    fields.refuse_rest()
    return call


def _tool_result(fields: Fields) -> dict[str, Any]:
    fields.take_any("type")
    name = fields.need("tool_use_id", str)
    content = fields.take_any("content")
    text = "" if content is None else text_of(fields.name("content"), content)
    is_error = fields.take("is_error", bool, False)
    fields.take("cache_control", dict)
    fields.refuse_rest()
    return {"role": "tool", "tool_call_id": name, "content": f"Error: {text}" if is_error else text}


def _add_thinking(fields: Fields, message: dict[str, Any]) -> None:
    if fields.take_any("type") == "redacted_thinking":
        raise bad_field(fields.name("type"), "is not supported: it is of another model")
    text = fields.need("thinking", str)
    message["reasoning_content"] = message.get("reasoning_content", "") + text
    fields.take("signature", str)
    fields.refuse_rest()


def blocks_of(parts: Sequence[MessagePart]) -> list[dict[str, Any]]:
    """`content` of an answer. It has a text at least, if only an empty one."""
    return [_block(each) for each in parts] or [{"type": "text", "text": ""}]


def _block(part: MessagePart) -> dict[str, Any]:
    if part.kind == CALL:
        return {**empty_block(part), "input": arguments_of(part.text)}
    if part.kind == REASONING:
        return {**empty_block(part), "thinking": part.text}
    return {**empty_block(part), "text": part.text}


def empty_block(part: MessagePart) -> dict[str, Any]:
    """As a stream's first event of a block has it."""
    if part.kind == CALL:
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}
    if part.kind == REASONING:
        return {"type": "thinking", "thinking": "", "signature": ""}
    assert part.kind == CONTENT
    return {"type": "text", "text": ""}


def block_delta(part: MessagePart) -> dict[str, Any]:
    """What a stream adds to a block."""
    if part.kind == CALL:
        return {"type": "input_json_delta", "partial_json": part.text}
    if part.kind == REASONING:
        return {"type": "thinking_delta", "thinking": part.text}
    return {"type": "text_delta", "text": part.text}
