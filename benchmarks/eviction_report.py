"""The results of eviction_quality as a table and a chart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

SHARES = (0.25, 0.5, 0.75)


def mean(value: float | list[float] | None) -> float | None:
    """Agreement is written down by prompt."""
    return float(np.mean(value)) if isinstance(value, list) else value


def table(results: dict[str, dict[str, Any]]) -> str:
    """Markdown; a row per engine, policy, granularity and rotation."""
    rows = sorted({key.rsplit(" ", 1)[0] for part in results.values() for key in part})
    names = ("passkey", "recall", "agreement")
    heads = "".join(f"| {name} {share:.0%} " for name in names for share in SHARES)
    lines = [
        f"| engine, policy, granularity, positions {heads}| stream inside | beyond |",
        "|---|" + "---|" * (2 + len(names) * len(SHARES)),
    ]

    def text(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    for row in rows:
        full = " full " in row
        cells = [
            text(mean(results.get(name, {}).get(f"{row} {1 if full else share:g}")), ".0%")
            for name in names
            for share in SHARES
        ]
        streamed = results.get("stream", {}).get(f"{row} {'1' if full else '0.5'}", {})
        cells += [text(streamed.get("inside"), ".2f"), text(streamed.get("beyond"), ".2f")]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Passkey, recall and agreement by budget, a line per setting with rotation."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    names = ("passkey", "recall", "agreement")
    policies = sorted({key.split(" ")[1] for name in names for key in results.get(name, {})})
    lines: dict[str, Any] = {}
    for axes, name in zip(figure.subplots(1, 3), names, strict=True):
        for row in sorted({key.rsplit(" ", 1)[0] for key in results.get(name, {})}):
            engine, policy, granularity, positions = row.split(" ")
            if policy == "full" or (engine == "pagewheel" and positions == "absolute"):
                continue
            values = [mean(results[name].get(f"{row} {share:g}")) for share in SHARES]
            style = ":" if engine != "pagewheel" else "-" if granularity == "token" else "--"
            colour = "black" if engine != "pagewheel" else f"C{policies.index(policy)}"
            marker = "x" if positions == "absolute" else "o"
            label = row.replace(" rotation", "").replace("pagewheel ", "")
            lines[label] = axes.plot(SHARES, values, style, marker=marker, color=colour)[0]
        axes.set_title(f"{name}, by share of the prompt kept")
        axes.set_ylim(-0.02, 1.02)
        axes.set_xticks(SHARES)
    figure.legend(list(lines.values()), list(lines), fontsize=7, loc="outside right upper")
    figure.savefig(path, dpi=70)
