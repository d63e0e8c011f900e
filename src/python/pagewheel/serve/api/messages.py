"""/v1/messages and its count_tokens, as Anthropic's clients ask."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import Any

from pagewheel.serve.api.conversation import text_of
from pagewheel.serve.api.generating import (
    MAX_TOKENS,
    Conversation,
    PromptSuffix,
    SamplingRequest,
    check_open,
    generating,
    prompt_of,
    read_sampling,
)
from pagewheel.serve.api.message_blocks import block_delta, blocks_of, empty_block, read_blocks
from pagewheel.serve.api.output_processor import CONTENT, REASONING, MessagePart, OutputProcessor
from pagewheel.serve.api.response_format import ResponseFormat, take_output_format
from pagewheel.serve.api.sampling import limited_tokens
from pagewheel.serve.api.tools import take_message_tools
from pagewheel.serve.http.errors import bad_field
from pagewheel.serve.http.fields import Fields
from pagewheel.serve.http.request_context import RequestContext
from pagewheel.serve.models.generation import Generation


@dataclass
class MessagesRequest:
    """A request's fields."""

    model: str | None
    conversation: Conversation
    sampling: SamplingRequest
    stream: bool
    shows_thinking: bool


async def create_message(context: RequestContext) -> None:
    """Answers in one piece or as events."""
    body = await context.read_body()
    request = await context.made_of_body(lambda: _read(context, Fields(body)))
    await context.while_connected(_answer(context, request))


def _read(context: RequestContext, fields: Fields) -> MessagesRequest:
    limits = context.service.settings.limits
    model = fields.take("model", str)
    conversation = _conversation(fields)
    shows_thinking = _take_thinking(fields, conversation)
    count = fields.need("max_tokens", int)
    if not 1 <= count <= MAX_TOKENS:
        raise bad_field("max_tokens", f"is {count}; allowed: 1 to {MAX_TOKENS}")
    stop = fields.take("stop_sequences", list) or []
    sampling = read_sampling(context, fields)
    sampling.response_format = _take_output(fields, conversation)
    sampling.tools = conversation.tools
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


async def count_tokens(context: RequestContext) -> None:
    """Of the prompt that the conversation is."""
    body = await context.read_body()
    model, conversation = await context.made_of_body(lambda: _read_counted(Fields(body)))

    async def answer() -> None:
        async with context.service.registry.use(model) as engine:
            prompt = await prompt_of(context, engine, conversation)
            await context.send_json({"input_tokens": len(prompt.tokens)})

    await context.while_connected(answer())


def _read_counted(fields: Fields) -> tuple[str | None, Conversation]:
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
    """`output_config`: its effort is for the chat template, as reasoning_effort is."""
    inner = Fields(fields.take("output_config", dict) or {}, "output_config.")
    effort = inner.take("effort", str)
    if effort is not None:
        conversation.template_kwargs["reasoning_effort"] = effort
    response_format = take_output_format(fields, inner)
    inner.refuse_rest()
    return response_format


def _take_thinking(fields: Fields, conversation: Conversation) -> bool:
    """Tells templates of models that may think. Returns whether thoughts are shown."""
    thinking = fields.take("thinking", dict)
    if thinking is None:
        return True
    inner = Fields(thinking, "thinking.")
    kind = inner.take_one_of("type", ("enabled", "disabled", "adaptive"))
    inner.take_int("budget_tokens", 1, MAX_TOKENS, 1)  # max_tokens bounds it with the answer
    display = inner.take_one_of("display", (None, "summarized", "omitted"))
    inner.refuse_rest()
    if kind != "adaptive":
        conversation.template_kwargs["enable_thinking"] = kind == "enabled"
    return display != "omitted"


def _refuse_unsupported(fields: Fields) -> None:
    for name in ("mcp_servers", "container"):
        if fields.take_any(name):
            raise bad_field(name, "is not supported", "unsupported_value")


async def _answer(context: RequestContext, request: MessagesRequest) -> None:
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
            content = blocks_of([_shown(request, each) for each in processor.texts[0].parts])
            end = {**_stop(output.finish_reason, output.stop_reason), "usage": _usage(generation)}
            whole = {**message, "content": content, **end}
            await context.send_made(lambda: whole, generation.num_generated)


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
    """A stream of blocks, of which one is open at a time."""

    def __init__(self, context: RequestContext) -> None:
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
    context: RequestContext,
    request: MessagesRequest,
    processor: OutputProcessor,
    message: dict[str, Any],
) -> None:
    deltas = await processor.begun()
    await context.start_events()
    events = BlockEvents(context)
    await events.send("message_start", message=message)
    end = _stop(None, None)
    async for delta, parts in deltas:
        if delta.finish_reason is not None:
            end = _stop(delta.finish_reason, delta.stop_reason)
        for part in parts:
            await events.add(_shown(request, part))
    if not processor.texts[0].parts:
        await events.add(MessagePart(CONTENT, ""))
    await events.close()
    await events.send("message_delta", delta=end, usage=_usage(processor.generation))
    await events.send("message_stop")
    await context.end_events()
