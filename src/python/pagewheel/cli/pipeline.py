"""Opening a model and streaming its text to the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

import pagewheel
from pagewheel.cli.eviction import scheduler_with

# Escape sequences of a model or a remote server must not command the terminal.
_CONTROLS = dict.fromkeys({*range(0x20), *range(0x7F, 0xA0)} - {ord("\n"), ord("\t")})


def model_path(model: Path | None) -> Path:
    """The model asked for, else the default one, which may be downloaded now."""
    if model is not None:
        return model
    from pagewheel.default_model import default_model

    return default_model()


def open_pipeline(
    model: Path | None,
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


class Printer:
    """A streamer that prints and keeps what it is given."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self._pieces)

    def __call__(self, piece: str) -> None:
        sys.stdout.write(piece.translate(_CONTROLS) if sys.stdout.isatty() else piece)
        sys.stdout.flush()
        self._pieces.append(piece)


def print_stats(metrics: pagewheel.PerfMetrics) -> None:
    """One line on standard error."""
    typer.echo(stats_line(metrics), err=True)


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
