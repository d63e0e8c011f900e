"""OpenAI's messages, as chat templates take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pagewheel.serve.http.body import (
    ESCAPED_HALF,
    Fields,
    fields_of,
    fits_64_bits,
    has_half,
    lenient_json,
    replace_large_numbers,
    shown,
)
from pagewheel.serve.http.errors import bad_field

_MAX_MESSAGES = 4096
_ROLES = ("system", "developer", "user", "assistant", "tool")
_TEXT_PARTS = ("text", "input_text", "output_text")
_MEDIA_PARTS = {
    "image_url": "images",
    "input_image": "images",
    "image": "images",
    "input_audio": "audio",
    "audio": "audio",
    "video_url": "video",
    "file": "files",
    "input_file": "files",
    "document": "files",
}


def read_messages(field: str, messages: Sequence[Any]) -> list[dict[str, Any]]:
    """Gives them with one text each. `developer` is what templates know as `system`."""
    check_count(field, messages)
    return [read_message(f"{field}[{number}]", each) for number, each in enumerate(messages)]


def check_count(field: str, messages: Sequence[Any]) -> None:
    if not messages:
        raise bad_field(field, "must have at least one message")
    if len(messages) > _MAX_MESSAGES:
        raise bad_field(field, f"has {len(messages)} messages; allowed: {_MAX_MESSAGES}")


def read_message(where: str, value: Any) -> dict[str, Any]:
    fields = fields_of(where, value)
    role = fields.take_one_of("role", _ROLES)
    message: dict[str, Any] = {"role": "system" if role == "developer" else role}
    content = fields.take_any("content")
    calls = fields.take("tool_calls", list) if role == "assistant" else None
    if content is None and not calls:
        raise bad_field(f"{where}.content", "is required", "missing_required_parameter")
    message["content"] = "" if content is None else text_of(f"{where}.content", content)
    if calls:
        message["tool_calls"] = [
            _tool_call(f"{where}.tool_calls[{number}]", each) for number, each in enumerate(calls)
        ]
    if role == "tool":
        message["tool_call_id"] = fields.need("tool_call_id", str)
    name = fields.take("name", str)
    if name is not None:
        message["name"] = name
    if role == "assistant":
        _take_assistant_extras(fields, message)
    fields.refuse_rest()
    return message


def _take_assistant_extras(fields: Fields, message: dict[str, Any]) -> None:
    """Takes what clients send back of an answer."""
    for field in ("reasoning_content", "refusal"):
        text = fields.take(field, str)
        if text is not None:
            message[field] = text
    fields.take("annotations", list)
    for field in ("audio", "function_call"):
        if fields.take_any(field) is not None:
            raise bad_field(fields.name(field), "is not supported", "unsupported_value")


def text_of(where: str, content: Any) -> str:
    """Joins the texts of a content. Images and audio are refused by name."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise bad_field(where, f"must be a string or an array, got {shown(content)}")
    return "".join(part_text(f"{where}[{number}]", part) for number, part in enumerate(content))


def part_text(where: str, part: Any) -> str:
    """Raises ApiError for a part of a content that is no text."""
    fields = fields_of(where, part)
    kind = fields.need("type", str)
    if kind in _MEDIA_PARTS:
        raise bad_field(
            f"{where}.type",
            f"is {kind!r}: {_MEDIA_PARTS[kind]} are not supported, the model reads text",
            "unsupported_value",
        )
    if kind not in _TEXT_PARTS:
        raise bad_field(f"{where}.type", f"is {shown(kind)}; allowed: 'text'")
    text = fields.need("text", str)
    fields.take("annotations", list)  # of an answer that comes back
    fields.take("logprobs", list)
    fields.take("cache_control", dict)  # Anthropic's; prefixes are cached in any case
    fields.refuse_rest()
    return text


def _tool_call(where: str, value: Any) -> dict[str, Any]:
    fields = fields_of(where, value)
    fields.take_one_of("type", ("function",), "function")
    with fields.inner("function", is_required=True) as call:
        arguments = call.need("arguments", str)
        check_arguments(call.name("arguments"), arguments)
        result = tool_call(fields.take("id", str, ""), call.need("name", str), arguments)
    fields.take("index", int)
    fields.refuse_rest()
    return result


def check_arguments(field: str, arguments: str) -> None:
    """Raises ApiError for half of a character: the text is JSON within JSON."""
    if ESCAPED_HALF.search(arguments) is None:  # so most are parsed once, by tool_call()
        return
    value = _parsed(arguments)
    if value is not None and has_half(arguments, value):
        raise bad_field(field, "has half of a UTF-16 surrogate pair in a string")


def tool_call(name_of_call: str, function: str, arguments: Any) -> dict[str, Any]:
    """Makes a call as templates take it: arguments are an object, or a text where they are none.

    A model may write halves of characters, which no template can show: they stay a text too. In
    the object, an integer beyond 64 bits and a number that no float can hold are texts.
    """
    if isinstance(arguments, str):
        value = _parsed(arguments)
        if isinstance(value, dict) and not has_half(arguments, value):
            arguments = value
    if isinstance(arguments, dict):
        replace_large_numbers(arguments)
    called = {"name": function, "arguments": arguments}
    return {"id": name_of_call, "type": "function", "function": called}


def _parsed(arguments: str) -> Any:
    try:
        return lenient_json(arguments or "{}")
    except (ValueError, RecursionError):
        return None


# Names that a request may not put into a template's context.
_RESERVED = ("messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token")


def take_template_kwargs(fields: Fields) -> dict[str, Any]:
    """Takes `chat_template_kwargs`, and `reasoning_effort`, which some templates read."""
    template_kwargs = dict(fields.take("chat_template_kwargs", dict) or {})
    for name in _RESERVED:
        if name in template_kwargs:
            raise bad_field(fields.name(f"chat_template_kwargs.{name}"), "is not allowed")
    effort = fields.take("reasoning_effort", str)
    if effort is not None:
        template_kwargs["reasoning_effort"] = effort
    return template_kwargs


# It bounds the squares of all objects' sizes: one of 2,000 members takes some tens of
# milliseconds, in which no other thread of Python runs.
_MOST_COMPARISONS = 2000**2


def check_template_values(**values: Any) -> None:
    """Raises ApiError that names the value with too large an integer or too many members."""
    for name, value in values.items():
        comparisons = 0
        waiting = [value]
        while waiting:
            one = waiting.pop()
            if isinstance(one, dict):
                comparisons += len(one) ** 2
                waiting.extend(one.values())
            elif isinstance(one, (list, tuple)):
                waiting.extend(one)
            elif not fits_64_bits(one):
                raise bad_field(
                    name,
                    f"has the integer {str(one)[:40]}; allowed are those of 64 bits. A larger one "
                    "can be given as a string",
                )
            if comparisons > _MOST_COMPARISONS:
                raise bad_field(
                    name,
                    "has objects of too many members: allowed are 2000 in one, and fewer where "
                    "there are several",
                )


def text_size(*values: Any) -> int:
    """About how many characters all texts and numbers in the values have."""
    size = 0
    waiting: list[Any] = list(values)
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            size += len(one)
        elif isinstance(one, dict):
            waiting.extend(one)
            waiting.extend(one.values())
        elif isinstance(one, (list, tuple)):
            waiting.extend(one)
        elif isinstance(one, int):
            size += 1 + one.bit_length() // 3
        else:
            size += 8
    return size
