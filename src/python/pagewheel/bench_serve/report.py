"""What a run leaves: a table on the terminal, a result file and a chart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rich.console import Console

from pagewheel import __version__
from pagewheel.bench_serve.call import Target
from pagewheel.bench_serve.chart import draw
from pagewheel.bench_serve.run import Measured, Plan
from pagewheel.bench_serve.summary import Summary, as_json, summarise
from pagewheel.bench_serve.table import print_table

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
        """Of the next load."""
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
