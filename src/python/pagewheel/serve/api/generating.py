"""From a conversation or a prompt to a running generation, the same for all endpoints."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from pagewheel import StructuredOutputConfig
from pagewheel.context_overflow import CONTEXT_OVERFLOWS, ERROR, EVICT, without_oldest_turns
from pagewheel.serve.api import generic_tools
from pagewheel.serve.api.conversation import check_template_values, text_size
from pagewheel.serve.api.output_processor import ParserConfig
from pagewheel.serve.api.response_format import compiled_grammar
from pagewheel.serve.api.sampling_request import (
    MAX_TOKENS,
    SHORTEST,
    SamplingRequest,
    make_config,
    split_copies,
)
from pagewheel.serve.api.service import Context
from pagewheel.serve.api.tools import Tools
from pagewheel.serve.errors import PROMPT, RequestError, before, unavailable
from pagewheel.serve.http.body import Fields
from pagewheel.serve.http.errors import ApiError, bad_field
from pagewheel.serve.http.request_context import offload
from pagewheel.serve.models.engine import Engine
from pagewheel.serve.models.generation import EngineRequest, Generation
from pagewheel.serve.settings import Limits

_log = logging.getLogger("pagewheel.serve")
_UNLIMITED = 2**64 - 1
_MOST_CUTS = 8  # of a conversation, each by what is estimated to be too much
_ANSWER_SHARE = 4  # of the context, which a conversation that is cut leaves for the answer


class PromptSuffix(Enum):
    NEW_MESSAGE = "the beginning of the assistant's message"
    NOTHING = "the last message"
    OPEN_MESSAGE = "the content of the last message, which the answer continues"


@dataclass
class Conversation:
    messages: list[dict[str, Any]]
    tools: Tools = field(default_factory=Tools)
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    prompt_suffix: PromptSuffix = PromptSuffix.NEW_MESSAGE
    most_tokens: int | None = None  # of the prompt, whose begin is left out
    overflow: str = ERROR  # what becomes of it where the context does not hold it


@dataclass(frozen=True)
class Prompt:
    tokens: list[int]
    parser: ParserConfig = field(default_factory=ParserConfig)


async def prompt_of(context: Context, engine: Engine, conversation: Conversation) -> Prompt:
    """Renders and encodes. Raises ApiError where the template refuses the conversation."""
    if context.service.settings.log_prompts:
        said = (f"{each['role']}: {each['content']}" for each in conversation.messages)
        context.notes["prompt"] = "\n".join(said)
    tools = conversation.tools

    def work() -> Prompt:
        template_kwargs, messages = conversation.template_kwargs, conversation.messages
        check_template_values(
            tools=tools.given, chat_template_kwargs=template_kwargs, messages=messages
        )
        try:
            if tools.offered and not engine.writes_calls:
                context.headers_beside["x-tool-format"] = "generic"
                return _prompt_with_generic_tools(context, engine, conversation)
            text, tokens = _fitted(context, engine, conversation)
        except ValueError as error:  # of a well-formed conversation
            message = str(error)[:1000]
            code = "chat_template_refused"
            raise ApiError(422, message, param="messages", code=code) from None
        return Prompt(tokens, parser_config_of(engine, tools, text))

    size = await offload(
        lambda: text_size(conversation.messages, tools.offered, conversation.template_kwargs),
        max(context.body_entries, len(conversation.messages)),  # of earlier requests, too
    )
    try:
        return await engine.with_text(context.api_key_id, size, work)
    except RuntimeError as error:
        if not engine.chat_template:
            raise ApiError(400, str(error), param="messages", code="no_chat_template") from None
        _log.error("chat template not rendered", extra={"error": str(error)})
        raise unavailable("the chat template cannot be rendered now", "template_failed") from None


def _prompt_with_generic_tools(
    context: Context, engine: Engine, conversation: Conversation
) -> Prompt:
    """Raises ValueError where the template refuses the conversation."""
    tools = conversation.tools
    told = generic_tools.instructions(tools.given)
    given = conversation.messages

    def fitted(has_system_role: bool) -> tuple[str, list[int]]:
        plain = generic_tools.in_plain_messages(given, told, has_system_role=has_system_role)
        return _fitted(context, engine, replace(conversation, messages=plain, tools=Tools()))

    try:
        text, tokens = fitted(True)
    except ValueError:
        if given[0]["role"] == "system":
            raise
        text, tokens = fitted(False)  # the template may take no system message
    return Prompt(tokens, parser_config_of(engine, tools, text))


def _fitted(context: Context, engine: Engine, conversation: Conversation) -> tuple[str, list[int]]:
    """The text and its tokens; turns that the context does not hold go, if that is asked for."""
    overflow, most = conversation.overflow, conversation.most_tokens
    text = _rendered(engine, conversation)
    if most is not None or overflow == ERROR or engine.max_model_len is None:
        return text, encode_prompt(engine, text, False, most)
    tokens = engine.encode(text, False)
    said = len(conversation.messages)
    room = engine.max_model_len - engine.max_model_len // _ANSWER_SHARE
    if overflow == EVICT and engine.outgrows_context:
        if len(tokens) > room:
            context.headers_beside["x-context-overflow"] = "evicted"
        return text, tokens
    for _ in range(_MOST_CUTS):
        if len(tokens) <= room:
            break
        sizes = [len(engine.encode(each["content"], False)) for each in conversation.messages]
        of_template = max(0, len(tokens) - sum(sizes)) // len(sizes)  # around each message
        messages = without_oldest_turns(
            conversation.messages, [size + of_template for size in sizes], len(tokens) - room, room
        )
        if len(messages) == len(conversation.messages):
            break  # its last turn alone is too long
        conversation.messages = [dict(each) for each in messages]
        text = _rendered(engine, conversation)
        tokens = engine.encode(text, False)
        left_out = said - len(conversation.messages)
        context.headers_beside["x-context-overflow"] = f"truncated; messages={left_out}"
    return text, tokens


def _rendered(engine: Engine, conversation: Conversation) -> str:
    given = (conversation.messages, conversation.tools.offered, conversation.template_kwargs)
    if conversation.prompt_suffix is PromptSuffix.OPEN_MESSAGE:
        return engine.render_open(*given)
    return engine.render(*given, conversation.prompt_suffix is PromptSuffix.NEW_MESSAGE)


def take_prompt_suffix(fields: Fields, messages: Sequence[dict[str, Any]]) -> PromptSuffix:
    """Takes vLLM's `add_generation_prompt` and `continue_final_message`."""
    begins = fields.take("add_generation_prompt", bool)
    if not fields.take("continue_final_message", bool, False):
        return PromptSuffix.NOTHING if begins is False else PromptSuffix.NEW_MESSAGE
    if begins:
        raise bad_field("continue_final_message", "needs add_generation_prompt to be false")
    check_open(messages, "continue_final_message")
    return PromptSuffix.OPEN_MESSAGE


