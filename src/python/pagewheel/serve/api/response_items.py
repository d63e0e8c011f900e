"""Items of a response's output: messages, calls and reasoning, in one piece and as events."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from pagewheel.serve.api.answer_text import CALL, CONTENT, REASONING, Section
from pagewheel.serve.http.errors import ApiError
from pagewheel.serve.http.request_context import RequestContext

_PREFIXES = {CALL: "fc", REASONING: "rs", CONTENT: "msg"}


def items_of(sections: Sequence[Section], status: str) -> list[dict[str, Any]]:
    """All of an answer. There is a message at least, if only an empty one."""
    found = list(sections) or [Section(CONTENT, "")]
    last = len(found) - 1
    return [
        _item(new_id(each), each, status if number == last else "completed")
        for number, each in enumerate(found)
    ]


def new_id(section: Section) -> str:
    """Of an item."""
    return f"{_PREFIXES[section.kind]}_{uuid.uuid4().hex}"


def _item(name: str, section: Section, status: str) -> dict[str, Any]:
    """Without parts while it is in progress."""
    has_parts = status != "in_progress"
    if section.kind == CALL:
        return {
            "type": "function_call",
            "id": name,
            "call_id": section.id,
            "name": section.name,
            "arguments": section.text,
            "status": status,
        }
    content = [_part(section)] if has_parts else []
    if section.kind == REASONING:
        return {"type": "reasoning", "id": name, "summary": [], "content": content}
    return {
        "type": "message",
        "id": name,
        "status": status,
        "role": "assistant",
        "content": content,
    }


def _part(section: Section) -> dict[str, Any]:
    if section.kind == REASONING:
        return {"type": "reasoning_text", "text": section.text}
    return {
        "type": "output_text",
        "text": section.text,
        "annotations": [],
        "logprobs": section.scores,
    }


class ItemEvents:
    """A stream of items, of which one is open at a time."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._number = 0
        self._open: Section | None = None
        self._name = ""
        self._items: list[dict[str, Any]] = []

    async def send(self, kind: str, size: int = 0, /, **fields: Any) -> None:
        """An event of so many entries."""
        event = {"type": kind, "sequence_number": self._number, **fields}
        await self._context.send_event(event, kind, size)
        self._number += 1

    async def add(self, section: Section) -> None:
        """Goes on with the item that is open, or opens another."""
        before = self._open
        if before is None or (before.kind, before.index) != (section.kind, section.index):
            await self._end("completed")
            await self._begin(section)
        assert self._open is not None
        if not section.text:
            return
        self._open.text += section.text
        self._open.scores += section.scores
        if section.kind == CALL:
            place = {"item_id": self._name, "output_index": len(self._items)}
            await self.send("response.function_call_arguments.delta", **place, delta=section.text)
        elif section.kind == REASONING:
            await self.send("response.reasoning_text.delta", **self._place(), delta=section.text)
        else:
            await self.send(
                "response.output_text.delta",
                **self._place(),
                delta=section.text,
                logprobs=section.scores,
            )

    async def close(self, status: str) -> list[dict[str, Any]]:
        """Ends the last item. Returns all."""
        if self._open is None and not self._items:
            await self._begin(Section(CONTENT, ""))
        await self._end(status)
        return self._items

    async def fail(self, response: dict[str, Any], error: ApiError) -> None:
        """The last events of a stream that cannot go on."""
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
        return {"item_id": self._name, "output_index": len(self._items), "content_index": 0}

    async def _begin(self, section: Section) -> None:
        self._open = Section(section.kind, "", section.index, section.name, section.id)
        self._name = new_id(section)
        begun = _item(self._name, self._open, "in_progress")
        await self.send("response.output_item.added", output_index=len(self._items), item=begun)
        if section.kind != CALL:
            part = _part(self._open)
            await self.send("response.content_part.added", **self._place(), part=part)

    async def _end(self, status: str) -> None:
        section = self._open
        if section is None:
            return
        size = sum(1 + len(each["top_logprobs"]) for each in section.scores)
        if section.kind == CALL:
            await self.send(
                "response.function_call_arguments.done",
                item_id=self._name,
                output_index=len(self._items),
                name=section.name,
                arguments=section.text,
            )
        else:
            kind = "reasoning_text" if section.kind == REASONING else "output_text"
            scores: dict[str, Any] = {}
            if section.kind == CONTENT:
                scores["logprobs"] = section.scores
            place = self._place()
            await self.send(f"response.{kind}.done", size, **place, text=section.text, **scores)
            await self.send("response.content_part.done", size, **place, part=_part(section))
        item = _item(self._name, section, status)
        await self.send("response.output_item.done", size, output_index=len(self._items), item=item)
        self._items.append(item)
        self._open = None
