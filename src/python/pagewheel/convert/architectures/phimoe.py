"""Phi-3.5 MoE: layer norms with biases, and experts chosen by SparseMixer."""

from __future__ import annotations

from ..decoder.architecture import Architecture, Routing
from .entry import Family, GGUFArchitecture, ModelType
from .gguf_config import Config, GGUFConfig
from .llama import recipe_of_mixtral
from .reader import Reader


def _read(reader: Reader) -> Architecture:
    config = reader.config
    if config.positive("num_experts_per_tok") != 2:
        raise config.fail("'num_experts_per_tok' must be 2, as SparseMixer has it")
    experts = reader.experts(
        "num_local_experts",
        Routing.SPARSE_MIXER,
        near=2 * config.not_negative("router_jitter_noise"),
    )
    return reader.architecture(
        mlp=experts,
        windows=reader.windows(reader.same_everywhere(True)),
        layer_norms=True,
        lm_head_bias=config.boolean("lm_head_bias"),
    )


def _config(file: GGUFConfig) -> Config:
    config = file.common("Phimoe", "phimoe", ("expert_count",))
    original = file.integer(
        "rope.scaling.original_context_length", config["max_position_embeddings"]
    )
    return {
        **config,
        **file.experts("num_local_experts"),
        "original_max_position_embeddings": original,
        "attention_bias": "blk.0.attn_q.bias" in file.shapes,
        "lm_head_bias": "output.bias" in file.shapes,
    }


_DEFAULTS = {
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 131072,
    "num_key_value_heads": 8,
    "num_local_experts": 16,
    "num_experts_per_tok": 2,
    "router_jitter_noise": 0.01,
    "rope_theta": 1e6,
}

FAMILY = Family(
    (ModelType("phimoe", _read, _DEFAULTS, recipe_of_mixtral),),
    (GGUFArchitecture("phimoe", _config),),
)
