"""/v1/messages and its count_tokens, as Anthropic's clients ask."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pagewheel.serve.api.conversation import (
    check_count,
    part_text,
    read_message,
    text_of,
    tool_call,
)
from pagewheel.serve.api.generating import (
    Conversation,
    PromptSuffix,
    check_open,
    generating,
    prompt_of,
    take_overflow,
)
from pagewheel.serve.api.output_processor import (
    CALL,
    CONTENT,
    REASONING,
    MessagePart,
    OutputProcessor,
    arguments_of,
)
from pagewheel.serve.api.response_format import ResponseFormat, take_output_format
from pagewheel.serve.api.sampling_request import (
    MAX_TOKENS,
    SamplingRequest,
    limited_tokens,
    read_sampling,
    take_max_tokens,
)
from pagewheel.serve.api.service import Context
from pagewheel.serve.api.tools import take_message_tools
from pagewheel.serve.http.body import Fields, checked, fields_of
from pagewheel.serve.http.errors import bad_field
from pagewheel.serve.models.generation import Generation

_THINKING = ("thinking", "redacted_thinking")


@dataclass
class MessagesRequest:
    model: str | None
    conversation: Conversation
    sampling: SamplingRequest
    stream: bool
    shows_thinking: bool


def read(context: Context, fields: Fields) -> MessagesRequest:
    limits = context.service.settings.limits
    model = fields.take("model", str)
    conversation = _conversation(fields)
    shows_thinking = _take_thinking(fields, conversation)
    count = take_max_tokens(fields, "max_tokens", is_required=True)
    stop = fields.take("stop_sequences", list) or []
    sampling = read_sampling(context, fields)
    sampling.response_format = _take_output(fields, conversation)
    sampling.tools = conversation.tools
    sampling.overflow = conversation.overflow = take_overflow(context, fields)
    sampling.max_tokens = limited_tokens("max_tokens", count, limits)
    if stop:
        if not all(isinstance(each, str) for each in stop):
            raise bad_field("stop_sequences", "must be an array of strings")
        sampling.given["stop_strings"] = stop
    stream = fields.take("stream", bool, False)
    fields.take("metadata", dict)
    fields.take_one_of("service_tier", (None, "auto", "standard_only"))
    if (
        sampling.response_format is not None
        and conversation.prompt_suffix is PromptSuffix.OPEN_MESSAGE
    ):
        raise bad_field(
            sampling.response_format.field, "does not go with a last message of the assistant"
        )
    _refuse_unsupported(fields)
    fields.refuse_rest()
    return MessagesRequest(model, conversation, sampling, stream, shows_thinking)


async def answer_count(context: Context, request: tuple[str | None, Conversation]) -> None:
    model, conversation = request
    async with context.service.registry.use(model) as engine:
        prompt = await prompt_of(context, engine, conversation)
        await context.send_json({"input_tokens": len(prompt.tokens)})


def read_counted(_: Context, fields: Fields) -> tuple[str | None, Conversation]:
    model = fields.take("model", str)
    conversation = _conversation(fields)
    _take_thinking(fields, conversation)
    _take_output(fields, conversation)
    _refuse_unsupported(fields)
    fields.refuse_rest()
    return model, conversation


def _conversation(fields: Fields) -> Conversation:
    messages = read_blocks(fields.need("messages", list))
    system = fields.take_any("system")
    begin = [] if system is None else [{"role": "system", "content": text_of("system", system)}]
    fields.take("cache_control", dict)  # prefixes are cached in any case
    conversation = Conversation(begin + messages, take_message_tools(fields))
    if messages[-1]["role"] == "assistant":
        check_open(messages, "messages")
        conversation.prompt_suffix = PromptSuffix.OPEN_MESSAGE
    return conversation


def _take_output(fields: Fields, conversation: Conversation) -> ResponseFormat | None:
    """Takes `output_config`, whose effort is for the chat template, as reasoning_effort is."""
    with fields.inner("output_config") as inner:
        effort = inner.take("effort", str)
        if effort is not None:
            conversation.template_kwargs["reasoning_effort"] = effort
        return take_output_format(fields, inner)


def _take_thinking(fields: Fields, conversation: Conversation) -> bool:
    """Tells templates of models that may think. Returns whether thoughts are shown."""
    with fields.inner("thinking") as thinking:
        if not thinking.is_given:
            return True
        kind = thinking.take_one_of("type", ("enabled", "disabled", "adaptive"))
        thinking.take_int("budget_tokens", 1, MAX_TOKENS, 1)  # max_tokens bounds it with the answer
        display = thinking.take_one_of("display", (None, "summarized", "omitted"))
    if kind != "adaptive":
        conversation.template_kwargs["enable_thinking"] = kind == "enabled"
    return display != "omitted"


def _refuse_unsupported(fields: Fields) -> None:
    for name in ("mcp_servers", "container"):
        if fields.take_any(name):
            raise bad_field(name, "is not supported", "unsupported_value")


async def answer(context: Context, request: MessagesRequest) -> None:
    async with context.service.registry.use(request.model, request.sampling.deadline) as engine:
        prompt = await prompt_of(context, engine, request.conversation)
        async with generating(context, engine, [prompt], request.sampling) as generation:
            message: dict[str, Any] = {
                "id": f"msg_{uuid.uuid4().hex}",
                "type": "message",
                "role": "assistant",
                "model": request.model or engine.name,
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": _usage(generation),
            }
            processor = OutputProcessor(engine, generation, prompt.parser)
            if request.stream:
                await _stream(context, request, processor, message)
                return
            (output,) = await processor.read_all()
            content = blocks_of([_shown(request, each) for each in processor.messages[0].parts])
            end = {**_stop(output.finish_reason, output.stop_reason), "usage": _usage(generation)}
            whole = {**message, "content": content, **end}
            await context.send_offloaded(lambda: whole, generation.num_generated)


def _usage(generation: Generation) -> dict[str, int]:
    cached = generation.num_cached_tokens
    return {
        "input_tokens": generation.num_prompt_tokens - cached,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": generation.num_generated,
    }


def _stop(finish_reason: str | None, stop_reason: str | int | None) -> dict[str, str | None]:
    if finish_reason == "stop" and isinstance(stop_reason, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": stop_reason}
    reasons = {"length": "max_tokens", "tool_calls": "tool_use"}
    return {"stop_reason": reasons.get(finish_reason or "", "end_turn"), "stop_sequence": None}


class BlockEvents:
    """Sends a stream of blocks, of which one is open at a time."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._open: MessagePart | None = None
        self._index = -1

    async def send(self, kind: str, **fields: Any) -> None:
        await self._context.send_event({"type": kind, **fields}, kind)

    async def add(self, part: MessagePart) -> None:
        """Goes on with the block that is open, or opens another."""
        before = self._open
        if before is None or (before.kind, before.index) != (part.kind, part.index):
            await self.close()
            self._open = part
            self._index += 1
            await self.send(
                "content_block_start", index=self._index, content_block=empty_block(part)
            )
        if part.text:
            await self.send("content_block_delta", index=self._index, delta=block_delta(part))

    async def close(self) -> None:
        if self._open is not None:
            await self.send("content_block_stop", index=self._index)
            self._open = None


