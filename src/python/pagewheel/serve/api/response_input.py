"""`input` of /v1/responses, as messages for templates."""

from __future__ import annotations

from typing import Any

from pagewheel.serve.api.conversation import (
    check_arguments,
    check_count,
    read_message,
    text_of,
    tool_call,
)
from pagewheel.serve.http.errors import bad_field
from pagewheel.serve.http.fields import Fields, checked, shown


def read_input(fields: Fields) -> list[dict[str, Any]]:
    """A text, or items: messages, calls, their results and reasoning."""
    value = fields.take_any("input")
    if value is None:
        raise bad_field("input", "is required", "missing_required_parameter")
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    items = checked("input", value, list)
    check_count("input", items)
    messages: list[dict[str, Any]] = []
    for number, item in enumerate(items):
        where = f"input[{number}]"
        arguments = checked(where, item, dict).get("arguments")
        if isinstance(arguments, str):
            check_arguments(f"{where}.arguments", arguments)
        _add(messages, where, item)
    return messages


def said_again(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items of a response as the messages that the next one begins with."""
    messages: list[dict[str, Any]] = []
    for item in output:
        _add(messages, "output", item)
    return messages


def _add(messages: list[dict[str, Any]], where: str, item: dict[str, Any]) -> None:
    """One item. What the assistant says in several ones is one message."""
    kind = item.get("type") or "message"
    fields = Fields(item, where + ".")
    fields.take("type", str)
    for name in ("id", "status"):  # of an answer that comes back
        fields.take(name, str)
    if kind == "function_call":
        name = fields.need("call_id", str)
        call = tool_call(name, fields.need("name", str), fields.need("arguments", str))
        _assistant(messages).setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        content = text_of(f"{where}.output", fields.take_any("output") or "")
        name = fields.need("call_id", str)
        messages.append({"role": "tool", "tool_call_id": name, "content": content})
    elif kind == "reasoning":
        _add_reasoning(_assistant(messages), fields)
    elif kind == "message":
        rest = {key: one for key, one in item.items() if key not in ("type", "id", "status")}
        _add_message(messages, read_message(where, rest))
        return
    else:
        raise bad_field(
            f"{where}.type",
            f"is {shown(kind)}; allowed: 'message', 'function_call', 'function_call_output', "
            "'reasoning'",
        )
    fields.refuse_rest()


def _assistant(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The assistant's message that is going on, or a new one."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    return messages[-1]


def _add_message(messages: list[dict[str, Any]], message: dict[str, Any]) -> None:
    last = messages[-1] if messages else {}
    if message["role"] == last.get("role") == "assistant" and not last["content"]:
        last["content"] = message["content"]
    else:
        messages.append(message)


def _add_reasoning(message: dict[str, Any], fields: Fields) -> None:
    fields.take("summary", list)
    fields.take_one_of("encrypted_content", (None,))
    parts = fields.take("content", list) or []
    for number, part in enumerate(parts):
        inner = Fields(
            checked(fields.name(f"content[{number}]"), part, dict),
            fields.name(f"content[{number}]."),
        )
        inner.take_one_of("type", ("reasoning_text",))
        text = inner.need("text", str)
        inner.refuse_rest()
        message["reasoning_content"] = message.get("reasoning_content", "") + text
