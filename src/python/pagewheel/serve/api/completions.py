"""/v1/completions: texts and token ids, as they are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pagewheel.serve.api import openai_choices as openai
from pagewheel.serve.api.generating import (
    Prompt,
    encode_prompt,
    generating,
    last_tokens,
    take_most_tokens,
)
from pagewheel.serve.api.output_processor import OutputDeltas, OutputProcessor, ParserConfig
from pagewheel.serve.api.sampling_request import SamplingRequest, limited_tokens, take_max_tokens
from pagewheel.serve.api.service import Context
from pagewheel.serve.http.body import Fields, shown
from pagewheel.serve.http.errors import bad_field
from pagewheel.serve.http.request_context import offload
from pagewheel.serve.models.engine import Engine
from pagewheel.serve.models.generation import CompletionOutput, Generation, OutputDelta
from pagewheel.serve.settings import Limits

_DEFAULT_TOKENS = 16
_MAX_PROMPTS = 128


@dataclass
class CompletionRequest:
    """Each prompt is a text or token ids."""

    request: openai.OpenAIRequest
    prompts: Sequence[str | list[int]]
    echo: bool
    add_special_tokens: bool
    most_tokens: int | None  # of each prompt, whose begin is left out


async def completions(context: Context) -> None:
    body = await context.read_body()
    request = await context.offload_by_body(lambda: _read(context, Fields(body)))
    await context.while_connected(_answer(context, request))


def _read(context: Context, fields: Fields) -> CompletionRequest:
    limits = context.service.settings.limits
    prompts = read_prompts(fields)
    request = openai.read_request(context, fields)
    sampling = request.sampling
    if len(prompts) * sampling.choices > limits.max_choices:
        raise bad_field(
            "n", f"times {len(prompts)} prompts is more than {limits.max_choices} choices"
        )
    sampling.max_tokens = _max_tokens(fields, sampling, limits)
    echo = fields.take("echo", bool, False)
    if sampling.max_tokens == 0 and not echo:
        raise bad_field("max_tokens", "is 0; allowed: 1 or more, with echo 0 too")
    top = fields.take_int("logprobs", -1, openai.MAX_TOP, -1)
    sampling.with_log_probs = top >= 0
    sampling.top_log_probs, sampling.top_field = max(0, top), "logprobs"
    sampling.with_prompt_log_probs = echo and (sampling.with_log_probs or sampling.max_tokens == 0)
    special = fields.take("add_special_tokens", bool, True)
    fields.take_one_of("best_of", (None, sampling.choices))
    if fields.take("suffix", str, ""):
        raise bad_field("suffix", "is not supported", "unsupported_value")
    most = take_most_tokens(fields)
    fields.refuse_rest()
    return CompletionRequest(request, prompts, echo, special, most)


def _max_tokens(fields: Fields, sampling: SamplingRequest, limits: Limits) -> int | None:
    """There is a default, unless max_length says how long a choice may be."""
    count = take_max_tokens(fields, "max_tokens", 0)
    if count is None and sampling.max_length is None:
        return min(_DEFAULT_TOKENS, limits.max_tokens or _DEFAULT_TOKENS)
    return limited_tokens("max_tokens", count, limits, sampling.max_length)


def read_prompts(fields: Fields, field: str = "prompt") -> list[str | list[int]]:
    """Takes a text, token ids, or a list of either."""
    value = fields.take_any(field)
    name = fields.name(field)
    if value is None:
        raise bad_field(name, "is required", "missing_required_parameter")
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        raise bad_field(name, f"must be a text, token ids or a list of them, got {shown(value)}")
    if _are_tokens(value):
        return [value]
    if len(value) > _MAX_PROMPTS:
        raise bad_field(name, f"has {len(value)} prompts; allowed: {_MAX_PROMPTS}")
    for number, each in enumerate(value):
        if not isinstance(each, str) and not (isinstance(each, list) and _are_tokens(each)):
            raise bad_field(f"{name}[{number}]", f"must be a text or token ids, got {shown(each)}")
    return value


def _are_tokens(values: list[Any]) -> bool:
    return bool(values) and all(type(each) is int and 0 <= each < 2**31 for each in values)


async def _answer(context: Context, completion: CompletionRequest) -> None:
    request = completion.request
    context.prompt_field = "prompt"
    async with context.service.registry.use(request.model, request.sampling.deadline) as engine:
        if context.service.settings.log_prompts:
            context.notes["prompt"] = completion.prompts
        size = sum(len(each) for each in completion.prompts if isinstance(each, str))
        prompts = await engine.with_text(
            context.api_key_id, size, lambda: _encoded(engine, completion)
        )
        async with generating(context, engine, prompts, request.sampling) as generation:
            head = {**request.head(engine, "cmpl"), "object": "text_completion"}
            echoed = await _echoed(engine, completion, prompts)
            processor = OutputProcessor(engine, generation, ParserConfig())
            if request.stream:
                events = openai.ChoiceEvents(context, request, head, generation)
                await _stream(engine, request, processor, events, echoed)
                return
            outputs = await processor.read_all()
            choices = [
                _with_all_ids(
                    await _whole_choice(
                        engine,
                        request.sampling,
                        generation,
                        number,
                        echoed[number],
                        output,
                        outputs[_first_of_request(generation, number)],
                    ),
                    generation,
                    output,
                    request,
                )
                for number, output in enumerate(outputs)
            ]
            await context.send_offloaded(
                lambda: {**head, "choices": choices, "usage": openai.usage_of(generation)},
                generation.num_generated * (1 + request.sampling.top_log_probs),
            )


def _encoded(engine: Engine, completion: CompletionRequest) -> list[Prompt]:
    special = completion.add_special_tokens
    most = completion.most_tokens
    encoded = [
        encode_prompt(engine, prompt, special, most) if isinstance(prompt, str) else prompt
        for prompt in completion.prompts
    ]
    return [Prompt(last_tokens(tokens, most, engine)) for tokens in encoded]


async def _echoed(
    engine: Engine, completion: CompletionRequest, prompts: Sequence[Prompt]
) -> list[str]:
    """Gives what stands before each choice."""
    choices = completion.request.sampling.choices
    if not completion.echo:
        return [""] * len(prompts) * choices
    texts = [
        given
        if isinstance(given, str) and completion.most_tokens is None
        else await engine.in_thread(engine.decode, prompt.tokens)
        for given, prompt in zip(completion.prompts, prompts, strict=True)
    ]
    return [text for text in texts for _ in range(choices)]


def _first_of_request(generation: Generation, number: int) -> int:
    """Gives the choice with which the prompt's log-probabilities come."""
    return number - number % generation.request.sequences


