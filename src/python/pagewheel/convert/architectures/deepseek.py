"""DeepSeek V2, V3 and R1: latent attention, groups of experts, shared experts."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from ..decoder.architecture import Architecture, Attention, Experts, LatentKeys, Routing
from ..decoder.rotary import RotaryParameters, rotary_embedding
from .entry import Family, GGUFArchitecture, ModelType, Part, Recipe, each_expert
from .gguf_config import Config, GGUFConfig
from .reader import ModelConfig, Reader


def _read(reader: Reader, routing: Routing) -> Architecture:
    config = reader.config
    rotary = latent_rotary(config)
    arch = reader.architecture(
        latent_attention(config, rotary),
        grouped_experts(reader, routing),
        rotary=(rotary_embedding(rotary),),
        rotary_interleaved=routing is Routing.SOFTMAX or config.boolean("rope_interleave", True),
    )
    return with_dense_first_layers(reader, arch)


def with_dense_first_layers(reader: Reader, arch: Architecture) -> Architecture:
    """Adds the head too, a layer like the last one, that checkpoints have behind it."""
    dense = reader.config.integer("first_k_dense_replace", 0)
    head = replace(arch, layers=arch.layers[-1:], reads_hidden_states=True)
    one = reader.config.integer("num_nextn_predict_layers", 0) == 1
    arch = replace(arch, mtp=head if one else None)
    return reader.with_dense_layers(arch, lambda index: index < dense)


def latent_rotary(config: ModelConfig) -> RotaryParameters:
    """The parameters of the channels of a head that rotate."""
    values = {**config.values, "head_dim": config.positive("qk_rope_head_dim")}
    rotary = ModelConfig(values, config.where).rotary_parameters()
    assert rotary is not None  # only nested parameters may be
    return rotary


def latent_attention(config: ModelConfig, rotary: RotaryParameters) -> Attention:
    size = config.positive("qk_nope_head_dim") + rotary.head_size
    scale = size**-0.5
    if rotary.kind != "default" and rotary.values.get("mscale_all_dim"):
        factor = rotary.positive("factor")
        scale *= (0.1 * rotary.number("mscale_all_dim") * math.log(max(factor, 1.0)) + 1.0) ** 2
    bias = config.boolean("attention_bias")
    query_rank = config.values.get("q_lora_rank")
    return Attention(
        heads=config.heads,
        kv_heads=config.heads,
        head_size=size,
        scale=scale,
        bias=bias,
        output_bias=bias,
        latent=LatentKeys(
            config.positive("kv_lora_rank"),
            rotary.head_size,
            0 if query_rank is None else config.positive("q_lora_rank"),
        ),
        separate_value_size=config.positive("v_head_dim"),
    )


def grouped_experts(reader: Reader, routing: Routing) -> Experts:
    config = reader.config
    shared = config.integer("n_shared_experts", 0)
    limited = routing is Routing.SIGMOID or config.values.get("topk_method") != "greedy"
    return reader.experts(
        "n_routed_experts",
        routing,
        reader.small_mlp(),
        weights_scale=config.number("routed_scaling_factor", 1.0),
        correction=routing is Routing.SIGMOID,
        normalise=routing is Routing.SIGMOID and config.boolean("norm_topk_prob", True),
        groups=config.positive("n_group", 1) if limited else 1,
        active_groups=config.positive("topk_group", 1) if limited else 1,
        shared=reader.small_mlp(shared) if shared else None,
    )


SIGMOID = 2  # of `expert_gating_func`


def require_sigmoid(file: GGUFConfig, default: int | None = SIGMOID) -> None:
    """Raises ConversionError where experts' weights come from another function."""
    gating = file.integer("expert_gating_func", default)
    if gating != SIGMOID:
        raise file.fail(f"{file.key('expert_gating_func')} must be {SIGMOID}, got {gating}")


# What GGUF files of grouped experts know beside their number.
GROUPED_EXPERTS = (
    *("leading_dense_block_count", "expert_shared_count", "expert_group_count"),
    *("expert_weights_scale", "expert_count", "expert_gating_func"),
)


def config_of_grouped_experts(file: GGUFConfig) -> Config:
    return {
        **file.experts("n_routed_experts", "moe_intermediate_size"),
        "n_shared_experts": file.integer("expert_shared_count", 0),
        "first_k_dense_replace": file.integer("leading_dense_block_count", 0),
        "routed_scaling_factor": file.number("expert_weights_scale", 0.0) or 1.0,
        "num_nextn_predict_layers": file.integer("nextn_predict_layers", 0),
    }


