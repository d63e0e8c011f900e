"""`pagewheel bench-serve`: its options, and what is printed and written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagewheel.cli.endpoint import api_base, first_model
from pagewheel.cli.extras import check_installed
from pagewheel.cli.failures import EXIT_INTERRUPTED, failures
from pagewheel.cli.options import parse_properties
from pagewheel.cli.units import seconds

if TYPE_CHECKING:
    from pagewheel.bench_serve.workload import Load

_APIS = ("chat", "completions")
_GOALS = ("ttft", "tpot", "e2e")

Url = Annotated[str, typer.Option(help="Where the server is; /v1 may be left out.")]
ApiKey = Annotated[
    str, typer.Option(envvar="OPENAI_API_KEY", help="The environment is not seen by others.")
]
Model = Annotated[str, typer.Option(help="By default the first one that the server names.")]
Api = Annotated[str, typer.Option(help="chat or completions.")]
Rates = Annotated[
    list[float] | None,
    typer.Option(
        "--rate",
        metavar="PER_SECOND",
        help="Conversations begin at this rate, as a Poisson process; repeat it for more loads.",
    ),
]
Concurrencies = Annotated[
    list[int] | None,
    typer.Option(
        "--concurrency",
        min=1,
        metavar="COUNT",
        help="So many at once, each followed by the next; repeat it for more loads.",
    ),
]
Requests = Annotated[int, typer.Option(min=1, help="Conversations of each load.")]
Prompts = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="A prompt per line; as .jsonl texts, prompts or messages. Else random words.",
    ),
]
PromptTokens = Annotated[int, typer.Option(min=1, help="Random words of a question, about.")]
Spread = Annotated[
    float, typer.Option(min=0, max=1, help="Lengths vary by this share, up and down.")
]
Questions = Annotated[
    int, typer.Option(min=1, help="Of a conversation; each is sent with all that was said.")
]
Think = Annotated[
    str, typer.Option(metavar="TIME", help="Between an answer and the next question.")
]
SharedTokens = Annotated[
    int, typer.Option(min=0, help="Words of a system message that conversations share.")
]
NumShared = Annotated[int, typer.Option(min=1, help="Different ones of these.")]
MaxTokens = Annotated[int, typer.Option(min=1, help="Of an answer.")]
Fields = Annotated[
    list[str] | None,
    typer.Option(
        "--field",
        metavar="KEY=VALUE",
        help="In each request's body, e.g. ignore_eos=true; repeat it.",
    ),
]
Goals = Annotated[
    list[str] | None,
    typer.Option(
        "--goal",
        metavar="NAME=TIME",
        help="For goodput: ttft=500ms, tpot=50ms (per token) or e2e=10s; repeat it.",
    ),
]
Seed = Annotated[int, typer.Option(help="Of prompts and arrivals.")]
WarmUp = Annotated[int, typer.Option(min=0, help="Conversations before the first load.")]
Timeout = Annotated[str, typer.Option(metavar="TIME", help="Of a request; then it is an error.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="A JSON file.")]
ChartFile = Annotated[Path | None, typer.Option("--chart", help="An SVG file.")]


def bench_serve(
    context: typer.Context,
    url: Url = "http://127.0.0.1:8000",
    api_key: ApiKey = "",
    model: Model = "",
    api: Api = "chat",
    rates: Rates = None,
    concurrencies: Concurrencies = None,
    requests: Requests = 32,
    prompts: Prompts = None,
    prompt_tokens: PromptTokens = 128,
    spread: Spread = 0.0,
    questions: Questions = 1,
    think: Think = "0",
    shared_tokens: SharedTokens = 0,
    num_shared: NumShared = 1,
    max_tokens: MaxTokens = 64,
    fields: Fields = None,
    goals: Goals = None,
    seed: Seed = 0,
    warm_up: WarmUp = 1,
    timeout: Timeout = "10m",
    output: Output = None,
    chart: ChartFile = None,
) -> None:
    """Measure a server that speaks OpenAI's API. Needs `pip install pagewheel[serve]`.

    Ctrl-C prints and writes what was measured so far.

    [bold]Examples[/bold]

    pagewheel bench-serve --rate 1 --rate 2 --rate 4 --goal ttft=500ms -o result.json

    pagewheel bench-serve --concurrency 16 --requests 64 --field ignore_eos=true

    pagewheel bench-serve --rate 2 --shared-tokens 1000 --questions 3 --chart load.svg
    """
    if api not in _APIS:
        raise typer.BadParameter(f"allowed: {', '.join(_APIS)}", param_hint="--api")
    given = parse_properties(fields or [])
    bounds = _goals(goals or [])
    longest, pause = seconds("--timeout", timeout), seconds("--think", think)
    with failures(debug=context.obj):
        check_installed("bench-serve", "serve", ("aiohttp",))
        from pagewheel.bench_serve.call import Target
        from pagewheel.bench_serve.report import Report
        from pagewheel.bench_serve.run import Plan
        from pagewheel.bench_serve.session import run_loads
        from pagewheel.bench_serve.workload import Synthetic, read_file

        loads = _loads(rates or [], concurrencies or [])
        workload = (
            read_file(prompts)
            if prompts is not None
            else Synthetic(prompt_tokens, spread, questions, shared_tokens, num_shared)
        )
        base = api_base(url)
        name = model or first_model(base, api_key)
        target = Target(base, name, api, api_key, given, longest)
        plan = Plan(workload, requests, max_tokens, seed, pause)
        report = Report(target, plan, bounds, output, chart)
        run_loads(target, plan, loads, warm_up, report.add)
        report.print()
        if report.is_partial:
            raise typer.Exit(EXIT_INTERRUPTED)


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
        name, _, time = item.partition("=")
        if name not in _GOALS:
            raise typer.BadParameter(
                f"expected NAME=TIME of {', '.join(_GOALS)}, got {item!r}", param_hint="--goal"
            )
        goals[name] = seconds("--goal", time)
    return goals
