"""`pagewheel info`: what an IR folder says about its model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from pagewheel.hub_files import shown_size
from pagewheel.model_info import ModelInfo, read_info


def _rows(info: ModelInfo) -> list[tuple[str, str]]:
    def shown(value: object) -> str:
        return "not stated" if value is None else str(value)

    weights = [
        f"{name}: {shown_size(one.bytes)} in {one.tensors} tensors"
        for name, one in info.weights.items()
    ]
    cache = [
        f"{name}: {shown_size(count)}" + (" + scales" if name in ("u8", "u4") else "")
        for name, count in info.kv_cache_bytes_per_token.items()
    ]
    rotary = [f"{key} {value}" for key, value in info.rotary.items() if key != "kinds"]
    rotary += [
        ", ".join(f"{key} {value}" for key, value in kind.items())
        for kind in info.rotary.get("kinds", [])
    ]
    windows = [f"{size} in {count} layers" for size, count in info.windows.items() if size]
    return [
        ("folder", info.folder),
        ("converted from", shown(info.source)),
        *([("weight format", info.weight_format)] if info.weight_format else []),
        ("architecture", shown(info.architecture)),
        ("layers", shown(info.layers)),
        *([("with states", _numbers(info.layers_without_pages))] * bool(info.layers_without_pages)),
        ("heads", f"{shown(info.heads)} ({shown(info.kv_heads)} kv heads)"),
        ("head size", shown(info.head_size)),
        ("hidden size", shown(info.hidden_size)),
        ("vocabulary", f"{shown(info.vocabulary)} tokens"),
        ("context", f"{shown(info.context)} tokens"),
        ("rotary", ("\n" if "kinds" in info.rotary else ", ").join(rotary) or "not stated"),
        ("sliding windows", ", ".join(windows) or "none"),
        *([("soft cap", f"{info.attention_soft_cap:g}")] if info.attention_soft_cap else []),
        ("parameters", _parameters(info)),
        ("weights", "\n".join(weights)),
        ("on disk", shown_size(info.bytes_on_disk)),
        ("KV cache per token", "\n".join(cache) or "not stated"),
    ]


def _numbers(layers: list[int]) -> str:
    return ", ".join(map(str, layers))


def _parameters(info: ModelInfo) -> str:
    if info.parameters is None or info.weight_bytes_per_token is None:
        return "not stated"
    text = f"{info.parameters / 1e6:,.1f} million"
    if info.active_parameters != info.parameters:
        text += f", {(info.active_parameters or 0) / 1e6:,.1f} million active"
    return f"{text}; a token reads {shown_size(info.weight_bytes_per_token)}"


def _threads() -> dict[str, Any]:
    """Says how many a pipeline on CPU with default properties has here."""
    from pagewheel._pagewheel import describe_threads

    found = describe_threads()
    return {"count": found.count, "why": found.why}


def _operations(folder: Path) -> dict[str, Any]:
    """What a pipeline on CPU with default properties runs where, and what it leaves out."""
    from pagewheel._pagewheel import describe_operations

    found = describe_operations(folder)
    counts: dict[str, dict[str, int]] = {}
    for one in found.counts:
        counts.setdefault(one.runs_on, {})[one.operation] = one.count
    trimmed = found.fast_prefill
    return {
        "operations": counts,
        "left_to_openvino": found.left,
        "linear_layers": found.linear,
        "fast_prefill": {
            "layers": trimmed.layers,
            "attention_nodes": trimmed.attention_nodes,
            "work_skipped": trimmed.work_skipped,
            "why": trimmed.why,
        },
    }


def operation_rows(operations: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Labels and texts of what _operations() found."""
    rows = []
    for place, counts in operations["operations"].items():
        text = "\n".join(f"{count} {name}" for name, count in counts.items())
        rows.append((f"runs in {place}", text))
    if operations["left_to_openvino"]:
        rows.append(("why", "\n".join(operations["left_to_openvino"])))
    if operations["linear_layers"]:
        rows.append(("linear layers", operations["linear_layers"]))
    rows.append(("fast prefill", "\n".join(_trimmed_lines(operations["fast_prefill"]))))
    return rows


def _trimmed_lines(trimmed: Mapping[str, Any]) -> list[str]:
    """Says what goes, and what keeps more from going."""
    if not trimmed["work_skipped"]:
        return ["trims nothing", *trimmed["why"]]
    what = "less than a layer"
    if trimmed["layers"]:
        layers = _counted(trimmed["layers"], "layer")
        what = f"{layers}, {_counted(trimmed['attention_nodes'], 'attention node')}"
    share = f"{trimmed['work_skipped']:.1%} of a prompt's work in weights"
    return [f"trims {what}: {share}", *trimmed["why"]]


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def print_info(folder: Path, *, as_json: bool, with_ops: bool = False) -> None:
    """Prints a table or JSON."""
    info = read_info(folder)
    threads = _threads()
    operations = _operations(folder) if with_ops else {}
    if as_json:
        typer.echo(json.dumps(asdict(info) | {"threads": threads} | operations, indent=2))
        return
    rows = [*_rows(info), ("threads", f"{threads['count']}: {threads['why']}")]
    for label, text in rows + (operation_rows(operations) if operations else []):
        for line in text.splitlines() or [""]:
            typer.echo(f"{label:<20}{line}")
            label = ""
