"""Gemma 1, 2 and 3."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..decoder.architecture import (
    Activation,
    Architecture,
    Attention,
    Mlp,
    NormPlacement,
    QueryKeyNorm,
)
from .entry import Family, GGUFArchitecture, ModelType
from .gemma_rotary import local_rotary, with_global_rotary
from .gguf_config import WINDOW_KEY, Config, GGUFConfig
from .reader import Reader


def _gemma(reader: Reader) -> Architecture:
    return reader.architecture(
        mlp=_mlp(reader),
        norm_offset=1.0,
        embedding_scale=reader.config.positive("hidden_size") ** 0.5,
    )


def _gemma2(reader: Reader) -> Architecture:
    return _with_norms_on_both_sides(reader, _attention(reader), reader.full_attention_every(2))


def _gemma3(reader: Reader) -> Architecture:
    attention = replace(_attention(reader), query_key_norm=QueryKeyNorm.HEAD)
    types = reader.full_attention_every(reader.config.positive("sliding_window_pattern", 6))
    rotary = (local_rotary(reader),)
    arch = _with_norms_on_both_sides(reader, attention, types, rotary=rotary)
    return with_global_rotary(arch, reader.rotary("full_attention"))


def _attention(reader: Reader) -> Attention:
    return replace(
        reader.attention(),
        scale=reader.config.number("query_pre_attn_scalar") ** -0.5,
        soft_cap=reader.config.number("attn_logit_softcapping", 0.0),
    )


def _mlp(reader: Reader) -> Mlp:
    # Every Gemma was trained with tanh, also where an old config says "gelu".
    key = "hidden_activation"
    name = reader.config.values.get(key, "gelu_pytorch_tanh")
    activation = Activation.GELU_TANH if name == "gelu" else None
    if activation is None:
        reader.config.values.setdefault(key, name)
        activation = reader.activation(key)
    return Mlp(reader.config.positive("intermediate_size"), activation)


def _with_norms_on_both_sides(
    reader: Reader, attention: Attention, types: list[str], **changes: Any
) -> Architecture:
    """Gemma 2 and 3; `types` are the layers' where the config does not say."""
    config = reader.config
    return reader.architecture(
        attention,
        _mlp(reader),
        reader.windows(types),
        norms=NormPlacement.SANDWICH,
        norm_offset=1.0,
        embedding_scale=config.positive("hidden_size") ** 0.5,
        logits_soft_cap=config.number("final_logit_softcapping", 0.0),
        **changes,
    )


def _config_of_gemma(file: GGUFConfig) -> Config:
    return {
        "architectures": ["GemmaForCausalLM"],
        **file.common("gemma"),
        "hidden_activation": "gelu_pytorch_tanh",
    }


def _query_scalar(config: Config, layers_of_27b: int) -> float:
    """llama.cpp has no key for it and takes another than the head size for one model alone."""
    if config["num_hidden_layers"] == layers_of_27b:
        return float(config["hidden_size"] // config["num_attention_heads"])
    return float(config["head_dim"])


def _config_of_gemma2(file: GGUFConfig) -> Config:
    config = file.common("gemma2", (WINDOW_KEY,))
    return {
        "architectures": ["Gemma2ForCausalLM"],
        **config,
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": file.integer(WINDOW_KEY, 4096),
        "query_pre_attn_scalar": _query_scalar(config, 46),
        "attn_logit_softcapping": file.number("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": file.number("final_logit_softcapping", 30.0),
    }


def _config_of_gemma3(file: GGUFConfig) -> Config:
    config = file.common("gemma3", (WINDOW_KEY,))
    return {
        "architectures": ["Gemma3ForCausalLM"],
        **config,
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": file.integer(WINDOW_KEY),
        "layer_types": file.layer_types(6),
        "rope_local_base_freq": file.number("rope.freq_base_swa", 10000.0),
        "query_pre_attn_scalar": _query_scalar(config, 62),
        "attn_logit_softcapping": None,
        "final_logit_softcapping": file.number("final_logit_softcapping", 0.0) or None,
    }


_COMMON = {"rms_norm_eps": 1e-6, "tie_word_embeddings": True, "head_dim": 256}

FAMILY = Family(
    (
        ModelType(
            "gemma",
            _gemma,
            {**_COMMON, "num_key_value_heads": 16, "max_position_embeddings": 8192},
        ),
        ModelType(
            "gemma2",
            _gemma2,
            {
                **_COMMON,
                "num_key_value_heads": 4,
                "max_position_embeddings": 8192,
                "query_pre_attn_scalar": 256,
                "sliding_window": 4096,
                "attn_logit_softcapping": 50.0,
                "final_logit_softcapping": 30.0,
            },
        ),
        ModelType(
            "gemma3_text",
            _gemma3,
            {
                **_COMMON,
                "vocab_size": 262208,
                "hidden_size": 2304,
                "intermediate_size": 9216,
                "num_hidden_layers": 26,
                "num_attention_heads": 8,
                "num_key_value_heads": 4,
                "max_position_embeddings": 131072,
                "query_pre_attn_scalar": 256,
                "sliding_window": 4096,
                "rope_theta": 1e6,
            },
        ),
    ),
    (
        GGUFArchitecture("gemma", _config_of_gemma, norms_with_offset=True),
        GGUFArchitecture("gemma2", _config_of_gemma2, norms_with_offset=True),
        GGUFArchitecture("gemma3", _config_of_gemma3, norms_with_offset=True),
    ),
)
