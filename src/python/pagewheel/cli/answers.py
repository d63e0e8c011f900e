"""Who answers in a chat: a model in this process, or a server."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pagewheel
from pagewheel.cli.endpoint import first_model, opened
from pagewheel.cli.pipeline import Printer, stats_line
from pagewheel.cli.sampling import Sampling

Message = Mapping[str, str]


class Answerer(Protocol):
    """Prints an answer as it comes."""

    def answer(self, messages: Sequence[Message], printer: Printer) -> str:
        """Returns a line of times."""


class LocalModel:
    """A pipeline, with the model's own sampling where none was asked for."""

    def __init__(
        self,
        pipeline: pagewheel.LLMPipeline,
        sampling: Sampling,
        shape: pagewheel.StructuredOutputConfig | None,
    ) -> None:
        self._pipeline = pipeline
        self._config = pipeline.get_generation_config()
        sampling.check(self._config, shape, pipeline)
        self._config.num_beams = self._config.num_beam_groups = 1  # whatever the model asks for
        self._config.num_return_sequences = 1

    def answer(self, messages: Sequence[Message], printer: Printer) -> str:
        history = pagewheel.ChatHistory()
        for message in messages:
            history.append(dict(message))
        result = self._pipeline.generate(history, self._config, printer)
        return stats_line(result.perf_metrics)


# Parameters that OpenAI's API calls otherwise; the others have the same names there, or are ours.
_NAMES = {"max_new_tokens": "max_tokens", "rng_seed": "seed", "stop_strings": "stop"}


class ServerModel:
    """A model of a server of OpenAI's API. It gets the parameters that were asked for alone."""

    def __init__(self, base: str, api_key: str, model: str, sampling: Sampling) -> None:
        self._url = f"{base}/chat/completions"
        self._api_key = api_key
        self._fields = {
            "model": model or first_model(base, api_key),
            "stream": True,
            "stream_options": {"include_usage": True},
            **fields_of(sampling.given),
        }

    def answer(self, messages: Sequence[Message], printer: Printer) -> str:
        begin = time.perf_counter()
        first: float | None = None
        num_tokens = 0
        with opened(self._url, self._api_key, {**self._fields, "messages": messages}) as response:
            for line in response:
                data = line.removeprefix(b"data:").strip()
                if data == line.strip() or data == b"[DONE]":
                    continue
                event = json.loads(data)
                if "error" in event:
                    raise RuntimeError(f"{self._url}: {_message(event['error'])}")
                for choice in event.get("choices") or ():
                    if text := (choice.get("delta") or {}).get("content"):
                        first = time.perf_counter() if first is None else first
                        printer(text)
                num_tokens = (event.get("usage") or {}).get("completion_tokens", num_tokens)
        return _times(begin, first, num_tokens)


def fields_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Generation parameters as a request's fields. Greedy is a temperature of 0."""
    fields = {
        _NAMES.get(name, name): sorted(value) if isinstance(value, (set, frozenset)) else value
        for name, value in given.items()
        if name != "do_sample"
    }
    if given.get("do_sample") is False:
        fields["temperature"] = 0
    elif given.get("do_sample") is True:
        fields.setdefault("temperature", 1)
    return fields


def _message(error: Any) -> str:
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)


def _times(begin: float, first: float | None, num_tokens: int) -> str:
    end = time.perf_counter()
    if first is None:
        return f"{end - begin:.2f} s, no text"
    parts = [f"first token {(first - begin) * 1e3:.0f} ms"]
    if num_tokens:
        parts.append(f"{num_tokens} tokens out")
    if num_tokens > 1 and end > first:
        parts.append(f"{(num_tokens - 1) / (end - first):.1f} tokens/s")
    return ", ".join(parts)
