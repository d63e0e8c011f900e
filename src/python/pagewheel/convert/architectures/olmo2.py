"""OLMo 2: norms after the blocks only, and of queries and keys over all heads."""

from __future__ import annotations

from dataclasses import replace

from ..decoder.architecture import Architecture, NormPlacement, QueryKeyNorm
from .entry import Family, GGUFArchitecture, ModelType
from .gguf_config import Config, GGUFConfig
from .reader import Reader


def _read(reader: Reader) -> Architecture:
    attention = replace(reader.attention(), query_key_norm=QueryKeyNorm.WHOLE)
    return reader.architecture(attention, norms=NormPlacement.POST)


def _config(file: GGUFConfig) -> Config:
    return {"architectures": ["Olmo2ForCausalLM"], **file.common("olmo2")}


FAMILY = Family(
    (ModelType("olmo2", _read, {"rms_norm_eps": 1e-5, "max_position_embeddings": 2048}),),
    (GGUFArchitecture("olmo2", _config),),
)
