"""Nemotron-H: layers of one mixer each: Mamba 2, attention without positions, or an MLP."""

from __future__ import annotations

import re
from dataclasses import replace

from ..decoder.architecture import Architecture, Layer
from .entry import Family, GGUFArchitecture, ModelType, Part, Recipe, tensor_name
from .gguf_config import Config, GGUFConfig
from .mamba2 import config_of_mixer, file_part, mixer_of, recipe_of_backbone
from .reader import Reader

_OF_PATTERN = {"M": "mamba", "*": "attention", "-": "mlp"}
_KINDS = {"linear_attention": "mamba", "full_attention": "attention"}


def _kinds(reader: Reader) -> list[str]:
    config = reader.config
    for key in ("layers_block_type", "layer_types"):
        kinds = config.values.get(key)
        if kinds is not None:
            break
    else:
        pattern = config.values.get("hybrid_override_pattern")
        if not isinstance(pattern, str):
            raise config.fail("'layers_block_type' is missing")
        kinds = [_OF_PATTERN.get(each, each) for each in pattern]
    if not isinstance(kinds, list) or not kinds:
        raise config.fail(f"'layers_block_type' must be a list of names, got {kinds!r:.80}")
    kinds = [_KINDS.get(each, each) for each in map(str, kinds)]
    for each in kinds:
        if each not in _OF_PATTERN.values():
            raise config.fail(
                f"the layer type {each!r} is not supported; supported: mamba, attention, mlp"
            )
    return kinds


def _nemotron_h(reader: Reader) -> Architecture:
    config, values = reader.config, reader.config.values
    kinds = _kinds(reader)
    values["num_hidden_layers"] = len(kinds)
    mlp = replace(reader.mlp(), activation=reader.activation("mlp_hidden_act"), gated=False)
    layers: dict[str, Layer] = {}
    for kind in set(kinds):
        if kind == "mamba":
            mixer = mixer_of(
                config,
                heads=config.positive("mamba_num_heads"),
                head_size=config.positive("mamba_head_dim"),
                groups=config.positive("n_groups"),
                norm_groups=config.positive("n_groups"),
                state_size=config.positive("ssm_state_size"),
                length=config.positive("conv_kernel"),
                conv_bias=config.boolean("use_conv_bias", True),
                dt_min=config.number("time_step_min", 0.0),
                dt_max=float("inf"),
            )
            layers[kind] = Layer(mixer, None)
        elif kind == "attention":
            attention = reader.attention(rotary=None, bias=False, output_bias=False)
            layers[kind] = Layer(attention, None)
        else:
            layers[kind] = Layer(None, mlp)
    return reader.of_layers(
        (layers[kind] for kind in kinds),
        rotary=(reader.rotary(),),  # which no layer has
        norm_eps=config.not_negative("layer_norm_epsilon"),
    )


def _recipe(arch: Architecture, name: str) -> Recipe | None:
    found = recipe_of_backbone(arch, name)
    layer = re.fullmatch(r"(layers\.\d+)\.(self_attn|mlp|post_attention_layernorm)(.*)", name)
    if found is not None or layer is None:
        return found
    if layer[2] == "post_attention_layernorm":
        return (Part(f"{layer[1]}.norm.weight"),)
    moved = f"{layer[1]}.mixer{layer[3]}"
    return (Part(tensor_name(moved)),)


def _config(file: GGUFConfig) -> Config:
    kv_heads = file.each_layer("attention.head_count_kv")
    inner = file.each_layer("feed_forward_length")
    kinds = [
        "attention" if heads else "mlp" if size else "mamba"
        for heads, size in zip(kv_heads, inner, strict=True)
    ]
    heads = max(file.each_layer("attention.head_count"))
    mixer = config_of_mixer(file)
    return {
        **mixer,
        **file.outside_layers("NemotronH", "nemotron_h"),
        "layers_block_type": kinds,
        "intermediate_size": max(inner),
        "num_attention_heads": heads,
        "num_key_value_heads": max(kv_heads),
        "head_dim": file.integer("attention.key_length"),
        "layer_norm_epsilon": file.number("attention.layer_norm_rms_epsilon", 1e-5),
        "mamba_num_heads": mixer["mamba_n_heads"],
        "mamba_head_dim": mixer["mamba_d_head"],
        "n_groups": mixer["mamba_n_groups"],
        "ssm_state_size": mixer["mamba_d_state"],
        "conv_kernel": mixer["mamba_d_conv"],
        "use_conv_bias": mixer["mamba_conv_bias"],
        "mlp_bias": any(name.endswith(".ffn_up.bias") for name in file.shapes),
        "time_step_min": 0.0,
    }


_DEFAULTS = {
    "hidden_size": 4096,
    "vocab_size": 131072,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 4096,
    "intermediate_size": 21504,
    "mlp_hidden_act": "relu2",
    "ssm_state_size": 128,
    "mamba_n_heads": 128,
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "n_groups": 8,
    "conv_kernel": 4,
    "time_step_min": 0.001,
    "layer_norm_epsilon": 1e-5,
}

FAMILY = Family(
    (ModelType("nemotron_h", _nemotron_h, _DEFAULTS, _recipe),),
    (
        GGUFArchitecture(
            "nemotron_h",
            _config,
            names={"post_attention_layernorm": "attn_norm"},
            part=file_part,
        ),
    ),
)
