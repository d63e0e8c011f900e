"""Mamba 2 alone, and what the hybrids with it share."""

from __future__ import annotations

import math
import re
from typing import Any

from ..decoder.architecture import Architecture, Layer, Mamba2
from .entry import Family, FilePart, GGUFArchitecture, ModelType, Part, Recipe, tensor_name
from .gguf_config import Config, GGUFConfig
from .reader import ModelConfig, Reader

# The rows of in_proj, in their order.
_PROJECTIONS = ("gate_proj", "conv_proj", "dt_proj")


def step_limit(config: ModelConfig) -> tuple[float, float]:
    """The least and the most that `time_step_limit` allows."""
    limit = config.values.get("time_step_limit")
    if limit is None:
        return 0.0, math.inf
    if not isinstance(limit, list | tuple) or len(limit) != 2:
        raise config.fail(f"'time_step_limit' must be two numbers, got {limit!r:.80}")
    low, high = (_number(config, each) for each in limit)
    return low, high


def _number(config: ModelConfig, value: Any) -> float:
    if value in (math.inf, "Infinity", {"__float__": "Infinity"}):  # JSON has no infinity
        return math.inf
    if not isinstance(value, (int, float)) or not abs(value) < math.inf:
        raise config.fail(f"'time_step_limit' must be two numbers, got {value!r:.80}")
    return float(value)


def mixer_of(config: ModelConfig, **changes: Any) -> Mamba2:
    """The mixer by the names that most hybrids use."""
    heads = config.positive("mamba_n_heads")
    inner = config.positive("mamba_expand", 2) * config.positive("hidden_size")
    if config.values.get("mamba_d_ssm") is not None:
        inner = config.positive("mamba_d_ssm")
    size = config.values.get("mamba_d_head")
    groups = config.positive("mamba_n_groups", 1)
    low, high = step_limit(config)
    values: dict[str, Any] = {
        "heads": heads,
        "head_size": inner // heads if size in (None, "auto") else config.positive("mamba_d_head"),
        "groups": groups,
        "state_size": config.positive("mamba_d_state", 256),
        "length": config.positive("mamba_d_conv", 4),
        "bias": config.boolean("mamba_proj_bias"),
        "output_bias": config.boolean("mamba_proj_bias"),
        "conv_bias": config.boolean("mamba_conv_bias", True),
        "norm_groups": groups,
        "dt_min": low,
        "dt_max": high,
        **changes,
    }
    return Mamba2(**values)


def mamba_of(arch: Architecture, layer: int) -> Mamba2:
    for mixer in (arch.layers[layer].mixer, arch.layers[layer].recurrence):
        if isinstance(mixer, Mamba2):
            return mixer
    raise AssertionError(f"layer {layer} has no Mamba 2")


def recipe_of_mixer(arch: Architecture, name: str, module: str = "mamba") -> Recipe | None:
    """The weights of mixers that are called `module`; rows of in_proj are several weights."""
    found = re.fullmatch(r"(layers\.(\d+))\.mamba\.(\w+)(\.bias)?", name)
    if found is None:
        return None
    prefix, part, bias = f"{found[1]}.{module}", found[3], found[4] or ""
    if part not in _PROJECTIONS:
        return (Part(tensor_name(f"{prefix}.{part}{bias}")),)
    rows, count = _rows_of(mamba_of(arch, int(found[2])), part)
    return (Part(tensor_name(f"{prefix}.in_proj{bias}"), rows, count, -1 if bias else -2),)


def _rows_of(mamba: Mamba2, projection: str) -> tuple[slice, int]:
    """A projection's rows of in_proj, and how many that has."""
    sizes = (mamba.inner_size, mamba.conv_size, mamba.heads)
    which = _PROJECTIONS.index(projection)
    first = sum(sizes[:which])
    return slice(first, first + sizes[which]), sum(sizes)


