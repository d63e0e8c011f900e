"""What OpenAI's endpoints have in common: fields, events of choices, usage, log-probabilities."""

from __future__ import annotations

import codecs
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagewheel._pagewheel import TokenLogProb as LikelyToken
from pagewheel.serve.api.output_processor import OutputProcessor
from pagewheel.serve.api.response_format import take_response_format
from pagewheel.serve.api.sampling_request import SamplingRequest, read_hints, read_sampling
from pagewheel.serve.api.service import Context
from pagewheel.serve.http.body import Fields
from pagewheel.serve.http.errors import bad_field
from pagewheel.serve.http.request_context import json_text, offload
from pagewheel.serve.models.engine import Engine
from pagewheel.serve.models.generation import Generation, OutputDelta

# The likeliest tokens of a position that a request may ask for.
MAX_TOP = 20
# OpenAI's, of a token that could not be chosen: JSON has no infinities.
_LOWEST = -9999.0


@dataclass
class OpenAIRequest:
    model: str | None
    sampling: SamplingRequest
    stream: bool
    with_usage: bool
    with_usages: bool = False  # in each event
    with_tokens: bool = False  # ids, of prompts and answers

    def head(self, engine: Engine, id_prefix: str) -> dict[str, Any]:
        """Gives what every answer and event begins with."""
        return {
            "id": f"{id_prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": self.model or engine.name,
        }


def read_request(context: Context, fields: Fields) -> OpenAIRequest:
    """The endpoint reads the rest, and how many tokens there may be."""
    model = fields.take("model", str)
    sampling = read_sampling(context, fields)
    sampling.choices = fields.take_int("n", 1, context.service.settings.limits.max_choices, 1)
    sampling.response_format = take_response_format(fields)
    read_hints(fields)
    fields.take_one_of("skip_special_tokens", (None, True))
    stream = fields.take("stream", bool, False)
    with fields.inner("stream_options") as inner:
        if inner.is_given and not stream:
            raise bad_field("stream_options", "needs stream")
        with_usage = inner.take("include_usage", bool, False)
        continuous = inner.take("continuous_usage_stats", bool, False)
        inner.take_one_of("include_obfuscation", (None, False))
    with_tokens = fields.take("return_token_ids", bool, False)
    return OpenAIRequest(
        model, sampling, stream, with_usage, continuous and with_usage, with_tokens
    )


class ChoiceEvents:
    """Sends choices. All of an event but its choice is the same for each."""

    def __init__(
        self,
        context: Context,
        request: OpenAIRequest,
        head: Mapping[str, Any],
        generation: Generation,
    ) -> None:
        self._context = context
        self._generation = generation
        self._with_usage = request.with_usage
        self._with_usages = request.with_usages
        self._frame = {**head, "usage": None} if request.with_usage else dict(head)
        self._begin = f'data: {json_text(self._frame)[:-1]}, "choices": ['

    async def start(self) -> None:
        await self._context.start_events()

    async def send(self, choice: Mapping[str, Any], size: int = 0) -> None:
        """Sends a choice of so many entries."""
        if self._with_usages:
            event = {**self._frame, "choices": [choice], "usage": usage_of(self._generation)}
            await self._context.send_event(event, size=size)
            return
        data = await offload(lambda: f"{self._begin}{json_text(choice)}]}}\n\n".encode(), size)
        await self._context.send_raw(data)

    async def end(self, processor: OutputProcessor) -> None:
        """Sends the usage, if the client asked for it."""
        if self._with_usage:
            usage = usage_of(processor.generation, await processor.count_reasoning())
            last = {**self._frame, "choices": [], "usage": usage}
            await self._context.send_event(last)
        await self._context.end_events(b"data: [DONE]\n\n")


def with_ids(choice: dict[str, Any], delta: OutputDelta, request: OpenAIRequest) -> dict[str, Any]:
    """The choice, with vLLM's `token_ids` where they were asked for."""
    return {**choice, "token_ids": delta.tokens} if request.with_tokens else choice


def ended(choice: dict[str, Any], delta: OutputDelta) -> dict[str, Any]:
    """The choice, with vLLM's `stop_reason` where the request has ended it: stop, or deadline."""
    reason = "timeout" if delta.timed_out else delta.stop_reason
    return choice if reason is None else {**choice, "stop_reason": reason}


def usage_of(generation: Generation, num_reasoning: int = 0) -> dict[str, Any]:
    prompt, generated = generation.num_prompt_tokens, generation.num_generated
    drafted, accepted = generation.num_drafts
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": generation.num_cached_tokens},
        "completion_tokens_details": {
            "reasoning_tokens": num_reasoning,
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": drafted - accepted,
        },
    }


async def log_probs_of(engine: Engine, delta: OutputDelta, top: int) -> list[TokenLogProb]:
    """Gives those of the generated tokens that are in the text."""
    names = await engine.tokens_by_id()
    return await offload(
        lambda: of_tokens(names, delta.scored, delta.log_probs, delta.top_log_probs, top),
        len(delta.scored) * (1 + top),
    )


@dataclass(frozen=True)
class TokenLogProb:
    """The log-probability of a prompt's first token is None."""

    token: bytes
    log_prob: float | None
    top: Sequence[TokenLogProb] = ()  # the likeliest in its place, best first

    @property
    def text(self) -> str:
        return self.token.decode("utf-8", "replace")


def of_tokens(
    token_bytes: Mapping[int, bytes],
    tokens: Sequence[int],
    log_probs: Sequence[float | None],
    likely: Sequence[Sequence[LikelyToken]] = (),
    count: int = 0,
) -> list[TokenLogProb]:
    """Gives each token with the `count` likeliest in its place."""
    found = []
    for place, (token, log_prob) in enumerate(zip(tokens, log_probs, strict=False)):
        others = likely[place][:count] if place < len(likely) else ()
        top = [TokenLogProb(each.bytes, max(_LOWEST, each.log_prob)) for each in others]
        value = None if log_prob is None else max(_LOWEST, log_prob)
        found.append(TokenLogProb(token_bytes.get(token, b""), value, top))
    return found


def chat_log_probs(tokens: Sequence[TokenLogProb]) -> dict[str, Any]:
    return {
        "content": [
            {**_entry(each), "top_logprobs": [_entry(one) for one in each.top]} for each in tokens
        ],
        "refusal": None,
    }


def _entry(token: TokenLogProb) -> dict[str, Any]:
    return {"token": token.text, "logprob": token.log_prob, "bytes": list(token.token)}


class TextOffsets:
    """Counts, in characters, where the tokens of a choice begin in their text.

    The parts of a character that several tokens share begin where it does.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._characters = 0

    def of(self, tokens: Sequence[TokenLogProb]) -> list[int]:
        found = []
        for each in tokens:
            found.append(self._characters)
            self._characters += len(self._decoder.decode(each.token))
        return found


def completion_log_probs(
    tokens: Sequence[TokenLogProb], offsets: Sequence[int], with_top: bool
) -> dict[str, Any]:
    """`offsets` are where the tokens begin."""
    return {
        "tokens": [each.text for each in tokens],
        "token_logprobs": [each.log_prob for each in tokens],
        "top_logprobs": [_by_text(each) for each in tokens] if with_top else None,
        "text_offset": offsets,
    }


def _by_text(token: TokenLogProb) -> dict[str, float] | None:
    """Gives the likeliest and the token itself; of tokens that look alike, the likeliest."""
    if token.log_prob is None:
        return None
    found: dict[str, float] = {}
    for each in (*token.top, token):
        assert each.log_prob is not None
        found.setdefault(each.text, each.log_prob)
    return found
