"""A run's record as tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

_ARROWS = {"higher": "more is better", "lower": "less is better"}


def number(value: float) -> str:
    """At least three significant digits, no exponent."""
    if value >= 1000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def _note(scenario: Mapping[str, Any]) -> str:
    taken, disturbed = scenario["counted_rounds"], scenario["disturbed_rounds"]
    note = f"median of {taken} round{'' if taken == 1 else 's'}"
    return f"{note}; {disturbed} disturbed" if disturbed else note


def bandwidth_share(
    record: Mapping[str, Any], metric: Mapping[str, Any], peer: str
) -> float | None:
    """Bytes of weights that one token reads, over what the machine could read in its time.

    Relative to one unit a second: multiply by the figure. The KV cache is not counted. None
    for a metric whose units do not read the weights once, or where the bandwidth is unknown.
    """
    bandwidth = record["machine"]["read_bandwidth_gb_s"]
    if not metric["reads_weights"] or bandwidth is None:
        return None
    weights = next(one["weight_bytes"] for one in record["peers"] if one["name"] == peer)
    return float(weights) / (bandwidth * 1e9)


def scenario_table(record: Mapping[str, Any], scenario: Mapping[str, Any]) -> Table:
    """Metrics down, peers down within a metric; ratios are to the first peer."""
    table = Table(title=scenario["title"], caption=_note(scenario), box=SIMPLE_HEAD)
    table.add_column("metric")
    table.add_column("peer", no_wrap=True)
    headings = ["median", "lowest..highest", "IQR", "ratio (lowest..highest)"]
    roofline = any(metric["reads_weights"] for metric in scenario["metrics"])
    if roofline:
        headings.append("of bandwidth")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for metric in scenario["metrics"]:
        label = f"{metric['title']}, {metric['unit']} ({_ARROWS[metric['better']]})"
        for peer, one in scenario["summary"][metric["key"]].items():
            share = bandwidth_share(record, metric, peer)
            roof = [f"{one['median'] * share:.0%}" if share else ""] if roofline else []
            table.add_row(
                label,
                peer,
                number(one["median"]),
                f"{number(one['low'])}..{number(one['high'])}",
                number(one["quartile_high"] - one["quartile_low"]),
                f"{one['ratio']:.2f} ({one['ratio_low']:.2f}..{one['ratio_high']:.2f})",
                *roof,
            )
            label = ""
        table.add_section()
    return table


def print_report(record: Mapping[str, Any], console: Console) -> None:
    """The machine, then a table per scenario."""
    machine = record["machine"]
    parts = [machine["cpu"], f"{machine['cores']} cores", machine["kernel"]]
    if machine["read_bandwidth_gb_s"] is not None:
        parts.append(f"reads {machine['read_bandwidth_gb_s']} GB/s")
    console.print(", ".join(parts), highlight=False)
    console.print(f"model {record['model']['name']}", highlight=False)
    for scenario in record["scenarios"]:
        console.print()
        if not scenario["counted_rounds"]:
            console.print(f"{scenario['title']}: no undisturbed round, so no figure")
            continue
        console.print(scenario_table(record, scenario), highlight=False)
