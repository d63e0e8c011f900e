"""Mixtures of experts of known parts: OLMoE, GLM 4.5, ERNIE 4.5, MiniMax M2 and Hunyuan."""

from __future__ import annotations

from dataclasses import replace

from ..decoder.architecture import Architecture, Experts, Mlp, QueryKeyNorm, Routing
from .deepseek import (
    GROUPED_EXPERTS,
    config_of_grouped_experts,
    grouped_experts,
    require_sigmoid,
    with_dense_first_layers,
)
from .entry import Family, GGUFArchitecture, ModelType, Part, Recipe, each_expert, tensor_name
from .gguf_config import Config, GGUFConfig
from .llama import recipe_of_mixtral
from .reader import ModelConfig, Reader


def _olmoe(reader: Reader) -> Architecture:
    config = reader.config
    if config.values.get("clip_qkv") is not None:
        raise config.fail("clip_qkv is not supported")
    normalise = config.boolean("norm_topk_prob")
    experts = reader.experts("num_experts", Routing.SOFTMAX, normalise=normalise)
    return reader.architecture(reader.attention(query_key_norm=QueryKeyNorm.WHOLE), experts)


def _glm4(reader: Reader) -> Architecture:
    """GLM 4.5 to 4.7: DeepSeek V3's experts with plain attention."""
    reader.config.values.setdefault("partial_rotary_factor", 0.5)
    normed = reader.config.boolean("use_qk_norm")
    norm = QueryKeyNorm.HEAD if normed else QueryKeyNorm.NONE
    attention = reader.attention(output_bias=False, query_key_norm=norm)
    arch = reader.architecture(attention, grouped_experts(reader, Routing.SIGMOID))
    return with_dense_first_layers(reader, arch)


def _ernie(reader: Reader) -> Architecture:
    config = reader.config
    shared = config.integer("moe_num_shared_experts")
    bias = config.boolean("use_bias")
    experts = Experts(
        count=config.positive("moe_num_experts"),
        active=config.positive("moe_k"),
        mlp=reader.small_mlp(),
        routing=Routing.SOFTMAX,
        correction=True,
        normalise=True,
        shared=replace(reader.small_mlp(shared), bias=bias) if shared else None,
    )
    attention = reader.attention(bias=bias, output_bias=bias)
    arch = reader.architecture(attention, experts, rotary_interleaved=True)
    first, last = config.integer("moe_layer_start_index"), config.integer("moe_layer_end_index", -1)
    last = config.layers - 1 if last == -1 else last
    step = config.positive("moe_layer_interval")
    arch = reader.with_dense_layers(
        arch, lambda index: not first <= index <= last or (index + 1) % step != 0
    )
    dense = replace(reader.mlp(), bias=bias)
    return arch.with_layers(
        lambda _, layer: replace(layer, mlp=dense) if isinstance(layer.mlp, Mlp) else layer
    )


def _recipe_of_ernie(arch: Architecture, name: str) -> Recipe | None:
    """Rows of queries and keys are in the order of DeepSeek's rotated channels."""
    if name.endswith(".gate.e_score_correction_bias"):
        statics = name.replace(".gate.", ".moe_statics.")
        return (Part(statics, unsqueezed=True),)
    kind = name.removesuffix(".bias").rpartition(".")[2]
    if kind not in ("q_proj", "k_proj"):
        return each_expert(arch, name)
    attention = arch.layers[0].attention
    size, heads = attention.head_size, attention.heads if kind[0] == "q" else attention.kv_heads
    order = (*range(0, size, 2), *range(1, size, 2))
    rows = tuple(head * size + row for head in range(heads) for row in order)
    if name.endswith(".bias"):
        return (Part(name, rows, len(rows), -1),)
    return (Part(f"{name}.weight", rows, len(rows)),)


def _minimax(reader: Reader) -> Architecture:
    config = reader.config
    if "rotary_dim" in config.values:
        part = GGUFConfig.part(config.positive("rotary_dim"), config.head_size)
        config.values["partial_rotary_factor"] = part
    experts = reader.experts("num_local_experts", Routing.SIGMOID, correction=True, normalise=True)
    return reader.architecture(reader.attention(query_key_norm=QueryKeyNorm.WHOLE), experts)


def _recipe_of_minimax(arch: Architecture, name: str) -> Recipe | None:
    return recipe_of_mixtral(arch, name.replace(".gate.e_score", ".e_score"))


def _hunyuan(reader: Reader) -> Architecture:
    config, values = reader.config, reader.config.values
    for key in ("moe_topk", "num_shared_expert", "moe_intermediate_size"):
        # Older configs say it for each layer; transformers and llama.cpp have one for all.
        given = values.get(key)
        if isinstance(given, list):
            if len(set(map(repr, given))) != 1:
                raise config.fail(f"{key!r} that differs between layers is not supported")
            values[key] = given[0]
    if config.integer("num_shared_expert", 1) != 1 or config.boolean("use_cla"):
        raise config.fail("other than one shared expert, or shared caches, are not supported")
    values["num_experts_per_tok"] = config.positive("moe_topk", 1)
    _stretch_rotation(config)
    experts = reader.experts("num_experts", Routing.SOFTMAX, normalise=True, shared=reader.mlp())
    norm = QueryKeyNorm.ROTATED_HEAD
    return reader.architecture(reader.attention(query_key_norm=norm), experts)


