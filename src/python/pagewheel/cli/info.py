"""`pagewheel info`: what an IR folder says about its model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

_CACHE_BITS = {"f32": 32, "f16": 16, "u8": 8}


@dataclass(frozen=True)
class Weights:
    """The constants of one element type."""

    tensors: int
    bytes: int


@dataclass(frozen=True)
class ModelInfo:
    """A description of a model folder. Sizes in bytes; None is what its config does not say.

    `kv_cache_bytes_per_token` covers keys and values of all layers, per format and
    without the scales of u8.
    """

    folder: str
    source: str | None
    architecture: str | None
    layers: int | None
    heads: int | None
    kv_heads: int | None
    head_size: int | None
    hidden_size: int | None
    vocabulary: int | None
    context: int | None
    rotary: dict[str, Any]
    weights: dict[str, Weights]
    bytes_on_disk: int
    kv_cache_bytes_per_token: dict[str, int]


def _read_json(path: Path) -> dict[str, Any]:
    """Empty without the file."""
    if not path.is_file():
        return {}
    value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object")
    return value


def _weights(model: Path) -> dict[str, Weights]:
    """Constants by element type, largest type first."""
    import openvino

    found: dict[str, Weights] = {}
    for node in openvino.Core().read_model(model).get_ops():
        if node.get_type_name() == "Constant":
            name = node.get_output_element_type(0).get_type_name()
            one = found.get(name, Weights(0, 0))
            found[name] = Weights(one.tensors + 1, one.bytes + node.get_byte_size())
    return dict(sorted(found.items(), key=lambda item: -item[1].bytes))


def _rotary(config: Mapping[str, Any], description: Mapping[str, Any]) -> dict[str, Any]:
    """Base, dims and scaling, out of pagewheel.json where it is there."""
    own = description.get("rotary", {})
    parameters = config.get("rope_parameters") or {}
    rotary = {
        "theta": own.get("theta", config.get("rope_theta", parameters.get("rope_theta"))),
        "dims": own.get("dims"),
        "pairing": own.get("pairing"),
        "scaling": config.get("rope_scaling"),
    }
    return {key: value for key, value in rotary.items() if value is not None}


def _cache_bytes(layers: int | None, kv_heads: int | None, head: int | None) -> dict[str, int]:
    if layers is None or kv_heads is None or head is None:
        return {}
    values = 2 * layers * kv_heads * head
    return {name: values * bits // 8 for name, bits in _CACHE_BITS.items()}


def read_info(folder: Path) -> ModelInfo:
    """Read a folder with openvino_model.xml. Raises what OpenVINO and json raise."""
    config = _read_json(folder / "config.json")
    description = _read_json(folder / "pagewheel.json")
    layers, heads = config.get("num_hidden_layers"), config.get("num_attention_heads")
    kv_heads = config.get("num_key_value_heads", heads)
    hidden = config.get("hidden_size")
    head_size = config.get("head_dim") or (hidden // heads if hidden and heads else None)
    names = config.get("architectures") or [None]
    return ModelInfo(
        folder=str(folder),
        source=description.get("source", {}).get("file"),
        architecture=names[0] or config.get("model_type"),
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        hidden_size=hidden,
        vocabulary=config.get("vocab_size"),
        context=config.get("max_position_embeddings"),
        rotary=_rotary(config, description),
        weights=_weights(folder / "openvino_model.xml"),
        bytes_on_disk=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        kv_cache_bytes_per_token=_cache_bytes(layers, kv_heads, head_size),
    )


def _size(count: int) -> str:
    """1 KB is 1000 bytes."""
    value = float(count)
    for unit in ("bytes", "KB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.2f} GB"


def _rows(info: ModelInfo) -> list[tuple[str, str]]:
    def shown(value: object) -> str:
        return "not stated" if value is None else str(value)

    weights = [
        f"{name}: {_size(one.bytes)} in {one.tensors} tensors" for name, one in info.weights.items()
    ]
    cache = [
        f"{name}: {_size(count)}" + (" + scales" if name == "u8" else "")
        for name, count in info.kv_cache_bytes_per_token.items()
    ]
    rotary = [f"{key} {value}" for key, value in info.rotary.items()]
    return [
        ("folder", info.folder),
        ("converted from", shown(info.source)),
        ("architecture", shown(info.architecture)),
        ("layers", shown(info.layers)),
        ("heads", f"{shown(info.heads)} ({shown(info.kv_heads)} kv heads)"),
        ("head size", shown(info.head_size)),
        ("hidden size", shown(info.hidden_size)),
        ("vocabulary", f"{shown(info.vocabulary)} tokens"),
        ("context", f"{shown(info.context)} tokens"),
        ("rotary", ", ".join(rotary) or "not stated"),
        ("weights", "\n".join(weights)),
        ("on disk", _size(info.bytes_on_disk)),
        ("KV cache per token", "\n".join(cache) or "not stated"),
    ]


def _operations(folder: Path) -> dict[str, Any]:
    """What a pipeline on CPU with default properties runs where."""
    from pagewheel._pagewheel import describe_operations

    found = describe_operations(str(folder))
    counts: dict[str, dict[str, int]] = {}
    for one in found.counts:
        counts.setdefault(one.runs_on, {})[one.operation] = one.count
    return {"operations": counts, "left_to_openvino": found.left}


def print_info(folder: Path, *, as_json: bool, with_ops: bool = False) -> None:
    """To standard output, as a table or as JSON."""
    info = read_info(folder)
    operations = _operations(folder) if with_ops else {}
    if as_json:
        typer.echo(json.dumps(asdict(info) | operations, indent=2))
        return
    rows = _rows(info)
    for place, counts in operations.get("operations", {}).items():
        text = "\n".join(f"{count} {name}" for name, count in counts.items())
        rows.append((f"runs in {place}", text))
    if operations.get("left_to_openvino"):
        rows.append(("why", "\n".join(operations["left_to_openvino"])))
    for label, text in rows:
        for line in text.splitlines() or [""]:
            typer.echo(f"{label:<20}{line}")
            label = ""
