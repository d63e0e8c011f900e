"""Qwen 2 and 3, and Qwen 3 with experts."""

from __future__ import annotations

from dataclasses import replace

from ..decoder.architecture import Architecture, Experts, Mlp, QueryKeyNorm, Routing
from .entry import Family, GGUFArchitecture, ModelType, each_expert
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
    attention = replace(reader.attention(), bias=True, output_bias=False)
    return reader.architecture(attention, windows=_windows(reader))


def _qwen3(reader: Reader) -> Architecture:
    attention = replace(reader.attention(), query_key_norm=QueryKeyNorm.HEAD)
    return reader.architecture(attention, windows=_windows(reader))


def _qwen3_moe(reader: Reader) -> Architecture:
    config = reader.config
    experts = Experts(
        # transformers 5 writes another name than its predecessors.
        count=config.positive("num_local_experts", config.positive("num_experts")),
        active=config.positive("num_experts_per_tok"),
        mlp=Mlp(config.positive("moe_intermediate_size"), reader.activation()),
        routing=Routing.SOFTMAX,
        normalise=config.boolean("norm_topk_prob"),
    )
    attention = replace(reader.attention(), query_key_norm=QueryKeyNorm.HEAD)
    windows = reader.windows(reader.same_everywhere(config.boolean("use_sliding_window")))
    arch = reader.architecture(attention, experts, windows)
    step = config.positive("decoder_sparse_step", 1)
    dense = config.values.get("mlp_only_layers") or []
    layers = tuple(
        replace(layer, mlp=reader.mlp()) if index in dense or (index + 1) % step else layer
        for index, layer in enumerate(arch.layers)
    )
    return replace(arch, layers=layers)


def _config_of_qwen2(file: GGUFConfig) -> Config:
    return {**file.common("Qwen2", "qwen2"), "attention_bias": True}


def _config_of_qwen3_moe(file: GGUFConfig) -> Config:
    return {
        **file.common("Qwen3Moe", "qwen3_moe", ("expert_count",)),
        **file.experts("num_experts"),
        "moe_intermediate_size": file.integer("expert_feed_forward_length"),
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


_COMMON = {
    "max_position_embeddings": 32768,
    "use_sliding_window": False,
    "sliding_window": 4096,
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
        ModelType("qwen3_moe", _qwen3_moe, _QWEN3_MOE, each_expert),
    ),
    (
        GGUFArchitecture("qwen2", _config_of_qwen2),
        GGUFArchitecture("qwen3", lambda file: file.common("Qwen3", "qwen3")),
        GGUFArchitecture("qwen3moe", _config_of_qwen3_moe),
    ),
)
