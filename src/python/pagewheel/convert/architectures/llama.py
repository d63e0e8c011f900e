"""Llama 1 to 3, and what is built like it."""

from __future__ import annotations

from .entry import Family, GGUFArchitecture, ModelType
from .gguf_config import Config, GGUFConfig
from .mixtral import config_of_mixtral
from .reader import Reader


def _config(file: GGUFConfig) -> Config:
    """Mistral's and Mixtral's files call themselves llama too."""
    if file.integer("expert_count", 0):
        return config_of_mixtral(file)
    return {"architectures": ["LlamaForCausalLM"], **file.common("llama")}


FAMILY = Family(
    (
        ModelType(
            "llama",
            Reader.architecture,
            {"rms_norm_eps": 1e-6, "max_position_embeddings": 2048},
        ),
    ),
    (GGUFArchitecture("llama", _config, interleaved=True),),
)
