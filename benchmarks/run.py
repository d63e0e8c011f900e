"""The harness's command line: `python -m benchmarks --help`."""

from __future__ import annotations

import importlib
import json
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.load import Limits
from benchmarks.machine import describe
from benchmarks.peers import Peer, parse_peers
from benchmarks.prompts import real_text
from benchmarks.record import run_record, share_of_a_token
from benchmarks.report import print_report
from benchmarks.scenarios import SCENARIOS
from benchmarks.session import BusyError, Plan, Session
from benchmarks.worker_process import WorkerError

EXIT_FAILED = 1
EXIT_BUSY = 3

ScenarioName = Enum("ScenarioName", {name: name for name in SCENARIOS}, type=str)  # type: ignore[misc]


def _default_model() -> Path:
    module = importlib.import_module("pagewheel.default_model")
    return Path(module.default_model())


def _measure(
    plan: Plan,
    peers: list[Peer],
    names: list[str],
    text: Path | None,
    allow_busy: bool,
    console: Console,
) -> dict[str, Any]:
    with Session(plan, peers, lambda line: console.print(line, highlight=False)) as session:
        source = session.start(real_text(text))
        if not allow_busy:
            session.require_quiet()
        machine = describe()
        share = share_of_a_token(plan.model)
        results = [session.run(SCENARIOS[name]) for name in names]
        return run_record(
            command=sys.argv[1:],
            machine=machine,
            model=plan.model,
            prompts_sha256=source.digest(),
            peers=peers,
            settings=session.settings,
            weight_bytes={name: round(size * share) for name, size in session.weight_bytes.items()},
            allow_busy=allow_busy,
            scenarios=results,
        )


def command(
    scenario: Annotated[
        list[ScenarioName] | None, typer.Option(help="What to measure; repeat it. All by default.")
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=ENGINE]",
            help="Whom to measure; repeat it. Ratios are to the first. An engine may run twice "
            "under two names. By default pagewheel and openvino-genai.",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(exists=True, help="A .gguf file or model folder; by default SmolLM2-135M."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds for each scenario.")] = 5,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PEER.KEY=VALUE",
            help="An engine's option: a SchedulerConfig field, else a device property.",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="OpenVINO device.")] = "CPU",
    text: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Text to cut prompts from (UTF-8)."),
    ] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write samples, versions and settings here.")
    ] = None,
    chart: Annotated[Path | None, typer.Option(help="Write a chart here (PNG).")] = None,
    allow_busy: Annotated[
        bool, typer.Option("--allow-busy", help="Measure on a busy machine, marked as such.")
    ] = False,
    busy_limit: Annotated[
        float, typer.Option(min=0.0, help="Cores that other processes may use.")
    ] = Limits.others,
    max_repeats: Annotated[
        int, typer.Option(min=0, help="How often a disturbed round is repeated.")
    ] = 2,
    timeout: Annotated[float, typer.Option(min=1.0, help="Seconds for one answer.")] = 600.0,
) -> None:
    """Measure pagewheel beside other engines, in alternating rounds, on one model file.

    Every engine runs in a process of its own that waits asleep while another is
    measured. A round in which other work disturbed the machine is repeated, and does
    not count if it stays disturbed (it does, marked, with --allow-busy).

    Exit codes: 1 an engine failed, 2 usage, 3 the machine is busy.

    \b
    Examples:
      python -m benchmarks --scenario decode --scenario batch --chart speed.png
      python -m benchmarks --peer pagewheel --peer openvino-genai \\
          --peer genai-bf16=openvino-genai --set genai-bf16.KV_CACHE_PRECISION=bf16
    """
    try:
        peers = parse_peers(peer or ["pagewheel", "openvino-genai"], settings or [])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    names = [str(one.value) for one in scenario] if scenario else list(SCENARIOS)
    plan = Plan(
        model=model or _default_model(),
        device=device,
        rounds=rounds,
        max_repeats=max_repeats,
        timeout=timeout,
        limits=Limits(others=busy_limit),
    )
    progress = Console(stderr=True)
    try:
        record = _measure(plan, peers, names, text, allow_busy, progress)
    except BusyError as error:
        progress.print(f"machine busy: {error}; wait or use --allow-busy", markup=False)
        raise typer.Exit(EXIT_BUSY) from error
    except (WorkerError, ValueError, OSError) as error:
        progress.print(f"error: {error}", markup=False)
        raise typer.Exit(EXIT_FAILED) from error
    if json_path is not None:
        json_path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    console = Console()
    # A pipe has no width of its own: one that no cell has to wrap in.
    print_report(record, console if console.is_terminal else Console(width=120))
    if any(not one["counted_rounds"] for one in record["scenarios"]):
        progress.print("some scenarios had no undisturbed round", markup=False)
        raise typer.Exit(EXIT_BUSY)
    if chart is not None:
        from benchmarks.chart import save_chart

        save_chart(record, chart)


def main() -> None:
    """Entry point."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    app(prog_name="python -m benchmarks")
