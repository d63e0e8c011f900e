"""/v1/chat/completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pagewheel.serve.api import openai_choices as openai
from pagewheel.serve.api.conversation import read_messages, take_template_kwargs
from pagewheel.serve.api.generating import (
    Conversation,
    generating,
    prompt_of,
    take_most_tokens,
    take_overflow,
    take_prompt_suffix,
)
from pagewheel.serve.api.output_processor import (
    CALL,
    CONTENT,
    REASONING,
    ChoiceMessage,
    MessagePart,
    OutputProcessor,
)
from pagewheel.serve.api.sampling_request import SamplingRequest, limited_tokens, take_max_tokens
from pagewheel.serve.api.service import Context
from pagewheel.serve.api.tools import take_tools
from pagewheel.serve.http.body import Fields
from pagewheel.serve.http.errors import bad_field
from pagewheel.serve.http.request_context import offload
from pagewheel.serve.models.engine import Engine
from pagewheel.serve.models.generation import CompletionOutput, OutputDelta

# OpenAI's `store` keeps what its own pages show.
_HINTS: dict[str, type] = {
    "store": bool,
    "chat_id": str,
    "cache_prompt": bool,
}


@dataclass
class ChatRequest:
    request: openai.OpenAIRequest
    conversation: Conversation


def read(context: Context, fields: Fields) -> ChatRequest:
    messages = read_messages("messages", fields.need("messages", list))
    request = openai.read_request(context, fields)
    sampling = request.sampling
    sampling.max_tokens = _max_tokens(context, fields, sampling)
    sampling.with_log_probs = fields.take("logprobs", bool, False)
    sampling.top_log_probs = fields.take_int("top_logprobs", 0, openai.MAX_TOP, 0)
    if sampling.top_log_probs and not sampling.with_log_probs:
        raise bad_field("top_logprobs", "needs logprobs")
    sampling.tools = take_tools(fields)
    template_kwargs = take_template_kwargs(fields)
    with fields.inner("thinking") as thinking:  # Z.ai's and DeepSeek's way to say enable_thinking
        kind = thinking.take_one_of("type", (None, "enabled", "disabled"))
    if kind is not None:
        template_kwargs.setdefault("enable_thinking", kind == "enabled")
    prompt_suffix = take_prompt_suffix(fields, messages)
    most = take_most_tokens(fields)
    sampling.overflow = take_overflow(context, fields)
    _read_others(fields)
    fields.refuse_rest()
    return ChatRequest(
        request,
        Conversation(
            messages, sampling.tools, template_kwargs, prompt_suffix, most, sampling.overflow
        ),
    )


def _max_tokens(context: Context, fields: Fields, sampling: SamplingRequest) -> int | None:
    """`max_tokens` is how max_completion_tokens was called before."""
    found: int | None = None
    name = "max_tokens"
    for each in ("max_tokens", "max_completion_tokens"):
        value = take_max_tokens(fields, each)
        if value is None:
            continue
        if found not in (None, value):
            raise bad_field(each, f"is {value}, and max_tokens is {found}: give one of them")
        found, name = value, each
    return limited_tokens(name, found, context.service.settings.limits, sampling.max_length)


def _read_others(fields: Fields) -> None:
    """Takes hints of several clients that change no answer, and refuses what cannot be served."""
    for name, kind in _HINTS.items():
        fields.take(name, kind)
    fields.take_one_of("verbosity", (None, "low", "medium", "high"))
    if fields.take("modalities", list, ["text"]) != ["text"]:
        raise bad_field("modalities", "allowed: ['text']", "unsupported_value")
    if fields.take_any("audio") is not None:
        raise bad_field("audio", "is not supported", "unsupported_value")


async def answer(context: Context, chat: ChatRequest) -> None:
    request = chat.request
    async with context.service.registry.use(request.model, request.sampling.deadline) as engine:
        prompt = await prompt_of(context, engine, chat.conversation)
        async with generating(context, engine, [prompt], request.sampling) as generation:
            head = {**request.head(engine, "chatcmpl"), "system_fingerprint": None}
            processor = OutputProcessor(engine, generation, prompt.parser)
            if request.stream:
                head["object"] = "chat.completion.chunk"
                if request.with_tokens:
                    head["prompt_token_ids"] = prompt.tokens
                await _stream(
                    engine,
                    request,
                    processor,
                    openai.ChoiceEvents(context, request, head, generation),
                )
                return
            outputs = await processor.read_all()
            choices = [
                openai.with_ids(
                    await _choice(engine, number, text, output, request.sampling), output, request
                )
                for number, (text, output) in enumerate(
                    zip(processor.messages, outputs, strict=True)
                )
            ]
            kind: dict[str, Any] = {"object": "chat.completion"}
            if request.with_tokens:
                kind["prompt_token_ids"] = prompt.tokens
            usage = openai.usage_of(generation, await processor.count_reasoning())
            await context.send_offloaded(
                lambda: {**head, **kind, "choices": choices, "usage": usage},
                generation.num_generated * (1 + request.sampling.top_log_probs),
            )


async def _log_probs(
    engine: Engine, delta: OutputDelta, sampling: SamplingRequest
) -> dict[str, Any] | None:
    if not sampling.with_log_probs:
        return None
    tokens = await openai.log_probs_of(engine, delta, sampling.top_log_probs)
    size = len(tokens) * (1 + sampling.top_log_probs)
    return await offload(lambda: openai.chat_log_probs(tokens), size)


async def _choice(
    engine: Engine,
    number: int,
    text: ChoiceMessage,
    output: CompletionOutput,
    sampling: SamplingRequest,
) -> dict[str, Any]:
    choice = {
        "index": number,
        "message": _message(text),
        "logprobs": await _log_probs(engine, output, sampling),
        "finish_reason": output.finish_reason or "stop",
    }
    return openai.ended(choice, output)


def _message(text: ChoiceMessage) -> dict[str, Any]:
    calls = text.calls()
    content = text.text_of(CONTENT)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": content if content or not calls else None,
        "refusal": None,
    }
    reasoning = text.text_of(REASONING)
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [_call(each) for each in calls]
    return message


def _call(part: MessagePart) -> dict[str, Any]:
    function = {"name": part.name, "arguments": part.text}
    return {"id": part.id, "type": "function", "function": function}


async def _stream(
    engine: Engine,
    request: openai.OpenAIRequest,
    processor: OutputProcessor,
    events: openai.ChoiceEvents,
) -> None:
    sampling = request.sampling
    deltas = await processor.started()
    await events.start()
    for number in range(len(processor.messages)):
        begin = {"role": "assistant", "content": "", "refusal": None}
        await events.send(_event(number, begin))
    async for delta in deltas:
        if delta.parts or (
            (sampling.with_log_probs or request.with_tokens) and (delta.tokens or delta.scored)
        ):
            scores = await _log_probs(engine, delta, sampling)
            event = _event(delta.index, _delta(delta.parts), scores)
            await events.send(openai.with_ids(event, delta, request))
        if delta.finish_reason is not None:
            await events.send(
                openai.ended(_event(delta.index, {}, None, delta.finish_reason), delta)
            )
    await events.end(processor)


def _event(
    number: int, delta: dict[str, Any], scores: Any = None, finish_reason: str | None = None
) -> dict[str, Any]:
    return {"index": number, "delta": delta, "logprobs": scores, "finish_reason": finish_reason}


def _delta(parts: Sequence[MessagePart]) -> dict[str, Any]:
    delta: dict[str, Any] = {}
    names = {CONTENT: "content", REASONING: "reasoning_content"}
    for each in parts:
        if each.kind == CALL:
            function: dict[str, Any] = {"arguments": each.text}
            tool_call: dict[str, Any] = {"index": each.index, "function": function}
            if each.name:
                function["name"] = each.name
                tool_call |= {"id": each.id, "type": "function"}
            delta.setdefault("tool_calls", []).append(tool_call)
        else:
            name = names[each.kind]
            delta[name] = delta.get(name, "") + each.text
    return delta or {"content": ""}
