"""Mixtral: Mistral with experts. Its GGUF files call themselves llama."""

from __future__ import annotations

import re

from ..decoder.architecture import Architecture, Experts, Routing
from .checkpoint import Part, Recipe, each_expert, tensor_name
from .entry import Family, ModelType
from .gguf_config import Config, GGUFConfig
from .reader import Reader


def _read(reader: Reader) -> Architecture:
    config = reader.config
    experts = Experts(
        count=config.positive("num_local_experts"),
        active=config.positive("num_experts_per_tok"),
        mlp=reader.mlp(),
        # All experts' softmax, the best renormalised: the softmax of the best.
        routing=Routing.SOFTMAX_OF_BEST,
    )
    return reader.architecture(mlp=experts, windows=reader.windows(reader.same_everywhere(True)))


def config_of_mixtral(file: GGUFConfig) -> Config:
    return {
        "architectures": ["MixtralForCausalLM"],
        **file.common("mixtral", ("expert_count",)),
        **file.experts("num_local_experts"),
    }


_NAMES = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}


def _recipe(arch: Architecture, name: str) -> Recipe | None:
    moved = name.replace(".mlp.", ".block_sparse_moe.")
    moved = re.sub(r"(?<=\.experts\.)\w+", lambda match: _NAMES[match[0]], moved)
    if moved == name:
        return None
    return each_expert(arch, moved) or (Part(tensor_name(moved)),)


FAMILY = Family(
    (
        ModelType(
            "mixtral",
            _read,
            {
                "rms_norm_eps": 1e-5,
                "num_key_value_heads": 8,
                "max_position_embeddings": 131072,
                "rope_theta": 1e6,
                "num_local_experts": 8,
                "num_experts_per_tok": 2,
            },
            _recipe,
        ),
    )
)