def check_open(messages: Sequence[dict[str, Any]], field: str) -> None:
    """Raises ApiError where the last message cannot be continued."""
    last = messages[-1]
    if last["role"] != "assistant" or last.get("tool_calls") or not last["content"]:
        raise bad_field(field, "the last message must be a text of the assistant, to continue it")


def take_overflow(context: Context, fields: Fields, truncation: str = "") -> str:
    """Takes `context_overflow`: what becomes of a conversation that is too long.

    `truncation`: what another field of the API says of it.
    """
    default = truncation or context.service.settings.context_overflow
    return str(fields.take_one_of("context_overflow", CONTEXT_OVERFLOWS, default))


def take_most_tokens(fields: Fields) -> int | None:
    """Takes vLLM's `truncate_prompt_tokens`; -1: as many as the context has."""
    count = fields.take("truncate_prompt_tokens", int)
    if count is not None and count != -1 and not 1 <= count <= MAX_TOKENS:
        raise bad_field("truncate_prompt_tokens", f"is {count}; allowed: -1, and 1 to {MAX_TOKENS}")
    return count


def last_tokens(tokens: list[int], most: int | None, engine: Engine) -> list[int]:
    if most == -1:
        most = engine.max_model_len
    return tokens if most is None else tokens[-most:]


def encode_prompt(
    engine: Engine, text: str, add_special_tokens: bool, most_tokens: int | None = None
) -> list[int]:
    """Gives its tokens, the last `most_tokens` of them if these are asked for (last_tokens()).

    Raises ApiError, without tokenizing, where all are wanted and cannot fit the context.
    """
    most = engine.most_characters
    if most_tokens is None and most is not None and len(text) > most:
        message = (
            f"the prompt has {len(text)} characters: more than the {most} of which all tokens of "
            f"the context ({engine.max_model_len}) could be"
        )
        raise ApiError(400, message, param=PROMPT, code="context_length_exceeded")
    return last_tokens(engine.encode(text, add_special_tokens), most_tokens, engine)


def infill_prompt(engine: Engine, begin: str, end: str) -> Prompt:
    """Lets a model write between two texts. Raises ApiError where the model cannot."""
    marks = engine.infill_tokens
    if marks is None:
        raise bad_field("suffix", "the model has no tokens for infilling", "unsupported_value")
    first, second = (encode_prompt(engine, text, False) for text in (begin, end))
    return Prompt([marks[0], *first, marks[1], *second, marks[2]])


def parser_config_of(engine: Engine, tools: Tools, prompt: str) -> ParserConfig:
    """Without tools nothing is a call, unless the family's markers would be in the text then."""
    family = engine.family
    if tools.offered and not engine.writes_calls:
        family = generic_tools.FAMILY
    if family is None:
        return ParserConfig()
    if not tools.offered and not ParserConfig(family).needs_special_tokens:
        family = "think" if "<think>" in engine.chat_template else None
    return ParserConfig(
        family,
        tools.offered or (),
        starts_in_reasoning=prompt.rstrip().endswith(("<think>", "[THINK]")),
        # A model that was told of the form by words alone goes on to repeat its call.
        stops_after_call=bool(tools.offered) and not (tools.is_parallel and engine.writes_calls),
    )