async def _whole_choice(
    engine: Engine,
    sampling: SamplingRequest,
    generation: Generation,
    number: int,
    echoed: str,
    output: CompletionOutput,
    first: CompletionOutput,
) -> dict[str, Any]:
    scores = None
    if sampling.with_log_probs:
        tokens = await _prompt_log_probs(engine, sampling, generation, number, first)
        tokens += await openai.log_probs_of(engine, output, sampling.top_log_probs)
        scores = await offload(
            lambda: openai.completion_log_probs(
                tokens, openai.TextOffsets().of(tokens), sampling.top_log_probs > 0
            ),
            len(tokens) * (1 + sampling.top_log_probs),
        )
    return _choice(number, echoed + output.text, scores, output)


async def _prompt_log_probs(
    engine: Engine,
    sampling: SamplingRequest,
    generation: Generation,
    number: int,
    first: OutputDelta,
) -> list[openai.TokenLogProb]:
    """Gives those of the prompt's tokens, which came with `first`, where they are echoed."""
    if not sampling.with_prompt_log_probs:
        return []
    names = await engine.tokens_by_id()
    prompt = generation.request.prompts[number // sampling.choices]
    scores = [None, *first.prompt_log_probs]
    likely = [[], *first.prompt_top_log_probs]
    top = sampling.top_log_probs
    return await offload(
        lambda: openai.of_tokens(names, prompt, scores, likely, top), len(prompt) * (1 + top)
    )


def _choice(number: int, text: str, scores: Any, delta: OutputDelta) -> dict[str, Any]:
    choice = {
        "index": number,
        "text": text,
        "logprobs": scores,
        "finish_reason": delta.finish_reason,
    }
    return openai.ended(choice, delta)


def _with_all_ids(
    choice: dict[str, Any],
    generation: Generation,
    delta: OutputDelta,
    request: openai.OpenAIRequest,
) -> dict[str, Any]:
    """The choice, with the ids of its prompt too."""
    if not request.with_tokens:
        return choice
    prompt = generation.request.prompts[choice["index"] // request.sampling.choices]
    return {**openai.with_ids(choice, delta, request), "prompt_token_ids": prompt}


async def _with_first_deltas(
    deltas: OutputDeltas, generation: Generation
) -> AsyncIterator[tuple[OutputDelta, OutputDelta]]:
    """Gives each delta with the first one of its request, which does not come before that one."""
    firsts: dict[int, OutputDelta] = {}
    held: dict[int, list[OutputDelta]] = {}
    async for delta in deltas:
        number = _first_of_request(generation, delta.index)
        if delta.index == number:
            firsts.setdefault(number, delta)
        held.setdefault(number, []).append(delta)
        if number in firsts:
            for each in held.pop(number):
                yield each, firsts[number]


async def _stream(
    engine: Engine,
    request: openai.OpenAIRequest,
    processor: OutputProcessor,
    events: openai.ChoiceEvents,
    echoed: Sequence[str],
) -> None:
    generation, sampling = processor.generation, request.sampling
    before = list(echoed)  # of a choice that has not begun
    has_begun = [False] * len(echoed)
    offsets = [openai.TextOffsets() for _ in echoed]
    deltas = await processor.started()
    await events.start()
    async for delta, first in _with_first_deltas(deltas, generation):
        number = delta.index
        text = before[number] + delta.text
        with_tokens = sampling.with_log_probs or request.with_tokens
        if not (text or delta.finish_reason or (with_tokens and (delta.tokens or delta.scored))):
            continue  # half of a character is held back: no text came
        scores, size = None, 0
        if sampling.with_log_probs:
            tokens = await openai.log_probs_of(engine, delta, sampling.top_log_probs)
            if not has_begun[number]:
                prompt = await _prompt_log_probs(engine, sampling, generation, number, first)
                tokens = prompt + tokens
            size = len(tokens) * (1 + sampling.top_log_probs)
            scores = await offload(
                partial(
                    openai.completion_log_probs,
                    tokens,
                    offsets[number].of(tokens),
                    sampling.top_log_probs > 0,
                ),
                size,
            )
        before[number] = ""
        choice = _choice(number, text, scores, delta)
        if has_begun[number]:
            await events.send(openai.with_ids(choice, delta, request), size)
        else:
            await events.send(_with_all_ids(choice, generation, delta, request), size)
        has_begun[number] = True
    await events.end(processor)
