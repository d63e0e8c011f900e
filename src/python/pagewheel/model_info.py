"""What a model folder says about its model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from pagewheel.convert.architectures.registry import read_architecture
from pagewheel.convert.decoder.architecture import Architecture, Experts, weight_shapes
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
    each, 0 for none. `attention_soft_cap` bounds attention logits; 0: nothing does. A token
    uses `active_parameters`, fewer than all where experts are chosen, and reads
    `weight_bytes_per_token`. `layers_without_pages` are the numbers of those that keep no keys
    and values but a state for each sequence.
    """

    folder: str
    source: str | None
    weight_format: str | None
    architecture: str | None
    layers: int | None
    layers_without_pages: list[int]
    heads: int | None
    kv_heads: int | None
    head_size: int | None
    hidden_size: int | None
    vocabulary: int | None
    context: int | None
    rotary: dict[str, Any]
    windows: dict[int, int]
    attention_soft_cap: float
    parameters: int | None
    active_parameters: int | None
    weights: dict[str, Weights]
    weight_bytes_per_token: int | None
    bytes_on_disk: int
    kv_cache_bytes_per_token: dict[str, int]


def _read_json(path: Path) -> dict[str, Any]:
    """Empty without the file."""
    return read_json_object(path) if path.is_file() else {}


@dataclass(frozen=True)
class _Constant:
    name: str
    element_type: str
    bytes: int


def _constants(model: Path) -> list[_Constant]:
    """Out of the graph's text: to look at a model, nothing of it needs to be made."""
    found = []
    try:
        for _, node in ElementTree.iterparse(model):
            if node.tag != "layer":
                continue
            data = node.find("data")
            if node.get("type") == "Const" and data is not None:
                kind, size = data.get("element_type", "unknown"), int(data.get("size", "0"))
                found.append(_Constant(node.get("name", ""), kind, size))
            node.clear()
    except (ElementTree.ParseError, ValueError) as error:
        raise ValueError(f"{model} is damaged: {error}") from error
    return found


def _weights(constants: list[_Constant]) -> dict[str, Weights]:
    """By element type, largest type first."""
    found: dict[str, Weights] = {}
    for constant in constants:
        one = found.get(constant.element_type, Weights(0, 0))
        found[constant.element_type] = Weights(one.tensors + 1, one.bytes + constant.bytes)
    return dict(sorted(found.items(), key=lambda item: -item[1].bytes))


def _share_of_a_token(arch: Architecture, name: str) -> float:
    """What part of a weight a token uses: of a layer's experts those that are active."""
    both = (mlp for layer in arch.layers for mlp in (layer.mlp, layer.beside))
    mixtures = (mlp for mlp in both if isinstance(mlp, Experts))
    mixture = next(mixtures, None) if ".experts." in name else None
    return 1.0 if mixture is None else mixture.active / mixture.count


def _bytes_per_token(arch: Architecture, constants: list[_Constant]) -> int:
    """Of an embedding only a row is read, unless it is the vocabulary head's too."""
    tables = ("embed_tokens_per_layer",) if arch.tied_embeddings else ("embed_tokens",)
    return round(
        sum(
            constant.bytes * _share_of_a_token(arch, constant.name)
            for constant in constants
            if not any(table in constant.name for table in tables)
        )
    )


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
            attention.kv_heads * (attention.head_size + attention.value_size)
            for attention in arch.attentions.values()
            if attention.cache_of is None
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
    constants = _constants(folder / "openvino_model.xml")
    sizes = {} if arch is None else {k: math.prod(v) for k, v in weight_shapes(arch).items()}
    windows = description.get("sliding_windows", () if arch is None else arch.windows)
    cap = description.get("attention_soft_cap", config.get("attn_logit_softcapping"))
    return ModelInfo(
        folder=str(folder),
        source=source.get("file"),
        weight_format=source.get("weight_format"),
        architecture=names[0] or config.get("model_type"),
        layers=config.get("num_hidden_layers"),
        layers_without_pages=[]
        if arch is None
        else [layer for layer in range(len(arch.layers)) if layer not in arch.attentions],
        heads=config.get("num_attention_heads"),
        kv_heads=config.get("num_key_value_heads", config.get("num_attention_heads")),
        head_size=_head_size(config),
        hidden_size=config.get("hidden_size"),
        vocabulary=config.get("vocab_size"),
        context=description.get("context_length", config.get("max_position_embeddings")),
        rotary=_rotary(config, description),
        windows=dict(sorted(Counter(windows).items())),
        attention_soft_cap=cap or 0.0,
        parameters=None if arch is None else sum(sizes.values()),
        active_parameters=None
        if arch is None
        else round(sum(size * _share_of_a_token(arch, name) for name, size in sizes.items())),
        weights=_weights(constants),
        weight_bytes_per_token=None if arch is None else _bytes_per_token(arch, constants),
        bytes_on_disk=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        kv_cache_bytes_per_token={}
        if values is None
        else {name: values * bits // 8 for name, bits in _CACHE_BITS.items()},
    )