def _shown(request: MessagesRequest, part: MessagePart) -> MessagePart:
    """Thoughts that are not shown are still a block."""
    is_shown = part.kind != REASONING or request.shows_thinking
    return part if is_shown else replace(part, text="")


async def _stream(
    context: Context,
    request: MessagesRequest,
    processor: OutputProcessor,
    message: dict[str, Any],
) -> None:
    deltas = await processor.started()
    await context.start_events()
    events = BlockEvents(context)
    await events.send("message_start", message=message)
    end = _stop(None, None)
    async for delta in deltas:
        if delta.finish_reason is not None:
            end = _stop(delta.finish_reason, delta.stop_reason)
        for part in delta.parts:
            await events.add(_shown(request, part))
    if not processor.messages[0].parts:
        await events.add(MessagePart(CONTENT, ""))
    await events.close()
    await events.send("message_delta", delta=end, usage=_usage(processor.generation))
    await events.send("message_stop")
    await context.end_events()


def read_blocks(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """Gives messages in OpenAI's form: results of tools are messages of their own."""
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
    fields = fields_of(where, value)
    role = fields.take_one_of("role", ("user", "assistant", "system"))
    fields.take_any("content")
    fields.refuse_rest()
    message: dict[str, Any] = {"role": role, "content": ""}
    results: list[dict[str, Any]] = []
    for number, part in enumerate(content):
        place = f"{where}.content[{number}]"
        inner = fields_of(place, part)
        kind = part.get("type")
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
    """An answer has a text at least, if only an empty one."""
    return [_block(each) for each in parts] or [{"type": "text", "text": ""}]


def _block(part: MessagePart) -> dict[str, Any]:
    value = arguments_of(part.text) if part.kind == CALL else part.text
    return {**empty_block(part), _CONTENTS[part.kind]: value}


# By a block's kind: the member with its content, and its deltas' type and member.
_CONTENTS = {CALL: "input", REASONING: "thinking", CONTENT: "text"}
_DELTAS = {
    CALL: ("input_json_delta", "partial_json"),
    REASONING: ("thinking_delta", "thinking"),
    CONTENT: ("text_delta", "text"),
}


def empty_block(part: MessagePart) -> dict[str, Any]:
    """Gives a block as a stream's first event of it has it."""
    if part.kind == CALL:
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}
    if part.kind == REASONING:
        return {"type": "thinking", "thinking": "", "signature": ""}
    assert part.kind == CONTENT
    return {"type": "text", "text": ""}


def block_delta(part: MessagePart) -> dict[str, Any]:
    kind, name = _DELTAS[part.kind]
    return {"type": kind, name: part.text}
