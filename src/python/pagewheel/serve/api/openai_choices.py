"""What chat completions and completions have in common: fields, and events of choices."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pagewheel.serve.api.generating import usage_of
from pagewheel.serve.api.output_processor import OutputProcessor
from pagewheel.serve.api.response_format import take_response_format
from pagewheel.serve.api.sampling_request import (
    SamplingRequest,
    read_hints,
    read_sampling,
    take_choices,
)
from pagewheel.serve.api.service import Context
from pagewheel.serve.http.body import Fields
from pagewheel.serve.http.errors import bad_field
from pagewheel.serve.http.request_context import json_text, made
from pagewheel.serve.models.engine import Engine
from pagewheel.serve.models.generation import Generation, OutputDelta


@dataclass
class OpenAIRequest:
    """Fields of both."""

    model: str | None
    sampling: SamplingRequest
    stream: bool
    with_usage: bool
    with_usages: bool = False  # in each event
    with_tokens: bool = False  # ids, of prompts and answers

    def head(self, engine: Engine, id_prefix: str) -> dict[str, Any]:
        """How every answer and event begins."""
        return {
            "id": f"{id_prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": self.model or engine.name,
        }


def read_request(context: Context, fields: Fields) -> OpenAIRequest:
    """The endpoint reads the rest, and how many tokens there may be."""
    model = fields.take("model", str)
    sampling = read_sampling(context, fields)
    sampling.choices = take_choices(fields, context.service.settings.limits)
    sampling.response_format = take_response_format(fields)
    read_hints(fields)
    fields.take_one_of("skip_special_tokens", (None, True))
    stream = fields.take("stream", bool, False)
    options = fields.take("stream_options", dict)
    with_usage = continuous = False
    if options is not None:
        if not stream:
            raise bad_field("stream_options", "needs stream")
        inner = Fields(options, "stream_options.")
        with_usage = inner.take("include_usage", bool, False)
        continuous = inner.take("continuous_usage_stats", bool, False)
        inner.take_one_of("include_obfuscation", (None, False))
        inner.refuse_rest()
    with_tokens = fields.take("return_token_ids", bool, False)
    return OpenAIRequest(
        model, sampling, stream, with_usage, continuous and with_usage, with_tokens
    )


class ChoiceEvents:
    """A stream of choices. All of an event but its choice is the same for each."""

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
        """A choice of so many entries."""
        if self._with_usages:
            event = {**self._frame, "choices": [choice], "usage": usage_of(self._generation)}
            await self._context.send_event(event, size=size)
            return
        data = await made(lambda: f"{self._begin}{json_text(choice)}]}}\n\n".encode(), size)
        await self._context.send_raw(data)

    async def end(self, processor: OutputProcessor) -> None:
        """With the usage, if the client asked for it."""
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
