"""`pagewheel evaluate-cache`: from its options to what is printed and written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pagewheel.cli.chat import model_path
from pagewheel.cli.terminal import failures
from pagewheel.options import (
    check_choice,
    option,
    parse_properties,
    properties_option,
    with_option_groups,
    wrong_usage,
)

_PARTS = (
    "passkey, needles, values, variables, words, facts, chat (what was asked for is told), "
    "prose, code (agreement with the full cache), stream (perplexity)"
)


@dataclass(frozen=True)
class EvaluateOptions:
    """Which settings are compared, on what, and where the results go."""

    policies: list[str] | None = option(
        None,
        "A policy's name, or FILE.py:CLASS of your own, with arguments of CacheEvictionConfig; "
        "repeat it. By default norm_sum.",
        "--policy",
        metavar="NAME[,ARGUMENT=VALUE...]",
    )
    budgets: list[float] | None = option(
        None,
        "Share of a prompt's tokens that are kept; repeat it. By default 0.25 and 0.5.",
        "--budget",
        metavar="SHARE",
    )
    only: list[str] | None = option(None, f"Columns; repeat it. All: {_PARTS}.", "--only")
    samples: int = option(100, "Prompts of each cell; long texts are a twelfth.", min=1)
    tokens: int = option(512, "Of a prompt, about.", min=256)
    new_tokens: int = option(32, "Of prose and code that are continued.", min=2)
    start_size: int = option(32, "First tokens that stay.", min=0)
    recent_size: int = option(32, "Last tokens that stay.", min=0)
    texts: str = option("test", "test, or tuning: other texts and questions to choose by.")
    properties: list[str] | None = properties_option()
    output: Path | None = option(
        None, "A JSON file; what it has already is not measured again.", "--output", "-o"
    )
    chart: Path | None = option(None, "An SVG file.")


@with_option_groups
def evaluate_cache(
    context: typer.Context,
    options: EvaluateOptions,
    model: Annotated[
        str | None, typer.Argument(help="As generate's --model. By default SmolLM2-135M-Instruct.")
    ] = None,
) -> None:
    """Measure what cache eviction leaves of a model's answers, beside the full cache.

    Numbers are means with their standard errors. Ctrl-C keeps what was written to the file.

    [bold]Examples[/bold]

    pagewheel evaluate-cache --policy norm_sum --policy key_diff --budget 0.25 -o result.json

    pagewheel evaluate-cache model.gguf --policy snapkv,snapkv_window_size=32,score_pooling=7

    pagewheel evaluate-cache --only passkey --only facts --samples 20 --policy mine.py:MyPolicy
    """
    properties = tuple(parse_properties(options.properties or []).items())
    with failures(debug=context.obj):
        from pagewheel.convert import resolve_model
        from pagewheel.convert.progress import stages
        from pagewheel.evaluate_cache.measure import measure, settings
        from pagewheel.evaluate_cache.report import PARTS, Report
        from pagewheel.evaluate_cache.run import Evaluation, Plan
        from pagewheel.evaluate_cache.texts import SETS

        check_choice("--texts", options.texts, SETS)
        parts = options.only or list(PARTS)
        for part in parts:
            check_choice("--only", part, PARTS)
        plan = Plan(
            options.samples,
            options.tokens,
            options.new_tokens,
            options.texts,
            options.start_size,
            options.recent_size,
            properties=properties,
        )
        with wrong_usage("--policy / --budget"):
            chosen = settings(
                options.policies or ["norm_sum"], options.budgets or [0.25, 0.5], plan
            )
        folder = resolve_model(model_path(model))
        with wrong_usage("--output"):
            report = Report(folder.name, plan, options.output)
        evaluation = Evaluation(folder, plan)
        with stages("evaluating", 0, True) as progress:
            measure(evaluation, chosen, parts, report, progress)
        typer.echo(report.markdown(), nl=False)
        if options.chart is not None:
            options.chart.write_text(report.chart(), encoding="utf-8")
