"""`pagewheel info`: what an IR folder says about its model."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import typer

from pagewheel.convert.architectures.registry import read_architecture
from pagewheel.convert.decoder.architecture import Architecture
from pagewheel.convert.files.folders import check_description_version
from pagewheel.convert.files.source_folder import read_json_object
from pagewheel.errors import ConversionError

_CACHE_BITS = {"f32": 32, "f16": 16, "u8": 8, "u4": 4}


@dataclass(frozen=True)
class Weights:
    """The constants of one element type."""

    tensors: int
    bytes: int


@dataclass(frozen=True)
class ModelInfo:
    """A description of a model folder. Sizes in bytes; None is what its config does not say.

    `kv_cache_bytes_per_token` covers keys and values of all layers, per format and
    without the scales of u8 and u4. `windows` are the sliding windows and how many layers have
    each, 0 for none. `attention_soft_cap` bounds attention logits; 0: nothing does.
    """

    folder: str
    source: str | None
    weight_format: str | None
    architecture: str | None
    layers: int | None
    heads: int | None
    kv_heads: int | None
    head_size: int | None
    hidden_size: int | None
    vocabulary: int | None
    context: int | None
    rotary: dict[str, Any]
    windows: dict[int, int]
    attention_soft_cap: float
    weights: dict[str, Weights]
    bytes_on_disk: int
    kv_cache_bytes_per_token: dict[str, int]


def _read_json(path: Path) -> dict[str, Any]:
    """Empty without the file."""
    return read_json_object(path) if path.is_file() else {}


def _weights(model: Path) -> dict[str, Weights]:
    """Constants by element type, largest type first.

    Out of the graph's text: to look at a model, nothing of it needs to be made.
    """
    found: dict[str, Weights] = {}
    try:
        for _, node in ElementTree.iterparse(model):
            if node.tag != "layer":
                continue
            data = node.find("data")
            if node.get("type") == "Const" and data is not None:
                name = data.get("element_type", "unknown")
                one = found.get(name, Weights(0, 0))
                found[name] = Weights(one.tensors + 1, one.bytes + int(data.get("size", "0")))
            node.clear()
    except (ElementTree.ParseError, ValueError) as error:
        raise ValueError(f"{model} is damaged: {error}") from error
    return dict(sorted(found.items(), key=lambda item: -item[1].bytes))


def _architecture(config: Mapping[str, Any], path: Path) -> Architecture | None:
    """None where the config is of a model type that is not known here, or says too little."""
    try:
        return read_architecture(config, str(path))
    except ConversionError:
        return None


def _rotary(config: Mapping[str, Any], description: Mapping[str, Any]) -> dict[str, Any]:
    """Base, dims and scaling, out of pagewheel.json where it is there.

    `kinds` where the model has several, with the number of layers of each.
    """
    own = description.get("rotary", {})
    parameters = config.get("rope_parameters") or {}
    scaling = config.get("rope_scaling") or parameters.get("rope_type")
    rotary = {
        "theta": own.get("theta", config.get("rope_theta", parameters.get("rope_theta"))),
        "dims": own.get("dims"),
        "pairing": own.get("pairing"),
        "scaling": None if scaling == "default" else scaling,
    }
    layers = own.get("layers", [])
    if -1 in layers:
        rotary["layers without"] = layers.count(-1)
    kinds = own.get("kinds", [])
    if len(kinds) > 1:
        rotary = {
            "kinds": [
                {"theta": kind["theta"], "dims": kind["dims"], "layers": layers.count(index)}
                for index, kind in enumerate(kinds)
            ]
        }
    return {key: value for key, value in rotary.items() if value is not None}


def _cache_values(arch: Architecture | None, config: Mapping[str, Any]) -> int | None:
    """Numbers that a token adds to the cache; layers that share another's add none."""
    if arch is not None:
        return sum(
            layer.attention.kv_heads * (layer.attention.head_size + layer.attention.value_size)
            for layer in arch.layers
            if layer.attention.cache_of is None
        )
    layers, heads = config.get("num_hidden_layers"), config.get("num_attention_heads")
    kv_heads, head = config.get("num_key_value_heads", heads), _head_size(config)
    if layers is None or kv_heads is None or head is None:
        return None
    return int(2 * layers * kv_heads * head)


def _head_size(config: Mapping[str, Any]) -> int | None:
    hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
    return config.get("head_dim") or (hidden // heads if hidden and heads else None)


def read_info(folder: Path) -> ModelInfo:
    """Read a folder with openvino_model.xml. Raises ValueError where its files are damaged."""
    try:
        return _read_info(folder)
    except (TypeError, KeyError, AttributeError, IndexError, ArithmeticError) as error:
        raise ValueError(
            f"config.json or pagewheel.json in {folder} is damaged: {type(error).__name__}: {error}"
        ) from error


def _read_info(folder: Path) -> ModelInfo:
    config = _read_json(folder / "config.json")
    description = _read_json(folder / "pagewheel.json")
    check_description_version(description)
    arch = _architecture(config, folder / "config.json")
    values = _cache_values(arch, config)
    source = description.get("source", {})
    names = config.get("architectures") or [None]
    windows = description.get("sliding_windows", () if arch is None else arch.windows)
    cap = description.get("attention_soft_cap", config.get("attn_logit_softcapping"))
    return ModelInfo(
        folder=str(folder),
        source=source.get("file"),
        weight_format=source.get("weight_format"),
        architecture=names[0] or config.get("model_type"),
        layers=config.get("num_hidden_layers"),
        heads=config.get("num_attention_heads"),
        kv_heads=config.get("num_key_value_heads", config.get("num_attention_heads")),
        head_size=_head_size(config),
        hidden_size=config.get("hidden_size"),
        vocabulary=config.get("vocab_size"),
        context=description.get("context_length", config.get("max_position_embeddings")),
        rotary=_rotary(config, description),
        windows=dict(sorted(Counter(windows).items())),
        attention_soft_cap=cap or 0.0,
        weights=_weights(folder / "openvino_model.xml"),
        bytes_on_disk=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        kv_cache_bytes_per_token={}
        if values is None
        else {name: values * bits // 8 for name, bits in _CACHE_BITS.items()},
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
        f"{name}: {_size(count)}" + (" + scales" if name in ("u8", "u4") else "")
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
        ("heads", f"{shown(info.heads)} ({shown(info.kv_heads)} kv heads)"),
        ("head size", shown(info.head_size)),
        ("hidden size", shown(info.hidden_size)),
        ("vocabulary", f"{shown(info.vocabulary)} tokens"),
        ("context", f"{shown(info.context)} tokens"),
        ("rotary", ("\n" if "kinds" in info.rotary else ", ").join(rotary) or "not stated"),
        ("sliding windows", ", ".join(windows) or "none"),
        *([("soft cap", f"{info.attention_soft_cap:g}")] if info.attention_soft_cap else []),
        ("weights", "\n".join(weights)),
        ("on disk", _size(info.bytes_on_disk)),
        ("KV cache per token", "\n".join(cache) or "not stated"),
    ]


def _threads() -> dict[str, Any]:
    """How many a pipeline on CPU with default properties has here."""
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
    """What goes, and what keeps more from going."""
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
    """To standard output, as a table or as JSON."""
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
