"""`pagewheel bench-serve`: from its options to what is printed and written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from pagewheel.cli.bench_serve_options import (
    LoadOptions,
    ResultOptions,
    TargetOptions,
    WorkloadOptions,
)
from pagewheel.cli.endpoint import api_base, first_model
from pagewheel.cli.extras import check_installed
from pagewheel.cli.failures import EXIT_INTERRUPTED, failures, wrong_usage
from pagewheel.cli.option_groups import with_option_groups
from pagewheel.cli.options import parse_properties
from pagewheel.cli.units import seconds

if TYPE_CHECKING:
    from pagewheel.bench_serve.workload import Load, Workload

_APIS = ("chat", "completions")
_GOALS = ("ttft", "tpot", "e2e")


@with_option_groups
def bench_serve(
    context: typer.Context,
    on_target: TargetOptions,
    on_workload: WorkloadOptions,
    on_load: LoadOptions,
    on_result: ResultOptions,
) -> None:
    r"""Measure a server that speaks OpenAI's API. Needs `pip install 'pagewheel\[serve]'`.

    Ctrl-C prints and writes what was measured so far.

    [bold]Examples[/bold]

    pagewheel bench-serve --rate 1 --rate 2 --rate 4 --goal ttft=500ms -o result.json

    pagewheel bench-serve --concurrency 16 --requests 64 --field ignore_eos=true

    pagewheel bench-serve --rate 2 --shared-tokens 1000 --questions 3 --chart load.svg
    """
    if on_target.api not in _APIS:
        raise typer.BadParameter(
            f"allowed: {', '.join(_APIS)}, got {on_target.api!r}", param_hint="--api"
        )
    given = parse_properties(on_target.fields or [])
    bounds = _goals(on_result.goals or [])
    longest = seconds("--timeout", on_target.timeout)
    pause = seconds("--think", on_workload.think)
    with failures(debug=context.obj):
        check_installed("bench-serve", "serve", ("aiohttp",))
        from pagewheel.bench_serve.call import Target
        from pagewheel.bench_serve.report import Report
        from pagewheel.bench_serve.run import Plan
        from pagewheel.bench_serve.session import run_loads

        loads = _loads(on_load.rates or [], on_load.concurrencies or [])
        workload = _workload(on_workload)
        with wrong_usage("--url"):
            base = api_base(on_target.url)
        name = on_target.model or first_model(base, on_target.api_key)
        target = Target(base, name, on_target.api, on_target.api_key, given, longest)
        plan = Plan(workload, on_load.requests, on_workload.max_tokens, on_workload.seed, pause)
        report = Report(target, plan, bounds, on_result.output, on_result.chart)
        run_loads(target, plan, loads, on_load.warm_up, report.add)
        report.print()
        if report.is_partial:
            raise typer.Exit(EXIT_INTERRUPTED)


def _workload(given: WorkloadOptions) -> Workload:
    from pagewheel.bench_serve.workload import Synthetic, read_file

    if given.prompts is not None:
        return read_file(given.prompts)
    return Synthetic(
        given.prompt_tokens, given.spread, given.questions, given.shared_tokens, given.num_shared
    )


def _loads(rates: Sequence[float], concurrencies: Sequence[int]) -> list[Load]:
    """Without any, one that tells the latency of an idle server."""
    from pagewheel.bench_serve.workload import Load

    if rates and concurrencies:
        raise typer.BadParameter("give --rate or --concurrency, not both")
    for rate in rates:
        if not 0 < rate < float("inf"):
            raise typer.BadParameter(f"allowed: above 0, got {rate:g}", param_hint="--rate")
    if rates:
        return [Load(rate=rate) for rate in rates]
    return [Load(concurrency=count) for count in concurrencies or [1]]


def _goals(items: Sequence[str]) -> dict[str, float]:
    goals = {}
    for item in items:
        name, equals, time = item.partition("=")
        if name not in _GOALS or not equals:
            raise typer.BadParameter(
                f"expected NAME=TIME of {', '.join(_GOALS)}, got {item!r}", param_hint="--goal"
            )
        goals[name] = seconds("--goal", time)
    return goals