def config_of_deepseek(file: GGUFConfig) -> Config:
    """V2, V3 and what is built like them."""
    rotated = file.integer("rope.dimension_count")
    sigmoid = file.integer("expert_gating_func", 1) == SIGMOID
    known = (*GROUPED_EXPERTS, "rope.scaling.yarn_log_multiplier")
    version = 3 if sigmoid else 2
    # With one kv head, files since 2025-04 describe what llama.cpp computes with.
    heads = file.uniform("attention.head_count")
    config = file.common(
        *(f"DeepseekV{version}", f"deepseek_v{version}", known),
        kv_heads=heads,
        head_size=rotated,
    )
    suffix = "_mla" if file.has("attention.key_length_mla") else ""
    sizes = {name: file.integer(f"attention.{name}_length{suffix}") for name in ("key", "value")}
    if sizes["key"] <= rotated:
        raise file.fail(f"key heads of {sizes['key']} with {rotated} rotated channels")
    normalised = file.metadata.get(file.key("expert_weights_norm"), bool, False)
    if normalised and not sigmoid:
        raise file.fail(f"{file.key('expert_weights_norm')} with softmax is not supported")
    # llama.cpp takes the cosines' and sines' own factor to be the same, so that it cancels.
    weight = 10.0 * file.number("rope.scaling.yarn_log_multiplier", 0.0)
    if weight and config["rope_scaling"] is not None:
        config["rope_scaling"] |= {"mscale": weight, "mscale_all_dim": weight}
    groups = max(file.integer("expert_group_count", 1), 1)
    return {
        **config,
        "kv_lora_rank": file.integer("attention.kv_lora_rank"),
        "q_lora_rank": file.integer("attention.q_lora_rank", 0) or None,
        "qk_rope_head_dim": rotated,
        "qk_nope_head_dim": sizes["key"] - rotated,
        "v_head_dim": sizes["value"],
        **config_of_grouped_experts(file),
        "norm_topk_prob": normalised,
        "topk_method": "greedy" if groups == 1 else "group_limited_greedy",
        "n_group": groups,
        "topk_group": file.integer("expert_group_used_count", 1) if groups > 1 else 1,
    }


def recipe_of_latent(arch: Architecture, name: str) -> Recipe | None:
    """The checkpoint has the rotated channels of a head last, in V2 as pairs (2i, 2i + 1).

    The graph wants them first, and channel i paired with i + half.
    """
    attention = next(iter(arch.attentions.values()))
    latent = attention.latent
    prefix, _, last = name.removesuffix(".bias").rpartition(".")
    suffix = ".bias" if name.endswith(".bias") else ".weight"
    if latent is None or not prefix.endswith("self_attn"):
        return each_expert(arch, name)
    size, rotated = attention.head_size, latent.rotated
    kept = size - rotated
    rotated_order = list(range(rotated))
    if arch.rotary_interleaved:
        rotated_order = [*range(0, rotated, 2), *range(1, rotated, 2)]

    def of_heads(width: int, order: list[int]) -> tuple[int, ...]:
        return tuple(head * width + each for head in range(attention.heads) for each in order)

    order = [kept + each for each in rotated_order] + list(range(kept))
    both = kept + attention.value_size
    rank = latent.rank
    parts: dict[str, tuple[str, tuple[int, ...], int]] = {
        "q_proj": ("q_proj", of_heads(size, order), attention.heads * size),
        "q_b_proj": ("q_b_proj", of_heads(size, order), attention.heads * size),
        "kv_a_proj": ("kv_a_proj_with_mqa", tuple(range(rank)), rank + rotated),
        "k_rope_proj": (
            "kv_a_proj_with_mqa",
            tuple(rank + each for each in rotated_order),
            rank + rotated,
        ),
        "k_b_proj": ("kv_b_proj", of_heads(both, list(range(kept))), attention.heads * both),
        "v_b_proj": ("kv_b_proj", of_heads(both, list(range(kept, both))), attention.heads * both),
    }
    if last not in parts:
        return None
    tensor, rows, length = parts[last]
    axis = -1 if suffix == ".bias" else -2
    return (Part(f"{prefix}.{tensor}{suffix}", rows, length, axis),)


_COMMON = {
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
}

_V2 = {
    **_COMMON,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "moe_intermediate_size": 1407,
    "topk_method": "greedy",
}
_V3 = {
    **_COMMON,
    "max_position_embeddings": 4096,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "n_group": 8,
    "topk_group": 4,
    "first_k_dense_replace": 3,
    "routed_scaling_factor": 2.5,
}

GGUF_NAMES = {
    "mlp.gate.e_score_correction": "exp_probs_b",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
}

FAMILY = Family(
    (
        ModelType("deepseek_v2", partial(_read, routing=Routing.SOFTMAX), _V2, recipe_of_latent),
        ModelType("deepseek_v3", partial(_read, routing=Routing.SIGMOID), _V3, recipe_of_latent),
    ),
    (
        GGUFArchitecture(
            "deepseek2",
            config_of_deepseek,
            names=GGUF_NAMES,
            fused_as_in_checkpoint=True,
        ),
    ),
)
