"""`pagewheel generate` and `pagewheel chat`: answers of a model in this process, or of a server."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import typer

import pagewheel
from pagewheel.cli.endpoint import RefusedRequestError, first_model, opened
from pagewheel.cli.generation_options import Sampling
from pagewheel.cli.terminal import check_text
from pagewheel.context_overflow import fitting_eviction, without_oldest_turns
from pagewheel.errors import InvalidArgumentError, PagewheelError
from pagewheel.options import (
    eviction_arguments,
    eviction_option,
    option,
    parse_properties,
    properties_option,
    scheduler_with,
)

# Escape sequences of a model or a remote server must not command the terminal.
_CONTROLS = dict.fromkeys({*range(0x20), *range(0x7F, 0xA0)} - {ord("\n"), ord("\t")})


def model_path(model: str | None) -> Path:
    """Gives the model asked for, else the default one. Either may be downloaded now."""
    if model is not None:
        from pagewheel.hub import local_model

        return local_model(model)
    from pagewheel.default_model import default_model

    return default_model()


def model_option() -> Any:
    """--model as a field."""
    return option(
        None,
        "A .gguf file, a Hugging Face folder or an OpenVINO model folder; owner/name or "
        "owner/name:Q4_K_M of the Hugging Face hub, or the URL of a .gguf file, fetched once. "
        "By default SmolLM2-135M-Instruct, downloaded once.",
        *("--model", "-m"),
    )


@dataclass(frozen=True)
class PipelineOptions:
    """Which model answers, and how it is run."""

    model: str | None = model_option()
    device: str = option("CPU", "OpenVINO device: CPU, GPU, GPU.1...")
    properties: list[str] | None = properties_option()
    eviction: str | None = eviction_option()

    @property
    def are_given(self) -> bool:
        """Whether anything but the model was chosen."""
        return bool(self.properties or self.eviction or self.device != "CPU")

    def parsed(self) -> tuple[str | None, str, Mapping[str, Any], Mapping[str, Any]]:
        """The arguments of open_pipeline(). Raises typer.BadParameter."""
        properties = parse_properties(self.properties or [])
        return self.model, self.device, properties, eviction_arguments(self.eviction)


def open_pipeline(
    model: str | None,
    device: str,
    properties: Mapping[str, Any],
    eviction: Mapping[str, Any] | None = None,
) -> pagewheel.LLMPipeline:
    """The pipeline of `model`, converted first where it is a .gguf file.

    `eviction` has the arguments of CacheEvictionConfig; without any nothing is evicted.
    """
    options = dict(properties)
    if eviction:
        options["scheduler_config"] = scheduler_with(eviction)
    return pagewheel.LLMPipeline(model_path(model), device, **options)


def open_chat(
    model: str | None,
    device: str,
    properties: Mapping[str, Any],
    eviction: Mapping[str, Any] | None = None,
) -> tuple[pagewheel.LLMPipeline, int | None]:
    """open_pipeline() for conversations that may outgrow the context: the cache forgets then.

    The second value is the number of tokens from which on it does; None: it does not. Where keys
    cannot be rotated, there is no eviction.
    """
    if eviction:
        return open_pipeline(model, device, properties, eviction), eviction["max_cache_size"]
    from pagewheel.convert import resolve_model
    from pagewheel.model_info import read_info

    folder = resolve_model(model_path(model))
    fitting = fitting_eviction(read_info(folder))
    if fitting:
        with suppress(InvalidArgumentError):
            pipeline = open_pipeline(str(folder), device, properties, fitting)
            return pipeline, fitting["max_cache_size"]
    return open_pipeline(str(folder), device, properties), None


class Printer:
    """A streamer that prints and keeps what it is given."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def __call__(self, piece: str) -> None:
        sys.stdout.write(piece.translate(_CONTROLS) if sys.stdout.isatty() else piece)
        sys.stdout.flush()
        self._pieces.append(piece)


def stats_line(metrics: pagewheel.PerfMetrics) -> str:
    """Times and tokens of an answer."""
    tokens = metrics.get_num_generated_tokens()
    parts = [
        f"load {metrics.get_load_time() / 1e3:.2f} s",
        f"{metrics.get_num_input_tokens()} tokens in",
        f"first token {metrics.get_ttft().mean:.0f} ms",
        f"{tokens} tokens out",
    ]
    if tokens > 1:
        parts.append(f"{metrics.get_throughput().mean:.1f} tokens/s")
    return ", ".join(parts)


def generate_text(
    pipeline: pagewheel.LLMPipeline,
    prompt: str,
    sampling: Sampling,
    shape: pagewheel.StructuredOutputConfig | None,
    *,
    raw: bool,
    stats: bool,
) -> None:
    """Stream the answer to standard output, ended by a line break; beam search's in one piece.

    Raises RuntimeError where an answer that should have a shape was cut off.
    """
    config = pipeline.get_generation_config()
    sampling.check(config, shape, pipeline)
    config.apply_chat_template = not raw
    try:
        # A list of one gives DecodedResults with metrics; a plain string gives text.
        if config.is_beam_search():
            result = pipeline.generate([prompt], config)
            typer.echo(result.texts[0], nl=False)
        else:
            result = pipeline.generate([prompt], config, Printer())
    finally:
        typer.echo()
    if stats:
        typer.echo(stats_line(result.perf_metrics), err=True)
    reason = result.finish_reasons[0]
    if shape is not None and reason != pagewheel.GenerationFinishReason.STOP:
        raise RuntimeError(
            f"the answer ended before it was whole, by {reason.name}; "
            f"--max-new-tokens is {config.max_new_tokens}"
        )


