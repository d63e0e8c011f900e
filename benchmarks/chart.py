"""A run's record as a PNG: one panel per scenario and unit, bars with lowest..highest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from benchmarks.chart_style import ENGINES, OTHERS, chart, legend_below
from benchmarks.report import number
from pagewheel.trace.svg import INK

_COLUMNS = 3


def peer_colours(peers: Sequence[str]) -> dict[str, str]:
    """The same colour for an engine in every chart; unknown peers take the rest in order."""
    others = [peer for peer in peers if peer not in ENGINES]
    extra = {peer: OTHERS[i % len(OTHERS)] for i, peer in enumerate(others)}
    return {peer: ENGINES.get(peer) or extra[peer] for peer in peers}


def _panels(record: Mapping[str, Any]) -> list[tuple[str, list[Any], Mapping[str, Any]]]:
    """Title, metrics and summaries of each panel; a panel has one unit."""
    panels = []
    for scenario in record["scenarios"]:
        if not scenario["counted_rounds"]:
            continue
        for unit in dict.fromkeys(metric["unit"] for metric in scenario["metrics"]):
            metrics = [metric for metric in scenario["metrics"] if metric["unit"] == unit]
            panels.append((scenario["title"], metrics, scenario["summary"]))
    return panels


def _draw(
    axes: Axes, title: str, metrics: Sequence[Any], summary: Any, colours: Mapping[str, str]
) -> None:
    width = 0.8 / len(colours)
    crowded = len(colours) * len(metrics) > 9
    top = 0.0
    for position, (peer, colour) in enumerate(colours.items()):
        ones = [summary[metric["key"]][peer] for metric in metrics]
        places = [i - 0.4 + width * (position + 0.5) for i in range(len(metrics))]
        medians = [one["median"] for one in ones]
        spread = [
            [one["median"] - one["low"] for one in ones],
            [one["high"] - one["median"] for one in ones],
        ]
        axes.bar(
            places,
            medians,
            width * 0.92,
            yerr=spread,
            color=colour,
            label=peer,
            error_kw={"capsize": 3, "linewidth": 1, "ecolor": INK},
        )
        for place, one in zip(places, ones, strict=True):
            top = max(top, one["high"])
            axes.annotate(
                number(one["median"]),
                (place, one["high"]),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                rotation=90 if crowded else 0,
            )
    axes.set_title(title.replace(": ", "\n", 1))
    axes.set_xticks(range(len(metrics)), [metric["title"] for metric in metrics])
    axes.set_xlim(-0.6, len(metrics) - 0.4)
    axes.set_ylim(0, top * (1.25 if crowded else 1.15))
    axes.set_ylabel(f"{metrics[0]['unit']} ({metrics[0]['better']} is better)")


def save_chart(record: Mapping[str, Any], path: Path) -> None:
    """Write the PNG. Raises ValueError if no scenario has a figure."""
    panels = _panels(record)
    if not panels:
        raise ValueError("nothing to draw: no scenario has an undisturbed round")
    colours = peer_colours([peer["name"] for peer in record["peers"]])
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    machine = record["machine"]
    title = (
        f"{record['model']['name']}\n{machine['cpu']}, {machine['cores']} cores; "
        "medians, bars from lowest to highest round"
    )
    with chart(path, max(6.0, 4.2 * columns), 3.6 * rows + 1.0, title) as figure:
        grid = figure.subplots(rows, columns, squeeze=False).flatten()
        for axes, (panel, metrics, summary) in zip(grid, panels, strict=False):
            _draw(axes, panel, metrics, summary, colours)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        legend_below(figure, *grid[0].get_legend_handles_labels())
