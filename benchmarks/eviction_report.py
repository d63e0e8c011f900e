"""The results of eviction_quality as a table and a chart."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Passkey, recall and agreement by budget, a line per setting.

    pagewheel's policies with rotation, a colour each: single tokens with circles, blocks dashed
    with squares.
    """
    from matplotlib.ticker import PercentFormatter

    from benchmarks.chart_style import chart, legend_below

    names = ("passkey", "recall", "agreement")
    policies = sorted(
        {key.split(" ")[1] for name in names for key in results.get(name, {})},
        key=lambda policy: (policy != "norm_sum", policy),  # the default has the first colour
    )
    title = "What is left of the full cache's answers, by the share of the prompt that is kept"
    lines: dict[str, Any] = {}
    with chart(path, 12, 5.2, title) as figure:
        for axes, name in zip(figure.subplots(1, 3), names, strict=True):
            for row in sorted({key.rsplit(" ", 1)[0] for key in results.get(name, {})}):
                values = [mean(results[name].get(f"{row} {share:g}")) for share in SHARES]
                look = _look(row, policies)
                if look is not None and any(value is not None for value in values):
                    label = _label(row)
                    lines[label] = axes.plot(SHARES, np.array(values, float), **look)[0]
            axes.set_title(name)
            axes.set_xlabel("budget, share of the prompt")
            axes.set_ylabel(_UNITS[name])
            axes.set_ylim(-0.02, 1.04)
            axes.set_xlim(0.2, 0.8)
            axes.set_xticks(SHARES)
            axes.xaxis.set_major_formatter(PercentFormatter(1))
            axes.yaxis.set_major_formatter(PercentFormatter(1))
        legend_below(figure, list(lines.values()), list(lines))


_UNITS = {
    "passkey": "pass keys told",
    "recall": "facts told",
    "agreement": "tokens before the first difference",
}


def _label(row: str) -> str:
    engine, policy, granularity, positions = row.split(" ")
    if engine == "pagewheel":
        return f"{policy}, {granularity}"
    return f"{engine} {policy}, {'no rotation' if positions == 'absolute' else positions}"


def _look(row: str, policies: Sequence[str]) -> dict[str, Any] | None:
    """How a setting's line looks; None: it is not drawn."""
    from benchmarks.chart_style import ENGINES, OTHERS

    engine, policy, granularity, positions = row.split(" ")
    if policy == "full" or (engine == "pagewheel" and positions == "absolute"):
        return None
    if engine != "pagewheel":
        marker = "x" if positions == "absolute" else "+"
        return {"color": ENGINES[engine], "linestyle": ":", "marker": marker}
    colours = (ENGINES["pagewheel"], ENGINES["llama.cpp"], *OTHERS)
    colour = colours[policies.index(policy) % len(colours)]
    if granularity == "token":
        return {"color": colour, "linestyle": "-", "marker": "o"}
    return {"color": colour, "linestyle": "--", "marker": "s", "markerfacecolor": "none"}
