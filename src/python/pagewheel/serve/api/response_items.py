"""Items of /v1/responses: of `input` as messages for templates, of output whole and as events."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from pagewheel.serve.api.conversation import (
    check_arguments,
    check_count,
    read_message,
    text_of,
    tool_call,
)
from pagewheel.serve.api.output_processor import CALL, CONTENT, REASONING, MessagePart
from pagewheel.serve.api.service import Context
from pagewheel.serve.http.body import Fields, checked, fields_of, shown
from pagewheel.serve.http.errors import ApiError, bad_field

_PREFIXES = {CALL: "fc", REASONING: "rs", CONTENT: "msg"}
# What events call the text of an item.
_TEXTS = {CALL: "function_call_arguments", REASONING: "reasoning_text", CONTENT: "output_text"}


def read_input(fields: Fields) -> list[dict[str, Any]]:
    """Takes a text, or items: messages, calls, their results and reasoning."""
    value = fields.need_any("input")
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
    """Gives the items of a response as the messages that the next one begins with."""
    messages: list[dict[str, Any]] = []
    for item in output:
        _add(messages, "output", item)
    return messages


def _add(messages: list[dict[str, Any]], where: str, item: dict[str, Any]) -> None:
    """What the assistant says in several items is one message."""
    kind = item.get("type") or "message"
    fields = fields_of(where, item)
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
    """Gives the assistant's message that is going on, or a new one."""
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
    for inner in fields.take_objects("content"):
        inner.take_one_of("type", ("reasoning_text",))
        text = inner.need("text", str)
        inner.refuse_rest()
        message["reasoning_content"] = message.get("reasoning_content", "") + text


def items_of(parts: Sequence[MessagePart], status: str) -> list[dict[str, Any]]:
    """There is a message at least, if only an empty one."""
    found = list(parts) or [MessagePart(CONTENT, "")]
    last = len(found) - 1
    return [
        _item(new_id(each), each, status if number == last else "completed")
        for number, each in enumerate(found)
    ]


def new_id(part: MessagePart) -> str:
    return f"{_PREFIXES[part.kind]}_{uuid.uuid4().hex}"


def _item(name: str, part: MessagePart, status: str) -> dict[str, Any]:
    """An item has no parts while it is in progress."""
    has_parts = status != "in_progress"
    if part.kind == CALL:
        return {
            "type": "function_call",
            "id": name,
            "call_id": part.id,
            "name": part.name,
            "arguments": part.text,
            "status": status,
        }
    content = [_part(part)] if has_parts else []
    if part.kind == REASONING:
        return {"type": "reasoning", "id": name, "summary": [], "content": content}
    return {
        "type": "message",
        "id": name,
        "status": status,
        "role": "assistant",
        "content": content,
    }


def _part(part: MessagePart) -> dict[str, Any]:
    if part.kind == REASONING:
        return {"type": "reasoning_text", "text": part.text}
    return {
        "type": "output_text",
        "text": part.text,
        "annotations": [],
        "logprobs": part.scores,
    }


class ItemEvents:
    """Sends a stream of items, of which one is open at a time."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._number = 0
        self._open: MessagePart | None = None
        self._name = ""
        self._items: list[dict[str, Any]] = []

    async def send(self, kind: str, size: int = 0, /, **fields: Any) -> None:
        """Sends an event of so many entries."""
        event = {"type": kind, "sequence_number": self._number, **fields}
        await self._context.send_event(event, kind, size)
        self._number += 1

    async def add(self, part: MessagePart) -> None:
        """Goes on with the item that is open, or opens another."""
        before = self._open
        if before is None or (before.kind, before.index) != (part.kind, part.index):
            await self._end("completed")
            await self._begin(part)
        assert self._open is not None
        if not part.text:
            return
        self._open.text += part.text
        self._open.scores += part.scores
        scores = {"logprobs": part.scores} if part.kind == CONTENT else {}
        name = f"response.{_TEXTS[part.kind]}.delta"
        await self.send(name, **self._place(), delta=part.text, **scores)

    async def close(self, status: str) -> list[dict[str, Any]]:
        """Ends the last item. Returns all."""
        if self._open is None and not self._items:
            await self._begin(MessagePart(CONTENT, ""))
        await self._end(status)
        return self._items

    async def fail(self, response: dict[str, Any], error: ApiError) -> None:
        """Sends the last events of a stream that cannot go on."""
        code, message = error.code or error.type, error.message
        await self.send("error", code=code, message=message, param=error.param)
        failed = {
            **response,
            "status": "failed",
            "error": {"code": "server_error", "message": message},
            "output": self._items,
        }
        await self.send("response.failed", self._context.body_entries, response=failed)

    def _place(self) -> dict[str, Any]:
        place: dict[str, Any] = {"item_id": self._name, "output_index": len(self._items)}
        assert self._open is not None
        return place if self._open.kind == CALL else {**place, "content_index": 0}

    async def _begin(self, part: MessagePart) -> None:
        self._open = MessagePart(part.kind, "", part.index, part.name, part.id)
        self._name = new_id(part)
        begun = _item(self._name, self._open, "in_progress")
        await self.send("response.output_item.added", output_index=len(self._items), item=begun)
        if part.kind != CALL:
            item_part = _part(self._open)
            await self.send("response.content_part.added", **self._place(), part=item_part)

    async def _end(self, status: str) -> None:
        part = self._open
        if part is None:
            return
        size = sum(1 + len(each["top_logprobs"]) for each in part.scores)
        place, name = self._place(), f"response.{_TEXTS[part.kind]}.done"
        if part.kind == CALL:
            await self.send(name, **place, name=part.name, arguments=part.text)
        else:
            scores = {"logprobs": part.scores} if part.kind == CONTENT else {}
            await self.send(name, size, **place, text=part.text, **scores)
            await self.send("response.content_part.done", size, **place, part=_part(part))
        item = _item(self._name, part, status)
        await self.send("response.output_item.done", size, output_index=len(self._items), item=item)
        self._items.append(item)
        self._open = None
