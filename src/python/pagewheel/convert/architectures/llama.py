"""Llama 1 to 3, and what differs from it in little.

Mistral and Mixtral, whose GGUF files call themselves llama; Granite 3, with experts too, OLMo 2
and SmolLM 3.
"""

from __future__ import annotations

import re

from ..decoder.architecture import Architecture, Experts, Mlp, NormPlacement, QueryKeyNorm, Routing
from .entry import (
    Family,
    GGUFArchitecture,
    ModelType,
    Part,
    Recipe,
    each_expert,
    tensor_name,
)
from .gguf_config import SCALE_KEYS, Config, GGUFConfig
from .reader import Reader


def _mixtral(reader: Reader) -> Architecture:
    # All experts' softmax, the best renormalised: the softmax of the best.
    experts = reader.experts("num_local_experts", Routing.SOFTMAX_OF_BEST)
    return reader.architecture(mlp=experts, windows=reader.windows(reader.same_everywhere(True)))


_NAMES_OF_MIXTRAL = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}


def recipe_of_mixtral(arch: Architecture, name: str) -> Recipe | None:
    moved = name.replace(".mlp.", ".block_sparse_moe.")
    moved = re.sub(r"(?<=\.experts\.)\w+", lambda match: _NAMES_OF_MIXTRAL[match[0]], moved)
    if moved == name:
        return None
    return each_expert(arch, moved) or (Part(tensor_name(moved)),)


def granite(reader: Reader, mlp: Mlp | Experts | None = None) -> Architecture:
    """A Llama with multipliers of embeddings, attention, residuals and logits."""
    config = reader.config
    return reader.architecture(
        reader.attention(scale=config.number("attention_multiplier", 1.0)),
        mlp,
        embedding_scale=config.number("embedding_multiplier", 1.0),
        residual_scale=config.number("residual_multiplier", 1.0),
        logits_scale=1.0 / config.number("logits_scaling", 1.0),
    )


def granite_experts(reader: Reader) -> Experts:
    size = reader.config.integer("shared_intermediate_size", 0)
    shared = Mlp(size, reader.activation()) if size else None
    return reader.experts("num_local_experts", Routing.SOFTMAX_OF_BEST, shared=shared)


def _granite_moe(reader: Reader) -> Architecture:
    return granite(reader, granite_experts(reader))


def recipe_of_granite_moe(arch: Architecture, name: str) -> Recipe | None:
    """The rows of gate and up are in one tensor, one after the other."""
    before, _, after = name.partition(".mlp.")
    if after == "gate":
        return (Part(f"{before}.block_sparse_moe.router.layer.weight"),)
    if not after:
        return None
    own = after.startswith("experts.")
    prefix = f"{before}.{'block_sparse_moe' if own else 'shared_mlp'}"
    mlp = arch.layers[int(name.split(".")[1])].mlp
    if isinstance(mlp, Experts):
        mlp = mlp.mlp if own else mlp.shared
    assert mlp is not None
    if after.endswith("down_proj"):
        return (Part(f"{prefix}.output_linear.weight"),)
    inner = mlp.intermediate_size
    first = 0 if after.endswith("gate_proj") else inner
    return (Part(f"{prefix}.input_linear.weight", slice(first, first + inner), 2 * inner),)


def _olmo2(reader: Reader) -> Architecture:
    """Norms stand after the blocks only; those of queries and keys are over all heads."""
    attention = reader.attention(query_key_norm=QueryKeyNorm.WHOLE)
    return reader.architecture(attention, norms=NormPlacement.POST)


def _smollm3(reader: Reader) -> Architecture:
    """Some layers do not rotate."""
    config = reader.config
    layers = config.layers
    interval = config.positive("no_rope_layer_interval", 4)
    rotated = config.list_of("no_rope_layers", int, layers) or [
        int((layer + 1) % interval != 0) for layer in range(layers)
    ]
    windows = [0] * layers
    if config.boolean("use_sliding_window"):
        windows = reader.windows(
            ["full_attention" if each else "sliding_attention" for each in rotated]
        )
    return reader.architecture(windows=windows).with_layers(
        lambda index, layer: layer if rotated[index] else layer.with_attention(rotary=None)
    )


def _config(file: GGUFConfig) -> Config:
    if not file.integer("expert_count", 0):
        return file.common("Llama", "llama")
    return {
        **file.common("Mixtral", "mixtral", ("expert_count",)),
        **file.experts("num_local_experts"),
    }


def config_of_granite(file: GGUFConfig, *known: str, kv_heads: int | None = None) -> Config:
    name = ("GraniteMoeShared", "granitemoeshared") if known else ("Granite", "granite")
    config = file.common(*name, (*SCALE_KEYS, *known), kv_heads=kv_heads)
    return {
        **config,
        "attention_multiplier": file.number("attention.scale", config["head_dim"] ** -0.5),
        "embedding_multiplier": file.number("embedding_scale", 1.0),
        "residual_multiplier": file.number("residual_scale", 1.0),
        "logits_scaling": file.number("logit_scale", 1.0),
    }


def _config_of_granite_moe(file: GGUFConfig) -> Config:
    return {
        **config_of_granite(file, "expert_count"),
        **file.experts("num_local_experts"),
        "shared_intermediate_size": file.integer("expert_shared_feed_forward_length", 0),
    }


def _config_of_smollm3(file: GGUFConfig) -> Config:
    # llama.cpp has no key for it: every fourth layer does not rotate.
    own = {"no_rope_layer_interval": 4, "use_sliding_window": False}
    return {**file.common("SmolLM3", "smollm3"), **own}


_MISTRAL = {"num_key_value_heads": 8, "max_position_embeddings": 131072}
_MIXTRAL = {
    **_MISTRAL,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e6,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
_GRANITE_MOE = {"num_local_experts": 8, "num_experts_per_tok": 2}
_SMOLLM3 = {
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "rope_theta": 2e6,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
}

FAMILY = Family(
    (
        ModelType("llama", Reader.architecture),
        ModelType(
            "mistral", Reader.architecture_with_windows, {**_MISTRAL, "sliding_window": 4096}
        ),
        ModelType("mixtral", _mixtral, _MIXTRAL, recipe_of_mixtral),
        ModelType("granite", granite),
        ModelType("granitemoe", _granite_moe, _GRANITE_MOE, recipe_of_granite_moe),
        ModelType("granitemoeshared", _granite_moe, _GRANITE_MOE, recipe_of_granite_moe),
        ModelType("olmo2", _olmo2, {"rms_norm_eps": 1e-5}),
        ModelType("smollm3", _smollm3, _SMOLLM3),
    ),
    (
        GGUFArchitecture("llama", _config, interleaved=True),
        GGUFArchitecture("granite", config_of_granite, interleaved=True),
        GGUFArchitecture("granitemoe", _config_of_granite_moe, interleaved=True),
        GGUFArchitecture("olmo2", lambda file: file.common("Olmo2", "olmo2")),
        GGUFArchitecture("smollm3", _config_of_smollm3, interleaved=True),
    ),
)
