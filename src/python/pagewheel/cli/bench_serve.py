"""`pagewheel bench-serve`: from its options to what is printed and written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pagewheel.cli.endpoint import api_base, first_model
from pagewheel.cli.terminal import EXIT_INTERRUPTED, failures
from pagewheel.options import (
    check_choice,
    check_installed,
    option,
    parse_properties,
    seconds,
    time_option,
    with_option_groups,
    wrong_usage,
)

if TYPE_CHECKING:
    from pagewheel.bench_serve.workload import Load, Workload


_GOALS = ("ttft", "tpot", "e2e")


def _goal(text: str) -> tuple[str, float]:
    """Parses NAME=TIME."""
    name, equals, time = text.partition("=")
    if name not in _GOALS or not equals:
        raise typer.BadParameter(f"expected NAME=TIME of {', '.join(_GOALS)}, got {text!r}")
    return name, seconds(time)


@dataclass(frozen=True)
class BenchOptions:
    """Which server is asked what, how often, and what is made of the answers."""

    url: str = option("http://127.0.0.1:8000", "Where the server is; /v1 may be left out.")
    api_key: str = option("", "The environment is not seen by others.", envvar="OPENAI_API_KEY")
    model: str = option("", "By default the first one that the server names.")
    api: str = option("chat", "chat or completions.")
    fields: list[str] | None = option(
        None,
        "In each request's body, e.g. ignore_eos=true; repeat it.",
        "--field",
        metavar="KEY=VALUE",
    )
    timeout: float = time_option("10m", "Of a request; then it is an error.")

    prompts: Path | None = option(
        None,
        "A prompt per line; as .jsonl texts, prompts or messages. Else random words.",
        exists=True,
        dir_okay=False,
    )
    prompt_tokens: int = option(128, "Random words of a question, about.", min=1)
    spread: float = option(0.0, "Lengths vary by this share, up and down.", min=0, max=1)
    questions: int = option(1, "Of a conversation; each is sent with all that was said.", min=1)
    think: float = time_option("0", "Between an answer and the next question.")
    shared_tokens: int = option(0, "Words of a system message that conversations share.", min=0)
    num_shared: int = option(1, "Different ones of these.", min=1)
    max_tokens: int = option(64, "Of an answer.", min=1)
    seed: int = option(0, "Of prompts and arrivals.")

    rates: list[float] | None = option(
        None,
        "Conversations begin at this rate, as a Poisson process; repeat it for more loads.",
        "--rate",
        metavar="PER_SECOND",
    )
    concurrencies: list[int] | None = option(
        None,
        "So many at once, each followed by the next; repeat it for more loads.",
        "--concurrency",
        min=1,
        metavar="COUNT",
    )
    requests: int = option(32, "Conversations of each load.", min=1)
    warm_up: int = option(1, "Conversations before the first load.", min=0)

    goals: list[Any] | None = option(
        None,
        "For goodput: ttft=500ms, tpot=50ms (per token) or e2e=10s; repeat it.",
        "--goal",
        metavar="NAME=TIME",
        parser=_goal,
    )
    output: Path | None = option(None, "A JSON file.", "--output", "-o")
    chart: Path | None = option(None, "An SVG file.")


_APIS = ("chat", "completions")


@with_option_groups
def bench_serve(context: typer.Context, options: BenchOptions) -> None:
    r"""Measure a server that speaks OpenAI's API. Needs `pip install 'pagewheel\[serve]'`.

    Ctrl-C prints and writes what was measured so far.

    [bold]Examples[/bold]

    pagewheel bench-serve --rate 1 --rate 2 --rate 4 --goal ttft=500ms -o result.json

    pagewheel bench-serve --concurrency 16 --requests 64 --field ignore_eos=true

    pagewheel bench-serve --rate 2 --shared-tokens 1000 --questions 3 --chart load.svg
    """
    check_choice("--api", options.api, _APIS)
    given = parse_properties(options.fields or [])
    goals = dict(options.goals or [])
    with failures(debug=context.obj):
        check_installed("bench-serve", "serve", ("aiohttp",))
        from pagewheel.bench_serve.call import Target
        from pagewheel.bench_serve.report import Report
        from pagewheel.bench_serve.run import Plan, run_loads

        loads = _loads(options.rates or [], options.concurrencies or [])
        workload = _workload(options)
        with wrong_usage("--url"):
            base = api_base(options.url)
        name = options.model or first_model(base, options.api_key)
        target = Target(base, name, options.api, options.api_key, given, options.timeout)
        plan = Plan(workload, options.requests, options.max_tokens, options.seed, options.think)
        report = Report(target, plan, goals, options.output, options.chart)
        asyncio.run(run_loads(target, plan, loads, options.warm_up, report.add))
        report.print()
        if report.is_partial:
            raise typer.Exit(EXIT_INTERRUPTED)


def _workload(given: BenchOptions) -> Workload:
    from pagewheel.bench_serve.workload import Synthetic, read_file

    if given.prompts is not None:
        return read_file(given.prompts)
    return Synthetic(
        given.prompt_tokens, given.spread, given.questions, given.shared_tokens, given.num_shared
    )


def _loads(rates: Sequence[float], concurrencies: Sequence[int]) -> list[Load]:
    """Gives one that tells the latency of an idle server where none was asked for."""
    from pagewheel.bench_serve.workload import Load

    if rates and concurrencies:
        raise typer.BadParameter("give --rate or --concurrency, not both")
    for rate in rates:
        if not 0 < rate < float("inf"):
            raise typer.BadParameter(f"allowed: above 0, got {rate:g}", param_hint="--rate")
    if rates:
        return [Load(rate=rate) for rate in rates]
    return [Load(concurrency=count) for count in concurrencies or [1]]
