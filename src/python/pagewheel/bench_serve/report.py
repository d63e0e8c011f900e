"""What a run leaves: a table on the terminal, a result file and a chart."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pagewheel import __version__
from pagewheel.bench_serve.call import Target
from pagewheel.bench_serve.chart import draw
from pagewheel.bench_serve.run import Measured, Plan
from pagewheel.bench_serve.summary import Distribution, Summary, as_json, summarise

# Above this share of a core, times that clients saw may be this program's own.
_BUSY_CLIENT = 0.8


def print_table(summaries: Sequence[Summary], console: Console) -> None:
    """Prints a column for each load."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for one in summaries:
        table.add_column(one.load, justify="right")
    for name, value in _ROWS.items():
        table.add_row(name, *(value(one) for one in summaries))
    console.print(table)
    for line in notes(summaries):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _milliseconds(found: Distribution) -> str:
    values = [found.percentiles[name] for name in ("p50", "p90", "p99")]
    return " / ".join("-" if value is None else f"{value * 1e3:.1f}" for value in values)


_ROWS: dict[str, Callable[[Summary], str]] = {
    "requests answered": lambda one: str(one.num_answered),
    "errors": lambda one: str(sum(one.errors.values())),
    "requests/s": lambda one: f"{one.requests_per_second:.2f}",
    "within the goals/s": lambda one: "-" if one.goodput is None else f"{one.goodput:.2f}",
    "generated tokens/s": lambda one: f"{one.tokens_per_second:.1f}",
    "prompt tokens, cached": lambda one: f"{one.prompt_tokens}, {one.cached_tokens}",
    "first token, p50/p90/p99 ms": lambda one: _milliseconds(one.first_token),
    "between pieces, ms": lambda one: _milliseconds(one.between_pieces),
    "per token, ms": lambda one: _milliseconds(one.per_token),
    "whole answer, ms": lambda one: _milliseconds(one.whole),
    "sent late by, ms": lambda one: _milliseconds(one.lateness),
    "client's share of a core": lambda one: f"{one.client_load:.0%}",
}


def notes(summaries: Sequence[Summary]) -> list[str]:
    """Says what a reader of the numbers must know."""
    lines = []
    for one in summaries:
        for kind, count in one.errors.items():
            message = one.error_messages[kind]
            lines.append(f"{one.load}: {count} times {kind}" + (f": {message}" if message else ""))
        if one.is_partial:
            lines.append(f"{one.load}: interrupted, {one.num_cut_off} requests were under way")
        if one.client_load > _BUSY_CLIENT:
            lines.append(
                f"{one.load}: this program took {one.client_load:.0%} of a core: "
                "the times may be its own"
            )
        if one.num_answered and not one.counts_are_given:
            lines.append(
                f"{one.load}: the server does not say how many tokens there were; "
                "pieces of streams were counted"
            )
    return lines


_FORMAT = 1  # of the result file


class Report:
    """Files are written after each load, so that what was measured is not lost."""

    def __init__(
        self,
        target: Target,
        plan: Plan,
        goals: Mapping[str, float],
        output: Path | None,
        chart: Path | None,
    ) -> None:
        self._goals = goals
        self._output = output
        self._chart = chart
        self._summaries: list[Summary] = []
        self._loads: list[dict[str, Any]] = []
        self._title = f"{target.model} at {target.url}"
        self._head = {
            "version": _FORMAT,
            "pagewheel": __version__,
            "begin": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "url": target.url,
            "model": target.model,
            "api": target.api,
            "fields": dict(target.fields),
            "workload": plan.workload.settings(),
            "conversations_per_load": plan.num_conversations,
            "max_tokens": plan.max_tokens,
            "seed": plan.seed,
            "think_seconds": plan.think_seconds,
        }

    @property
    def is_partial(self) -> bool:
        """Whether the run was stopped."""
        return any(each.is_partial for each in self._summaries)

    def add(self, measured: Measured) -> None:
        """Adds the next load and writes the files."""
        summary = summarise(measured, self._goals)
        self._summaries.append(summary)
        self._loads.append(as_json(summary, measured.calls))
        if self._output is not None:
            text = json.dumps({**self._head, "loads": self._loads}, indent=1)
            self._output.write_text(text + "\n", encoding="utf-8")
        if self._chart is not None:
            self._chart.write_text(draw(self._summaries, self._title), encoding="utf-8")

    def print(self) -> None:
        print_table(self._summaries, Console())