def config_of_mixer(file: GGUFConfig) -> Config:
    """llama.cpp's numbers by the names that most hybrids use."""
    inner, heads = file.integer("ssm.inner_size"), file.integer("ssm.time_step_rank")
    if heads <= 0 or inner % heads:
        raise file.fail(f"{inner} channels are no multiple of {heads} heads")
    return {
        "mamba_d_ssm": inner,
        "mamba_n_heads": heads,
        "mamba_d_head": inner // heads,
        "mamba_n_groups": file.integer("ssm.group_count"),
        "mamba_d_state": file.integer("ssm.state_size"),
        "mamba_d_conv": file.integer("ssm.conv_kernel"),
        "mamba_conv_bias": any(name.endswith(".ssm_conv1d.bias") for name in file.shapes),
        "mamba_proj_bias": any(name.endswith(".ssm_in.bias") for name in file.shapes),
    }


def file_part(arch: Architecture, name: str) -> FilePart | None:
    """The weights of mixers in files of llama.cpp's."""
    found = re.fullmatch(r"layers\.(\d+)\.mamba\.(\w+?)(\.bias)?", name)
    if found is None:
        return None
    mamba = mamba_of(arch, int(found[1]))
    part, bias = found[2], found[3]
    if part in _PROJECTIONS:
        rows, count = _rows_of(mamba, part)
        shape = (count,) if bias else (count, arch.hidden_size)
        return FilePart(f"ssm_in{bias or '.weight'}", shape, tuple(range(*rows.indices(count))))
    inner, heads, groups = mamba.inner_size, mamba.heads, mamba.groups
    if bias:
        return {
            "conv1d": FilePart("ssm_conv1d.bias", (mamba.conv_size,)),
            "out_proj": FilePart("ssm_out.bias", (arch.hidden_size,)),
        }[part]
    return {
        "A_log": FilePart("ssm_a", (heads, 1), negative_exponential=True),
        "D": FilePart("ssm_d", (heads, 1)),
        "dt_bias": FilePart("ssm_dt.bias", (heads,)),
        "conv1d": FilePart("ssm_conv1d.weight", (mamba.conv_size, mamba.length)),
        "norm": FilePart("ssm_norm.weight", (groups, inner // groups)),
        "out_proj": FilePart("ssm_out.weight", (arch.hidden_size, inner)),
    }[part]


_NAMES = {
    "mamba_n_heads": "num_heads",
    "mamba_n_groups": "n_groups",
    "mamba_d_state": "state_size",
    "mamba_d_head": "head_dim",
    "mamba_d_conv": "conv_kernel",
    "mamba_expand": "expand",
    "mamba_proj_bias": "use_bias",
    "mamba_conv_bias": "use_conv_bias",
}


def _mamba2(reader: Reader) -> Architecture:
    config = reader.config
    for ours, theirs in _NAMES.items():
        if config.values.get(theirs) is not None:
            config.values[ours] = config.values[theirs]
    layers = [Layer(mixer_of(config), None)] * config.layers
    return reader.of_layers(layers, rotary=(), norm_eps=config.not_negative("layer_norm_epsilon"))


def recipe_of_backbone(arch: Architecture, name: str) -> Recipe | None:
    """The names of the first checkpoints: layers with one mixer and one norm."""
    outside = {"embed_tokens": "embeddings.weight", "norm": "norm_f.weight"}
    if name in outside:
        return (Part(outside[name]),)
    if name.endswith(".input_layernorm"):
        return (Part(f"{name.removesuffix('input_layernorm')}norm.weight"),)
    return recipe_of_mixer(arch, name, "mixer")


def _config(file: GGUFConfig) -> Config:
    mixer = config_of_mixer(file)
    return {
        **file.outside_layers("Mamba2", "mamba2"),
        "num_hidden_layers": file.integer("block_count"),
        "layer_norm_epsilon": file.number("attention.layer_norm_rms_epsilon", 1e-5),
        **{_NAMES[name]: value for name, value in mixer.items() if name in _NAMES},
    }


# Nothing in the model counts positions; 1M is what its users were told that it stands.
_DEFAULTS = {
    "num_heads": 128,
    "head_dim": 64,
    "state_size": 128,
    "n_groups": 8,
    "num_hidden_layers": 64,
    "hidden_size": 4096,
    "vocab_size": 32768,
    "layer_norm_epsilon": 1e-5,
    "max_position_embeddings": 1 << 20,
}

FAMILY = Family(
    (ModelType("mamba2", _mamba2, _DEFAULTS, recipe_of_backbone),),
    (GGUFArchitecture("mamba2", _config, part=file_part),),
)
