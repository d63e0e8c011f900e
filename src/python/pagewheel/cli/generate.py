"""`pagewheel generate`."""

from __future__ import annotations

import typer

import pagewheel
from pagewheel.cli.pipeline import Printer, print_stats
from pagewheel.cli.sampling import Sampling


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
        print_stats(result.perf_metrics)
    reason = result.finish_reasons[0]
    if shape is not None and reason != pagewheel.GenerationFinishReason.STOP:
        raise RuntimeError(
            f"the answer ended before it was whole, by {reason.name}; "
            f"--max-new-tokens is {config.max_new_tokens}"
        )
