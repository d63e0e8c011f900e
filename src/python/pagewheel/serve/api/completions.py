"""/v1/completions: texts and token ids, as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pagewheel.serve.api import openai_choices as openai
from pagewheel.serve.api.generating import (
    Prompt,
    encode_prompt,
    generating,
    infill_prompt,
    last_tokens,
    take_most_tokens,
    take_overflow,
)
from pagewheel.serve.api.output_processor import OutputProcessor, ParserConfig
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
    suffix: str  # what comes after the answer
    kept: int  # of each prompt's choices, the likeliest ones


def read(context: Context, fields: Fields) -> CompletionRequest:
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
    kept = sampling.choices
    sampling.choices = fields.take_int("best_of", kept, limits.max_choices // len(prompts), kept)
    sampling.is_ranked = sampling.choices > kept
    if sampling.is_ranked and request.stream:
        raise bad_field("best_of", "is not for streams, unless it is n")
    suffix = fields.take("suffix", str, "")
    if suffix and (echo or not all(isinstance(each, str) for each in prompts)):
        raise bad_field("suffix", "goes with texts as prompts, without echo")
    most = take_most_tokens(fields)
    sampling.overflow = take_overflow(context, fields)
    fields.refuse_rest()
    return CompletionRequest(request, prompts, echo, special, most, suffix, kept)


def _max_tokens(fields: Fields, sampling: SamplingRequest, limits: Limits) -> int | None:
    """There is a default, unless max_length says how long a choice may be."""
    count = take_max_tokens(fields, "max_tokens", 0)
    if count is None and sampling.max_length is None:
        return min(_DEFAULT_TOKENS, limits.max_tokens or _DEFAULT_TOKENS)
    return limited_tokens("max_tokens", count, limits, sampling.max_length)


def read_prompts(fields: Fields, field: str = "prompt") -> list[str | list[int]]:
    """Takes a text, token ids, or a list of either."""
    value, name = fields.need_any(field), fields.name(field)
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


async def answer(context: Context, completion: CompletionRequest) -> None:
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
            made = _Choices(engine, request, generation, echoed)
            if request.stream:
                await _stream(
                    processor, made, openai.ChoiceEvents(context, request, head, generation)
                )
                return
            outputs = await processor.read_all()
            choices = [
                (await made.choice(each, outputs[made.first_of_request(each.index)]))[0]
                for each in _likeliest(outputs, request.sampling.choices, completion.kept)
            ]
            for number, choice in enumerate(choices):
                choice["index"] = number
            await context.send_offloaded(
                lambda: {**head, "choices": choices, "usage": openai.usage_of(generation)},
                generation.num_generated * (1 + request.sampling.top_log_probs),
            )


def _likeliest(
    outputs: Sequence[CompletionOutput], choices: int, kept: int
) -> list[CompletionOutput]:
    """Takes of each prompt the `kept` outputs of the highest log-probability per token."""
    if kept == choices:
        return list(outputs)

    def score(output: CompletionOutput) -> float:
        return sum(output.log_probs) / max(1, len(output.log_probs))

    prompts = [outputs[begin : begin + choices] for begin in range(0, len(outputs), choices)]
    return [each for one in prompts for each in sorted(one, key=score, reverse=True)[:kept]]


def _encoded(engine: Engine, completion: CompletionRequest) -> list[Prompt]:
    special = completion.add_special_tokens
    most = completion.most_tokens
    if completion.suffix:
        texts = [str(each) for each in completion.prompts]
        return [infill_prompt(engine, each, completion.suffix) for each in texts]
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


class _Choices:
    """Makes choices of outputs and of deltas: an output is a delta that has all."""

    def __init__(
        self,
        engine: Engine,
        request: openai.OpenAIRequest,
        generation: Generation,
        echoed: Sequence[str],
    ) -> None:
        self.request = request
        self.has_begun = [False] * len(echoed)
        self._engine = engine
        self._generation = generation
        self._echoed = echoed
        self._offsets = [openai.TextOffsets() for _ in echoed]

    def first_of_request(self, number: int) -> int:
        """Gives the choice with which the prompt's log-probabilities come."""
        return number - number % self._generation.request.sequences

    def text(self, delta: OutputDelta) -> str:
        return ("" if self.has_begun[delta.index] else self._echoed[delta.index]) + delta.text

    async def choice(self, delta: OutputDelta, first: OutputDelta) -> tuple[dict[str, Any], int]:
        """Gives a choice, and how many entries it has. `first` is of the same request."""
        sampling, number = self.request.sampling, delta.index
        prompt = self._generation.request.prompts[number // sampling.choices]
        text, is_first = self.text(delta), not self.has_begun[number]
        self.has_begun[number] = True
        scores, size, top = None, 0, sampling.top_log_probs
        if sampling.with_log_probs:
            tokens = await self._prompt_log_probs(prompt, first) if is_first else []
            tokens += await openai.log_probs_of(self._engine, delta, top)
            size = len(tokens) * (1 + top)
            scores = await offload(
                lambda: openai.completion_log_probs(
                    tokens, self._offsets[number].of(tokens), top > 0
                ),
                size,
            )
        choice = {"index": number, "text": text, "logprobs": scores}
        choice["finish_reason"] = delta.finish_reason
        choice = openai.with_ids(openai.ended(choice, delta), delta, self.request)
        if is_first and self.request.with_tokens:
            choice["prompt_token_ids"] = prompt
        return choice, size

    async def _prompt_log_probs(
        self, prompt: Sequence[int], first: OutputDelta
    ) -> list[openai.TokenLogProb]:
        """Gives those of the prompt's tokens, which came with `first`, where they are echoed."""
        if not self.request.sampling.with_prompt_log_probs:
            return []
        names = await self._engine.tokens_by_id()
        scores = [None, *first.prompt_log_probs]
        likely = [[], *first.prompt_top_log_probs]
        top = self.request.sampling.top_log_probs
        return await offload(
            lambda: openai.of_tokens(names, prompt, scores, likely, top), len(prompt) * (1 + top)
        )


async def _stream(processor: OutputProcessor, made: _Choices, events: openai.ChoiceEvents) -> None:
    """Holds back deltas until the first one of their request has come."""
    with_tokens = made.request.sampling.with_log_probs or made.request.with_tokens
    firsts: dict[int, OutputDelta] = {}
    held: dict[int, list[OutputDelta]] = {}
    deltas = await processor.started()
    await events.start()
    async for delta in deltas:
        number = made.first_of_request(delta.index)
        if delta.index == number:
            firsts.setdefault(number, delta)
        held.setdefault(number, []).append(delta)
        for each in held.pop(number) if number in firsts else ():
            has_tokens = with_tokens and (each.tokens or each.scored)
            if made.text(each) or each.finish_reason or has_tokens:  # else half of a character
                await events.send(*await made.choice(each, firsts[number]))
    await events.end(processor)
