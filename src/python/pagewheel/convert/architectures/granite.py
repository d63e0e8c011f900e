"""Granite 3: a Llama with multipliers of embeddings, attention, residuals and logits."""

from __future__ import annotations

from dataclasses import replace

from ..decoder.architecture import Architecture
from .entry import Family, GGUFArchitecture, ModelType
from .gguf_config import SCALE_KEYS, Config, GGUFConfig
from .reader import Reader


def _read(reader: Reader) -> Architecture:
    config = reader.config
    return reader.architecture(
        replace(reader.attention(), scale=config.number("attention_multiplier", 1.0)),
        embedding_scale=config.number("embedding_multiplier", 1.0),
        residual_scale=config.number("residual_multiplier", 1.0),
        logits_scale=1.0 / config.number("logits_scaling", 1.0),
    )


def _config(file: GGUFConfig) -> Config:
    config = file.common("granite", SCALE_KEYS)
    return {
        "architectures": ["GraniteForCausalLM"],
        **config,
        "attention_multiplier": file.number("attention.scale", config["head_dim"] ** -0.5),
        "embedding_multiplier": file.number("embedding_scale", 1.0),
        "residual_multiplier": file.number("residual_scale", 1.0),
        "logits_scaling": file.number("logit_scale", 1.0),
    }


FAMILY = Family(
    (ModelType("granite", _read, {"rms_norm_eps": 1e-6, "max_position_embeddings": 2048}),),
    (GGUFArchitecture("granite", _config, interleaved=True),),
)
