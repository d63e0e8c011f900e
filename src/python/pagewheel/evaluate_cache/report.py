"""Results: a number per sample, their means with standard errors, a table, a chart and a file."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from pagewheel import __version__
from pagewheel.errors import InvalidArgumentError
from pagewheel.evaluate_cache.run import FULL, Plan, Setting
from pagewheel.evaluate_cache.tasks import TASKS
from pagewheel.trace.svg import (
    BLUE,
    BROWN,
    GOLD,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    PURPLE,
    RED,
    TEAL,
    Axes,
    Figure,
    short,
    ticks,
)

# What a column's numbers are: shares are printed in percent, losses as perplexities.
SHARE, NATS, LOSS = "share", "nats", "loss"
PARTS = {
    **{name: {name: SHARE} for name in TASKS},
    "prose": {"prose agreement": SHARE, "prose KL": NATS},
    "code": {"code agreement": SHARE, "code KL": NATS},
    "stream": {"perplexity inside": LOSS, "perplexity beyond": LOSS},
}
COLUMNS = {column: kind for part in PARTS.values() for column, kind in part.items()}
_FORMAT = 1


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Gives the mean and its standard error, 0 for one value, which says nothing of it."""
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return fmean(values), error


def cell(values: Sequence[float], kind: str) -> str:
    mean, error = mean_and_error(values)
    if kind == SHARE:
        return f"{100 * mean:.0f} ± {100 * error:.0f}"
    if kind == LOSS:
        return f"{math.exp(mean):.2f} ± {math.exp(mean) * error:.2f}"
    return f"{mean:.3f} ± {error:.3f}"


class Report:
    """Results by column and setting, written to the file as they come."""

    def __init__(self, model: str, plan: Plan, path: Path | None = None) -> None:
        """Goes on with a file that exists. Raises InvalidArgumentError for another plan's."""
        self.path = path
        self.about: dict[str, Any] = json.loads(json.dumps({"model": model, **asdict(plan)}))
        self.results: dict[str, dict[str, list[float]]] = {}
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            about, results = dict(content["about"]), content["results"]
        except (ValueError, KeyError, TypeError):
            raise InvalidArgumentError(f"{path} is no result of evaluate-cache") from None
        for name, value in self.about.items():
            if about.get(name) != value:
                raise InvalidArgumentError(
                    f"{path} has {name} {about.get(name)}, which is {value} now; name another file"
                )
        self.results = results

    @staticmethod
    def key(setting: Setting) -> str:
        return setting.text if setting.text == FULL else f"{setting.text} {setting.share:g}"

    def has(self, part: str, setting: Setting) -> bool:
        key = self.key(setting)
        return any(key in self.results.get(column, {}) for column in PARTS[part])

    def add(self, column: str, setting: Setting, values: Sequence[float]) -> None:
        if not values:
            return
        self.results.setdefault(column, {})[self.key(setting)] = list(values)
        if self.path is not None:
            content = {
                "format": _FORMAT,
                "version": __version__,
                "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "about": self.about,
                "results": self.results,
            }
            self.path.write_text(json.dumps(content), encoding="utf-8")

    @property
    def keys(self) -> list[str]:
        """Settings in the order they were measured, the full cache first."""
        found = dict.fromkeys(key for rows in self.results.values() for key in rows)
        return sorted(found, key=lambda key: key != FULL)

    def markdown(self) -> str:
        """A table with a row for each setting."""
        columns = [column for column in COLUMNS if column in self.results]
        lines = [
            "| policy, budget | " + " | ".join(columns) + " |",
            "|---" * (len(columns) + 1) + "|",
        ]
        for key in self.keys:
            cells = [
                cell(self.results[column][key], COLUMNS[column])
                if key in self.results[column]
                else "-"
                for column in columns
            ]
            lines.append(f"| {key} | " + " | ".join(cells) + " |")
        return "\n".join(lines) + "\n"

    def chart(self) -> str:
        """An SVG file: a panel per column, a line per policy over its budgets."""
        return _draw(self.results, self.keys, f"Cache eviction, {self.about['model']}")


_PALE = "#b9bec6"
_COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, TEAL, GOLD, PINK, BROWN, GREY)
_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP, _PER_ROW = 210, 150, 72, 64, 84, 4


def _draw(results: dict[str, dict[str, list[float]]], keys: Sequence[str], title: str) -> str:
    columns = [column for column in COLUMNS if column in results]
    names = list(dict.fromkeys(key.rsplit(" ", 1)[0] for key in keys if key != FULL))
    colours = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(names)}
    rows = -(-len(columns) // _PER_ROW)
    bottom = _TOP + rows * (_HEIGHT + 84)
    figure = Figure(_LEFT + _PER_ROW * (_WIDTH + _GAP), bottom + 19 * (len(names) + 1) + 12)
    figure.text(_LEFT - 48, 24, title, size=14, bold=True)
    for number, column in enumerate(columns):
        left = _LEFT + number % _PER_ROW * (_WIDTH + _GAP)
        top = _TOP + number // _PER_ROW * (_HEIGHT + 84)
        _panel(figure, (left, top), column, results[column], colours)
    entries = [*((colour, name) for name, colour in colours.items()), (_PALE, "full cache")]
    figure.swatches(_LEFT, bottom - 16, entries)
    return figure.render(title)


def _panel(
    figure: Figure,
    corner: tuple[float, float],
    column: str,
    cells: dict[str, list[float]],
    colours: dict[str, str],
) -> None:
    scale = 100 if COLUMNS[column] == SHARE else 1
    means = {key: scale * mean_and_error(values)[0] for key, values in cells.items()}
    errors = {key: scale * mean_and_error(values)[1] for key, values in cells.items()}
    highest = 100 if COLUMNS[column] == SHARE else max(means.values()) * 1.1 or 1.0
    shares = [float(key.rsplit(" ", 1)[1]) * 100 for key in cells if key != FULL] or [100.0]
    widest = max(shares) * 1.1
    axes = Axes(figure, (*corner, _WIDTH, _HEIGHT), (0, widest), (0, highest))
    axes.title(column)
    units = {SHARE: "%", NATS: "nats", LOSS: "nats a token"}
    axes.y_axis(ticks(0, highest, 5), units[COLUMNS[column]], short, grid=True)
    axes.x_axis(ticks(0, widest, 5), "budget, % of the prompt", short)
    if FULL in means:
        y = axes.y(means[FULL])
        figure.line([(corner[0], y), (corner[0] + _WIDTH, y)], _PALE, width=2)
    for name, colour in colours.items():
        points = sorted(
            (float(key.rsplit(" ", 1)[1]) * 100, key)
            for key in cells
            if key != FULL and key.rsplit(" ", 1)[0] == name
        )
        figure.line([(axes.x(x), axes.y(means[key])) for x, key in points], colour, width=1.6)
        for x, key in points:
            ends = [max(0.0, means[key] - errors[key]), min(highest, means[key] + errors[key])]
            figure.line([(axes.x(x), axes.y(end)) for end in ends], colour)
            figure.rect(axes.x(x) - 2.5, axes.y(means[key]) - 2.5, 5, 5, colour)
    axes.frame()
