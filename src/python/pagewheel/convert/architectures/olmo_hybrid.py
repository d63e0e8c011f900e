"""OLMo Hybrid: gated delta nets in three layers of four, with betas of 0 to 2."""

from __future__ import annotations

import re

from ..decoder.architecture import Architecture, GatedDeltaNet, Layer, NormPlacement, QueryKeyNorm
from .entry import Family, ModelType, Part, Recipe, tensor_name
from .qwen_hybrid import attending_layers
from .reader import Reader

_MOVED = {"in_proj_z": "g_proj", "in_proj_b": "b_proj", "in_proj_a": "a_proj", "norm": "o_norm"}


def _olmo_hybrid(reader: Reader) -> Architecture:
    """Norms stand before the blocks of a layer with a net, after those of one that attends."""
    config = reader.config
    key_heads = config.positive("linear_num_key_heads", config.heads)
    narrow = 3 * config.positive("hidden_size") // (4 * key_heads)
    key_size = config.positive("linear_key_head_dim", narrow)
    net = GatedDeltaNet(
        key_heads,
        config.positive("linear_num_value_heads", config.heads),
        key_size,
        config.positive("linear_value_head_dim", 2 * key_size),
        config.positive("linear_conv_kernel_dim", 4),
        beta_scale=2.0 if config.boolean("linear_allow_neg_eigval", True) else 1.0,
        norm_eps=1e-5,
    )
    rope = config.values.get("rope_parameters") or config.values
    rotary = None if rope.get("rope_theta", 0) is None else 0  # as published: no positions
    attention = reader.attention(query_key_norm=QueryKeyNorm.WHOLE, rotary=rotary)
    arch = reader.architecture(attention, norms=NormPlacement.POST)
    attends = attending_layers(reader)
    with_net = Layer(net, reader.mlp(), norms=NormPlacement.PRE)
    return arch.with_layers(lambda index, layer: layer if attends[index] else with_net)


def joined_projections(net: GatedDeltaNet, prefix: str, name: str) -> Recipe | None:
    """Queries, keys and values have projections and convolutions of their own."""
    kind = {"in_proj_qkv": "proj", "conv1d": "conv1d"}.get(name)
    if kind is None:
        return None
    rows = {"q": net.key_width, "k": net.key_width, "v": net.value_width}
    return tuple(Part(f"{prefix}{x}_{kind}.weight", joined=n) for x, n in rows.items())


def _recipe(arch: Architecture, name: str) -> Recipe | None:
    found = re.fullmatch(r"(layers\.(\d+)\.linear_attn\.)(\w+)", name)
    if found is None:
        moved = name.replace("input_layernorm", "attention_layer_norm")
        moved = moved.replace("post_attention_layernorm", "feedforward_layer_norm")
        return (Part(tensor_name(moved)),)
    net = arch.layers[int(found[2])].mixer
    assert isinstance(net, GatedDeltaNet)
    moved = _MOVED.get(found[3], found[3].replace("out_proj", "o_proj"))
    joined = joined_projections(net, found[1], found[3])
    return joined or (Part(tensor_name(f"{found[1]}{moved}")),)


def _other_recipe(_: Architecture, name: str) -> Recipe | None:
    """Norms may have the names that other models have."""
    return (Part(tensor_name(name)),) if name.endswith("layernorm") else None


_DEFAULTS = {
    "vocab_size": 100352,
    "hidden_size": 3840,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 30,
    "max_position_embeddings": 65536,
    "linear_conv_kernel_dim": 4,
}

FAMILY = Family((ModelType("olmo_hybrid", _olmo_hybrid, _DEFAULTS, _recipe, _other_recipe),))