@asynccontextmanager
async def generating(
    context: Context, engine: Engine, prompts: Sequence[Prompt], sampling: SamplingRequest
) -> AsyncIterator[Generation]:
    """The generation is in the engine until the block is left, however that is."""
    service, parser = context.service, prompts[0].parser
    if engine.always_evicts and engine.outgrows_context and sampling.overflow != EVICT:
        _keep_within_context(engine, prompts, sampling)
    _limit_answer(service.settings.limits, engine, prompts, sampling)
    compiling = compiled_grammar(
        engine, sampling.response_format, sampling.tools, parser, context.api_key_id
    )
    grammar = await before(sampling.deadline, compiling)
    tokens = [each.tokens for each in prompts]
    request = await context.offload_by_body(
        lambda: _engine_request(engine, tokens, sampling, grammar, parser.needs_special_tokens)
    )
    generation = Generation(
        engine,
        request,
        service.metrics.model(engine.name),
        context.queue_quota(),
        context.began,
        tells_cached=not context.tenant.is_shared,
    )
    try:
        await generation.submit()
        yield generation
    except RequestError:
        generation.fail()
        raise
    finally:
        generation.drop()
        context.notes |= {
            "model": engine.name,
            "prompt_tokens": generation.num_prompt_tokens,
            "completion_tokens": generation.num_generated,
        }
        times = generation.times()
        if times.queue is not None:
            context.notes["queue"] = round(times.queue, 4)
        if times.first_token is not None:
            context.notes["first_token"] = round(times.first_token, 4)
        if context.trace is not None:
            usage = {
                "input_tokens": generation.num_prompt_tokens,
                "output_tokens": generation.num_generated,
            }
            context.trace.generated(engine.name, times, usage)


def _keep_within_context(
    engine: Engine, prompts: Sequence[Prompt], sampling: SamplingRequest
) -> None:
    """The engine would go on beyond the context, which this request has not asked for."""
    context = engine.max_model_len
    if context is None:
        return
    longest = max(len(each.tokens) for each in prompts)
    least = 0 if sampling.max_tokens == 0 else 1
    if longest + least > context:
        message = f"the prompt has {longest} tokens; the model's context holds {context}"
        raise ApiError(400, message, param=PROMPT, code="context_length_exceeded")
    if sampling.max_tokens is not None:
        sampling.max_tokens = min(sampling.max_tokens, context - longest)


def _limit_answer(
    limits: Limits, engine: Engine, prompts: Sequence[Prompt], sampling: SamplingRequest
) -> None:
    """Raises ApiError where an answer could be too large to be held in memory."""
    most = limits.answer_entries
    choices = len(prompts) * sampling.choices
    prompt = min(len(each.tokens) for each in prompts)
    bounds = [
        sampling.max_tokens,
        None if sampling.max_length is None else sampling.max_length - prompt,
        None if engine.max_model_len is None else engine.max_model_len - prompt,
    ]
    tokens = max(0, min((each for each in bounds if each is not None), default=MAX_TOKENS))
    if sampling.with_prompt_log_probs:
        tokens += max(len(each.tokens) for each in prompts)
    if not most or choices * tokens * (1 + sampling.top_log_probs) <= most:
        return
    counted = "n" if choices > 1 else "max_tokens"
    raise bad_field(
        sampling.top_field if sampling.top_log_probs else counted,
        f"{choices} choices of up to {tokens} tokens with {sampling.top_log_probs} likely ones "
        f"each are more than {most} entries; ask for fewer, or set max_tokens",
    )


def _engine_request(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    sampling: SamplingRequest,
    grammar: StructuredOutputConfig | None,
    with_special_tokens: bool,
) -> EngineRequest:
    most = sampling.max_tokens
    evicts = sampling.overflow == EVICT
    if most is None and evicts and engine.outgrows_context:
        most = engine.max_model_len  # the engine asks for an end where the context is none
    settings = {
        "cache_eviction": evicts or engine.always_evicts,
        "max_new_tokens": _UNLIMITED if most is None else most,
        "num_return_sequences": sampling.choices,
        "timeout": max(SHORTEST, sampling.deadline - time.monotonic()),
        "logprobs": max(int(sampling.with_log_probs or sampling.is_ranked), sampling.top_log_probs),
        "echo": sampling.with_prompt_log_probs,
        "skip_special_tokens": not with_special_tokens,
        "structured_output_config": grammar,
    }
    config = make_config(engine.config(), sampling.given, settings)
    copies = split_copies(config)
    return EngineRequest(prompts, config, copies, tuple(sampling.given.get("stop_token_ids", ())))
