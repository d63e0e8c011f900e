"""Qwen 2 and 3, and both with experts."""

from __future__ import annotations

from typing import Any

from ..decoder.architecture import Architecture, Experts, Mlp, QueryKeyNorm, Routing
from .entry import Family, GGUFArchitecture, ModelType, Part, Recipe, each_expert, tensor_name
from .gguf_config import Config, GGUFConfig
from .reader import Reader


def _windows(reader: Reader) -> list[int]:
    """Layers from `max_window_layers` on have one."""
    config = reader.config
    if not config.boolean("use_sliding_window"):
        return [0] * config.layers
    first = config.integer("max_window_layers", 28)
    types = ["full_attention"] * min(first, config.layers)
    types += ["sliding_attention"] * (config.layers - len(types))
    return reader.windows(types)


def _qwen2(reader: Reader) -> Architecture:
    attention = reader.attention(bias=True, output_bias=False)
    return reader.architecture(attention, windows=_windows(reader))


def _qwen3(reader: Reader) -> Architecture:
    attention = reader.attention(query_key_norm=QueryKeyNorm.HEAD)
    return reader.architecture(attention, windows=_windows(reader))


def experts_beside_shared(reader: Reader, normalise: bool = False) -> Experts:
    """Experts beside an MLP that every token passes, which has a gate."""
    shared = Mlp(reader.config.positive("shared_expert_intermediate_size"), reader.activation())
    return _experts(reader, normalise, shared=shared, shared_gate=True)


def _experts(reader: Reader, normalise: bool = False, **others: Any) -> Experts:
    # transformers 5 writes another name than its predecessors.
    newer = reader.config.values.get("num_local_experts") is not None
    return reader.experts(
        "num_local_experts" if newer else "num_experts",
        Routing.SOFTMAX,
        reader.small_mlp(),
        normalise=reader.config.boolean("norm_topk_prob", normalise),
        **others,
    )


def with_dense_layers(reader: Reader, arch: Architecture) -> Architecture:
    step = reader.config.positive("decoder_sparse_step", 1)
    dense = reader.config.values.get("mlp_only_layers") or []
    return reader.with_dense_layers(arch, lambda index: index in dense or (index + 1) % step != 0)


def _qwen2_moe(reader: Reader) -> Architecture:
    bias = reader.config.boolean("qkv_bias", True)
    attention = reader.attention(bias=bias, output_bias=False)
    arch = reader.architecture(attention, experts_beside_shared(reader), _windows(reader))
    return with_dense_layers(reader, arch)


def recipe_of_qwen2_moe(arch: Architecture, name: str) -> Recipe | None:
    moved = name.replace(".shared_experts.", ".shared_expert.")
    moved = moved.replace(".shared_gate", ".shared_expert_gate")
    return (Part(tensor_name(moved)),) if moved != name else each_expert(arch, name)


def _qwen3_moe(reader: Reader) -> Architecture:
    attention = reader.attention(query_key_norm=QueryKeyNorm.HEAD)
    sliding = reader.config.boolean("use_sliding_window")
    windows = reader.windows(reader.same_everywhere(sliding))
    return with_dense_layers(reader, reader.architecture(attention, _experts(reader), windows))


def _config_of_qwen2(file: GGUFConfig) -> Config:
    return {**file.common("Qwen2", "qwen2"), "attention_bias": True}


def _config_of_qwen2_moe(file: GGUFConfig) -> Config:
    return {
        **file.common("Qwen2Moe", "qwen2_moe", ("expert_count",)),
        **file.experts("num_experts", "moe_intermediate_size"),
        "qkv_bias": True,
        "shared_expert_intermediate_size": file.integer("expert_shared_feed_forward_length"),
        "norm_topk_prob": False,
    }


def _config_of_qwen3_moe(file: GGUFConfig) -> Config:
    return {
        **file.common("Qwen3Moe", "qwen3_moe", ("expert_count",)),
        **file.experts("num_experts", "moe_intermediate_size"),
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


_COMMON = {
    "max_position_embeddings": 32768,
    "use_sliding_window": False,
    "sliding_window": 4096,
}

_QWEN2_MOE = {
    **_COMMON,
    "num_key_value_heads": 16,
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632,
}
_QWEN3_MOE = {
    **_COMMON,
    "num_key_value_heads": 4,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
}

FAMILY = Family(
    (
        ModelType("qwen2", _qwen2, {**_COMMON, "num_key_value_heads": 32, "attention_bias": True}),
        ModelType("qwen3", _qwen3, {**_COMMON, "num_key_value_heads": 32, "head_dim": 128}),
        ModelType("qwen2_moe", _qwen2_moe, _QWEN2_MOE, recipe_of_qwen2_moe),
        ModelType("qwen3_moe", _qwen3_moe, _QWEN3_MOE, each_expert),
    ),
    (
        GGUFArchitecture("qwen2", _config_of_qwen2),
        GGUFArchitecture("qwen3", lambda file: file.common("Qwen3", "qwen3")),
        GGUFArchitecture(
            "qwen2moe", _config_of_qwen2_moe, names={"mlp.shared_gate": "ffn_gate_inp_shexp"}
        ),
        GGUFArchitecture("qwen3moe", _config_of_qwen3_moe),
    ),
)