Message = Mapping[str, str]


class Answerer(Protocol):
    """Prints an answer as it comes."""

    forgets: bool  # whether the last conversation was more than the model's cache holds

    def answer(self, messages: Sequence[Message], printer: Printer) -> str:
        """Returns a line of times."""


class LocalModel:
    """A pipeline, with the model's own sampling where none was asked for."""

    def __init__(
        self,
        pipeline: pagewheel.LLMPipeline,
        sampling: Sampling,
        shape: pagewheel.StructuredOutputConfig | None,
        forgets_from: int | None = None,
    ) -> None:
        """`forgets_from`: how many tokens of a conversation the cache holds."""
        self._pipeline = pipeline
        self._forgets_from = forgets_from
        self.forgets = False
        self._config = pipeline.get_generation_config()
        sampling.check(self._config, shape, pipeline)
        self._config.num_beams = self._config.num_beam_groups = 1  # whatever the model asks for
        self._config.num_return_sequences = 1

    def answer(self, messages: Sequence[Message], printer: Printer) -> str:
        history = pagewheel.ChatHistory()
        for message in messages:
            history.append(dict(message))
        result = self._pipeline.generate(history, self._config, printer)
        metrics = result.perf_metrics
        tokens = metrics.get_num_input_tokens() + metrics.get_num_generated_tokens()
        self.forgets = self._forgets_from is not None and tokens > self._forgets_from
        return stats_line(metrics)


# Parameters that OpenAI's API calls otherwise; the others have the same names there, or are ours.
_NAMES = {"max_new_tokens": "max_tokens", "rng_seed": "seed", "stop_strings": "stop"}


class ServerModel:
    """A model of a server of OpenAI's API. It gets the parameters that were asked for alone."""

    def __init__(self, base: str, api_key: str, model: str, sampling: Sampling) -> None:
        self.forgets = False
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
    """Writes generation parameters as a request's fields. Greedy is a temperature of 0."""
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


_TOO_LONG = ("context_too_long", "context_length_exceeded")  # the library's, and OpenAI's
_HELP = "/reset forgets the conversation, /quit leaves; Ctrl-C stops an answer"


class Chat:
    """Owns the history: every question in it has its answer, cut short or not."""

    def __init__(self, answerer: Answerer, system: str | None, stats: bool) -> None:
        self._answerer = answerer
        self._system = system
        self._stats = stats
        self._has_told = False
        self.reset()

    def reset(self) -> None:
        """Forget everything but the system message."""
        self._has_told = False
        self._history: list[Message] = []
        if self._system is not None:
            self._history.append({"role": "system", "content": self._system})

    def run(self) -> None:
        """Talks until /quit or end of input."""
        with suppress(ImportError):
            import readline  # noqa: F401 - gives input() line editing
        if sys.stdin.isatty():
            typer.echo(_HELP, err=True)
        while (line := self._read()) is not None:
            if line == "/quit":
                return
            if line == "/reset":
                self.reset()
            elif line.startswith("/"):
                typer.echo(_HELP, err=True)
            elif line:
                self._answer(line)

    @staticmethod
    def _read() -> str | None:
        """Gives the next line, stripped; None at the end; empty after Ctrl-C."""
        try:
            line = input("> " if sys.stdin.isatty() else "").strip()
            check_text("the line", line)
            return line
        except UnicodeError:
            typer.echo("that line is not UTF-8", err=True)
            return ""
        except EOFError:
            if sys.stdin.isatty():
                typer.echo()
            return None
        except KeyboardInterrupt:
            typer.echo()
            return ""

    def _answer(self, question: str) -> None:
        self._history.append({"role": "user", "content": question})
        printer = Printer()
        times = None
        try:
            times = self._answer_of_history(printer)
        except KeyboardInterrupt:
            pass
        except BaseException as error:
            self._history.pop()
            if getattr(error, "code", None) not in _TOO_LONG:
                raise
            return typer.echo(f"that question is too long: {error}", err=True)
        typer.echo()
        self._history.append({"role": "assistant", "content": printer.text})
        if self._answerer.forgets:
            self._tell_of_forgetting()
        if self._stats and times is not None:
            typer.echo(times, err=True)

    def _answer_of_history(self, printer: Printer) -> str:
        """Leaves the older half of a conversation out that the model has no room for."""
        while True:
            try:
                return self._answerer.answer(self._history, printer)
            except (PagewheelError, RefusedRequestError) as error:
                if error.code not in _TOO_LONG:
                    raise
                sizes = [len(each["content"]) for each in self._history]
                shorter = without_oldest_turns(self._history, sizes, sum(sizes) // 2, sum(sizes))
                if len(shorter) == len(self._history):
                    raise
                self._history = shorter
                self._tell_of_forgetting()

    def _tell_of_forgetting(self) -> None:
        if not self._has_told:
            self._has_told = True
            typer.echo("(the conversation is long: the model forgets older parts of it)", err=True)
