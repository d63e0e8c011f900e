"""Opening a model and streaming its text to the terminal."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import typer

import pagewheel


def model_path(model: Path | None) -> Path:
    """The model asked for, else the default one, which may be downloaded now."""
    if model is not None:
        return model
    from pagewheel.default_model import default_model

    return Path(default_model())


def open_pipeline(model: Path | None, device: str, properties: Mapping[str, Any]) -> Any:
    """A pagewheel.LLMPipeline."""
    return pagewheel.LLMPipeline(str(model_path(model)), device, **properties)


class Interrupt:
    """Within its `with` block the first Ctrl-C is noted; the second raises KeyboardInterrupt.

    Python runs signal handlers in the main thread only, which may be inside the
    engine; so the streamer, in whichever thread it is called, looks at the pipe that
    Python writes to at once.
    """

    def __init__(self) -> None:
        self._requested = False
        self._handled = False

    @property
    def requested(self) -> bool:
        """Whether Ctrl-C was pressed."""
        with suppress(BlockingIOError):
            self._requested = bool(os.read(self._reader, 64)) or self._requested
        return self._requested

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._handled:
            raise KeyboardInterrupt
        self._handled = self._requested = True

    def __enter__(self) -> Interrupt:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._wakeup_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._reader)
        os.close(self._writer)


class Printer:
    """A streamer that prints and keeps what it is given."""

    def __init__(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Generation is cancelled once `stopped()` is true."""
        self._stopped = stopped
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self._pieces)

    def __call__(self, piece: str) -> Any:
        sys.stdout.write(piece)
        sys.stdout.flush()
        self._pieces.append(piece)
        status = pagewheel.StreamingStatus
        return status.CANCEL if self._stopped() else status.RUNNING


def print_stats(metrics: Any) -> None:
    """One line on standard error."""
    tokens = metrics.get_num_generated_tokens()
    parts = [
        f"load {metrics.get_load_time() / 1e3:.2f} s",
        f"{metrics.get_num_input_tokens()} tokens in",
        f"first token {metrics.get_ttft().mean:.0f} ms",
        f"{tokens} tokens out",
    ]
    if tokens > 1:
        parts.append(f"{metrics.get_throughput().mean:.1f} tokens/s")
    typer.echo(", ".join(parts), err=True)