def _stretch_rotation(config: ModelConfig) -> None:
    """A fixed alpha multiplies the base, as a file of llama.cpp's has it."""
    parameters = config.rotary_parameters()
    if parameters is None or parameters.values.get("alpha") is None:
        return
    size, alpha = config.head_size, parameters.positive("alpha")
    config.values["rope_scaling"] = None
    config.values["rope_parameters"] = {
        "rope_theta": parameters.theta * alpha ** (size / max(size - 2, 1))
    }


def _recipe_of_hunyuan(arch: Architecture, name: str) -> Recipe | None:
    moved = name.replace(".q_norm", ".query_layernorm").replace(".k_norm", ".key_layernorm")
    moved = moved.replace(".shared_experts.", ".shared_mlp.").replace(".mlp.gate", ".mlp.gate.wg")
    return each_expert(arch, name) if moved == name else (Part(tensor_name(moved)),)


def _config_of_hunyuan(file: GGUFConfig) -> Config:
    config = file.common("HunYuanMoEV1", "hunyuan_v1_moe", ("expert_count",))
    return {
        **config,
        **file.experts("num_experts", "intermediate_size", "moe_topk"),
        "num_shared_expert": 1,
    }


def _config_of_olmoe(file: GGUFConfig) -> Config:
    return {**file.common("Olmoe", "olmoe", ("expert_count",)), **file.experts("num_experts")}


def _config_of_glm4(file: GGUFConfig) -> Config:
    return {
        **file.common("Glm4Moe", "glm4_moe", GROUPED_EXPERTS),
        **config_of_grouped_experts(file),
        "attention_bias": "blk.0.attn_q.bias" in file.shapes,
        "use_qk_norm": "blk.0.attn_q_norm.weight" in file.shapes,
        "norm_topk_prob": file.metadata.get(file.key("expert_weights_norm"), bool, True),
        "n_group": max(file.integer("expert_group_count", 1), 1),
        "topk_group": max(file.integer("expert_group_used_count", 1), 1),
    }


def _config_of_ernie(file: GGUFConfig) -> Config:
    known = ("leading_dense_block_count", "expert_shared_count", "expert_count")
    return {
        **file.common("Ernie4_5_Moe", "ernie4_5_moe", known),
        **file.experts("moe_num_experts", "moe_intermediate_size", "moe_k"),
        "moe_num_shared_experts": file.integer("expert_shared_count", 0),
        "moe_layer_start_index": file.integer("leading_dense_block_count", 0),
        "moe_layer_interval": file.integer("interleave_moe_layer_step", 1),
        "use_bias": "blk.0.attn_q.bias" in file.shapes,
    }


def _config_of_minimax(file: GGUFConfig) -> Config:
    config = file.common("MiniMaxM2", "minimax_m2", ("expert_count", "expert_gating_func"))
    require_sigmoid(file)
    return {**config, **file.experts("num_local_experts", "intermediate_size")}


_CORRECTION = {"mlp.gate.e_score_correction": "exp_probs_b"}
_OLMOE = {
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 4096,
    "num_experts": 64,
    "num_experts_per_tok": 8,
}
_GLM4 = {
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 131072,
    "num_key_value_heads": 8,
    "moe_intermediate_size": 1408,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "n_routed_experts": 128,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 1,
}
_ERNIE = {
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 131072,
    "num_key_value_heads": 4,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "moe_intermediate_size": 1536,
    "moe_k": 6,
    "moe_num_experts": 64,
    "moe_num_shared_experts": 2,
    "moe_layer_start_index": 1,
    "moe_layer_interval": 1,
}
_MINIMAX = {
    "max_position_embeddings": 196608,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rope_theta": 5e6,
    "num_experts_per_tok": 8,
    "num_local_experts": 256,
}

FAMILY = Family(
    (
        ModelType("olmoe", _olmoe, _OLMOE, each_expert),
        ModelType("glm4_moe", _glm4, _GLM4, each_expert),
        ModelType("ernie4_5_moe", _ernie, _ERNIE, _recipe_of_ernie),
        ModelType("minimax_m2", _minimax, _MINIMAX, _recipe_of_minimax),
        ModelType("hunyuan_v1_moe", _hunyuan, {"rms_norm_eps": 1e-5}, _recipe_of_hunyuan),
    ),
    (
        GGUFArchitecture("olmoe", _config_of_olmoe),
        GGUFArchitecture(
            "glm4moe",
            _config_of_glm4,
            names={**_CORRECTION, "post_attention_layernorm": "post_attention_norm"},
        ),
        GGUFArchitecture("ernie4_5-moe", _config_of_ernie, names=_CORRECTION, interleaved=True),
        GGUFArchitecture("minimax-m2", _config_of_minimax, names=_CORRECTION),
        GGUFArchitecture("hunyuan-moe", _config_of_hunyuan),
    ),
)
