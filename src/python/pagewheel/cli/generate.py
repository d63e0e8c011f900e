"""`pagewheel generate`."""

from __future__ import annotations

from typing import Any

import typer

from pagewheel.cli.options import Sampling
from pagewheel.cli.pipeline import Interrupt, Printer, print_stats


def generate_text(
    pipeline: Any, prompt: str, sampling: Sampling, *, raw: bool, stats: bool
) -> None:
    """Stream the answer to standard output, ended by a line break.

    Raises KeyboardInterrupt after a Ctrl-C has stopped it.
    """
    config = pipeline.get_generation_config()
    sampling.apply(config)
    config.apply_chat_template = not raw
    with Interrupt() as interrupt:
        printer = Printer(lambda: interrupt.requested)
        # A list of one gives DecodedResults with metrics; a plain string gives text.
        result = pipeline.generate([prompt], config, printer)
        typer.echo()
        if interrupt.requested:
            raise KeyboardInterrupt
    if stats:
        print_stats(result.perf_metrics)
