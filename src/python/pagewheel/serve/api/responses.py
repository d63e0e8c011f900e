"""/v1/responses: texts and calls, and conversations that the server remembers."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from functools import partial
from typing import Any

from pagewheel.context_overflow import ERROR, TRUNCATE
from pagewheel.serve.api import openai_choices as openai
from pagewheel.serve.api.conversation import take_template_kwargs
from pagewheel.serve.api.generating import (
    Conversation,
    generating,
    prompt_of,
    take_overflow,
)
from pagewheel.serve.api.output_processor import CONTENT, OutputDeltas, OutputProcessor
from pagewheel.serve.api.response_format import take_text_format
from pagewheel.serve.api.response_items import ItemEvents, items_of, read_input, said_again
from pagewheel.serve.api.response_store import StoredResponse, packed
from pagewheel.serve.api.sampling_request import (
    SamplingRequest,
    limited_tokens,
    read_hints,
    read_sampling,
    take_max_tokens,
    take_metadata,
)
from pagewheel.serve.api.service import Context
from pagewheel.serve.api.tools import Tools, take_response_tools
from pagewheel.serve.http.body import Fields, shown
from pagewheel.serve.http.errors import ApiError, bad_field
from pagewheel.serve.http.request_context import offload
from pagewheel.serve.models.engine import Engine
from pagewheel.serve.models.generation import CompletionOutput, Generation

# Of `include`. There is nothing encrypted: reasoning is in the items themselves.
_TRUNCATION = {None: "", "auto": TRUNCATE, "disabled": ERROR}
_LOG_PROBS, _ENCRYPTED = "message.output_text.logprobs", "reasoning.encrypted_content"


@dataclass
class ResponsesRequest:
    """`messages` are its own, without the instructions."""

    model: str | None
    messages: list[dict[str, Any]]
    conversation: Conversation
    sampling: SamplingRequest
    stream: bool
    store: bool
    echoed: dict[str, Any]  # what the response repeats of the request
    before: StoredResponse | None = None  # the response that it goes on with

    def continue_after(self, before: StoredResponse, earlier: list[dict[str, Any]]) -> None:
        self.before = before
        begin = len(self.conversation.messages) - len(self.messages)  # behind the instructions
        self.conversation.messages[begin:begin] = earlier


async def create_response(context: Context) -> None:
    fields = Fields(await context.read_body())
    previous = fields.take("previous_response_id", str)
    before = _remembered(context, previous)
    request = await context.offload_by_body(lambda: _read(context, fields, previous))
    if before is not None:
        request.continue_after(before, await before.messages())
    await context.while_connected(_answer(context, request))


async def show_response(context: Context) -> None:
    name = context.request.path_params["name"]
    found = context.service.responses.get(context.api_key_id, name)
    if found is None:
        raise _not_found(name)
    await context.send_bytes(found.response_json, "application/json")


async def delete_response(context: Context) -> None:
    name = context.request.path_params["name"]
    if not context.service.responses.delete(context.api_key_id, name):
        raise _not_found(name)
    await context.send_json({"id": name, "object": "response", "deleted": True})


def _not_found(name: str) -> ApiError:
    return ApiError(404, f"there is no response {name[:80]!r}", code="response_not_found")


def _read(context: Context, fields: Fields, previous: str | None) -> ResponsesRequest:
    """What the response `previous` has comes later."""
    limits = context.service.settings.limits
    model = fields.take("model", str)
    instructions = fields.take("instructions", str)
    messages = read_input(fields)
    sampling = read_sampling(context, fields)
    count = take_max_tokens(fields, "max_output_tokens")
    sampling.max_tokens = limited_tokens("max_output_tokens", count, limits, sampling.max_length)
    sampling.tools = take_response_tools(fields)
    store = fields.take("store", bool, True)
    stream = fields.take("stream", bool, False)
    truncation = fields.take_one_of("truncation", tuple(_TRUNCATION))
    sampling.overflow = take_overflow(context, fields, _TRUNCATION[truncation])
    echoed: dict[str, Any] = {
        "instructions": instructions,
        "max_output_tokens": count,
        "metadata": take_metadata(fields),
        "previous_response_id": previous,
        "store": store,
        "temperature": sampling.given.get("temperature"),
        "top_p": sampling.given.get("top_p"),
        **_echoed_tools(sampling.tools),
        "text": _take_text(fields, sampling),
        "truncation": truncation or "disabled",
        "background": False,
        "reasoning": _take_reasoning(fields),
        "max_tool_calls": _take_max_tool_calls(fields),
        "top_logprobs": _take_log_probs(fields, sampling),
        **read_hints(fields),
    }
    _read_others(fields, stream)
    template_kwargs = take_template_kwargs(fields)
    if echoed["reasoning"]["effort"] is not None:
        template_kwargs["reasoning_effort"] = echoed["reasoning"]["effort"]
    fields.refuse_rest()
    begin = [] if instructions is None else [{"role": "system", "content": instructions}]
    conversation = Conversation(begin + messages, sampling.tools, template_kwargs)
    conversation.overflow = sampling.overflow
    return ResponsesRequest(model, messages, conversation, sampling, stream, store, echoed)


def _echoed_tools(tools: Tools) -> dict[str, Any]:
    choice: Any = tools.choice
    if tools.name is not None:
        choice = {"type": "function", "name": tools.name}
    flat = [
        {"type": "function", "parameters": None, "strict": False, **each["function"]}
        for each in tools.given
    ]
    return {"tools": flat, "tool_choice": choice, "parallel_tool_calls": tools.is_parallel}


def _take_text(fields: Fields, sampling: SamplingRequest) -> dict[str, Any]:
    """Sets the response format. Returns what the response repeats."""
    with fields.inner("text") as inner:
        given = inner.values.get("format")
        inner.take_one_of("verbosity", (None, "medium"))
        sampling.response_format = take_text_format(fields, inner)
    return {"format": given or {"type": "text"}}


def _take_reasoning(fields: Fields) -> dict[str, Any]:
    """What the response repeats. The effort is for the chat template, as reasoning_effort is.

    A summary may be asked for; none is made, what the model thinks is there itself.
    """
    kinds = (None, "auto", "concise", "detailed")
    with fields.inner("reasoning") as inner:
        effort = inner.take("effort", str)
        summary = inner.take_one_of("summary", kinds)
        older = inner.take_one_of("generate_summary", kinds)  # its name before
    return {"effort": effort, "summary": summary or older}


def _take_max_tool_calls(fields: Fields) -> int | None:
    """It bounds calls of tools that a server runs: here are none."""
    count = fields.take("max_tool_calls", int)
    if count is not None and count < 1:
        raise bad_field("max_tool_calls", f"is {count}; allowed: 1 or more")
    return count


def _take_log_probs(fields: Fields, sampling: SamplingRequest) -> int:
    """Gives how many likely tokens are told beside each."""
    sampling.top_log_probs = fields.take_int("top_logprobs", 0, openai.MAX_TOP, 0)
    included = fields.take("include", list) or []
    for number, each in enumerate(included):
        if each not in (_LOG_PROBS, _ENCRYPTED):
            raise bad_field(
                f"include[{number}]",
                f"is {shown(each)}; allowed: {_LOG_PROBS!r}, {_ENCRYPTED!r}",
                "unsupported_value",
            )
    sampling.with_log_probs = _LOG_PROBS in included or sampling.top_log_probs > 0
    return sampling.top_log_probs


def _remembered(context: Context, previous: str | None) -> StoredResponse | None:
    if previous is None:
        return None
    found = context.service.responses.get(context.api_key_id, previous)
    if found is None:
        raise ApiError(
            404,
            f"there is no response {previous[:80]!r}: it was not stored, or had to make room",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    return found


def _read_others(fields: Fields, stream: bool) -> None:
    """Refuses values that cannot be served."""
    fields.take_one_of("background", (None, False))
    with fields.inner("stream_options") as inner:
        if inner.is_given and not stream:
            raise bad_field("stream_options", "needs stream")
        inner.take_one_of("include_obfuscation", (None, False))


async def _answer(context: Context, request: ResponsesRequest) -> None:
    context.prompt_field = "input"
    async with context.service.registry.use(request.model, request.sampling.deadline) as engine:
        prompt = await prompt_of(context, engine, request.conversation)
        async with generating(context, engine, [prompt], request.sampling) as generation:
            response = {
                "id": f"resp_{context.service.tag}{uuid.uuid4().hex}",
                "object": "response",
                "created_at": int(time.time()),
                "status": "in_progress",
                "model": request.model or engine.name,
                "output": [],
                "error": None,
                "incomplete_details": None,
                "usage": None,
                **request.echoed,
            }
            processor = OutputProcessor(engine, generation, prompt.parser)
            if request.stream:
                deltas = _scored(engine, request.sampling, processor, await processor.started())
                await _stream(context, request, processor, deltas, response)
                return
            if request.sampling.with_log_probs:  # step by step: of which text tokens are
                output = CompletionOutput()
                deltas = _scored(engine, request.sampling, processor, await processor.started())
                async for delta in deltas:
                    output.add(delta)
            else:
                (output,) = await processor.read_all()
            items = items_of(processor.messages[0].parts, _status(output.finish_reason))
            num_reasoning = await processor.count_reasoning()
            whole = _completed(response, items, output.finish_reason, generation, num_reasoning)
            size = _size(context, request, generation)
            await _store(context, request, whole, size)
            await context.send_offloaded(lambda: whole, size)


def _size(context: Context, request: ResponsesRequest, generation: Generation) -> int:
    """A response has the entries of its answer and of the request, which it repeats."""
    return context.body_entries + generation.num_generated * (1 + request.sampling.top_log_probs)


async def _store(
    context: Context, request: ResponsesRequest, response: dict[str, Any], size: int
) -> None:
    if request.store:
        new = await offload(lambda: [*request.messages, *said_again(response["output"])], size)
        stored = await packed(context.api_key_id, response, new, request.before)
        context.service.responses.put(response["id"], stored)


def _status(finish_reason: str | None) -> str:
    return "incomplete" if finish_reason == "length" else "completed"


def _completed(
    response: dict[str, Any],
    items: list[dict[str, Any]],
    finish_reason: str | None,
    generation: Generation,
    num_reasoning: int,
) -> dict[str, Any]:
    prompt, generated = generation.num_prompt_tokens, generation.num_generated
    is_cut = finish_reason == "length"
    return {
        **response,
        "status": _status(finish_reason),
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "output": items,
        "usage": {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": generation.num_cached_tokens},
            "output_tokens": generated,
            "output_tokens_details": {"reasoning_tokens": num_reasoning},
            "total_tokens": prompt + generated,
        },
    }


async def _scored(
    engine: Engine, sampling: SamplingRequest, processor: OutputProcessor, deltas: OutputDeltas
) -> OutputDeltas:
    """Puts log-probabilities to the parts of content that they belong to."""
    waiting: list[dict[str, Any]] = []  # of tokens whose text has not come
    async for delta in deltas:
        if sampling.with_log_probs:
            tokens = await openai.log_probs_of(engine, delta, sampling.top_log_probs)
            if delta.has_stop_token:
                tokens = tokens[:-1]  # it has no text
            waiting += openai.chat_log_probs(tokens)["content"]
        for part in delta.parts:
            if part.kind == CONTENT:
                part.scores = waiting if len(delta.parts) == 1 else _last_of(waiting, part.text)
                said = [each for each in processor.messages[0].parts if each.kind == CONTENT]
                said[-1].scores += part.scores
        if delta.parts:
            waiting = []
        yield delta


def _last_of(scores: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """Gives as many as make the text: others are of a thought or a call in the same step."""
    size = 0
    for number in range(len(scores) - 1, -1, -1):
        size += len(scores[number]["token"])
        if size >= len(text):
            return scores[number:]
    return scores


async def _stream(
    context: Context,
    request: ResponsesRequest,
    processor: OutputProcessor,
    deltas: OutputDeltas,
    response: dict[str, Any],
) -> None:
    events = ItemEvents(context)
    context.fail_stream = partial(events.fail, response)
    await context.start_events()
    for kind in ("response.created", "response.in_progress"):
        await events.send(kind, context.body_entries, response=response)
    finish_reason = None
    async for delta in deltas:
        finish_reason = delta.finish_reason or finish_reason
        for part in delta.parts:
            await events.add(part)
    items = await events.close(_status(finish_reason))
    num_reasoning = await processor.count_reasoning()
    whole = _completed(response, items, finish_reason, processor.generation, num_reasoning)
    size = _size(context, request, processor.generation)
    await _store(context, request, whole, size)
    await events.send(f"response.{whole['status']}", size, response=whole)
    await context.end_events()
