"""Gemma 1, 2 and 3, and what Gemma 3n and Gemma 4 have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..decoder.architecture import (
    Activation,
    Architecture,
    Attention,
    Mlp,
    NormPlacement,
    PerLayerInputs,
    QueryKeyNorm,
)
from ..decoder.rotary import RotaryEmbedding
from .entry import Family, GGUFArchitecture, ModelType
from .gguf_config import WINDOW_KEY, Config, GGUFConfig
from .reader import ModelConfig, Reader


def with_global_rotary(arch: Architecture, rotary: RotaryEmbedding) -> Architecture:
    """Layers without a window rotate by `rotary`, the others by what all had so far."""
    return arch.with_layers(
        lambda _, layer: layer.with_attention(rotary=1) if layer.attention.window else layer,
        rotary=(rotary, *arch.rotary),
    )


def local_rotary(reader: Reader) -> RotaryEmbedding:
    """The rotary embedding of layers with a window.

    Before transformers 5 it was `rope_local_base_freq`, unscaled.
    """
    config = reader.config
    nested = config.values.get("rope_parameters")
    if isinstance(nested, dict) and "sliding_attention" in nested:
        return reader.rotary("sliding_attention")
    local = {
        **config.values,
        "rope_parameters": None,
        "rope_scaling": None,
        "rope_theta": config.number("rope_local_base_freq", 10000.0),
    }
    return Reader(ModelConfig(local, config.where), None).rotary()


_COMMON = {"tie_word_embeddings": True, "head_dim": 256}
# Gemma 3n's and 4's.
NEWER_DEFAULTS = {
    **_COMMON,
    "sliding_window": 512,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size_per_layer_input": 256,
    "vocab_size_per_layer_input": 262144,
}


def read_newer_gemma(reader: Reader, types: list[str]) -> Architecture:
    """All layers rotate by the local rotary embedding; their MLPs have no size yet."""
    config = reader.config
    attention = reader.attention(scale=1.0, query_key_norm=QueryKeyNorm.HEAD, value_norm=True)
    per_layer = None
    if config.integer("hidden_size_per_layer_input"):
        per_layer = PerLayerInputs(
            config.positive("hidden_size_per_layer_input"),
            config.positive("vocab_size_per_layer_input"),
            reader.activation("hidden_activation"),
        )
    return reader.architecture(
        attention,
        Mlp(1, reader.activation("hidden_activation")),
        reader.windows(types),
        rotary=(local_rotary(reader),),
        norms=NormPlacement.SANDWICH,
        embedding_scale=config.positive("hidden_size") ** 0.5,
        logits_soft_cap=config.number("final_logit_softcapping", 0.0),
        per_layer_inputs=per_layer,
    )


def with_shared_caches(reader: Reader, arch: Architecture) -> Architecture:
    """The last `num_kv_shared_layers` read the last earlier cache of a layer of their type."""
    config = reader.config
    first = len(arch.layers) - config.integer("num_kv_shared_layers", 0)
    if not 0 < first <= len(arch.layers):
        raise config.fail(f"'num_kv_shared_layers' leaves {first} of {len(arch.layers)} layers")
    layers = list(arch.layers)
    for index in range(first, len(layers)):
        sliding = layers[index].attention.window > 0
        owners = [i for i in range(first) if (layers[i].attention.window > 0) == sliding]
        if not owners:
            raise config.fail(f"layer {index} shares the cache of a layer that is not there")
        layers[index] = layers[index].with_attention(cache_of=owners[-1])
    return replace(arch, layers=tuple(layers))


def per_layer_inputs(file: GGUFConfig) -> Config:
    size = file.integer("embedding_length_per_layer_input", 0)
    rows = file.shape("per_layer_token_embd.weight")[0] if size else 0
    return {"hidden_size_per_layer_input": size, "vocab_size_per_layer_input": rows}


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
    return reader.attention(
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


_TANH = {"hidden_activation": "gelu_pytorch_tanh"}


def _config_of_gemma(file: GGUFConfig) -> Config:
    return {**file.common("Gemma", "gemma"), **_TANH}


def _query_scalar(config: Config, layers_of_27b: int) -> float:
    """llama.cpp has no key for it and takes another than the head size for one model alone."""
    if config["num_hidden_layers"] == layers_of_27b:
        return float(config["hidden_size"] // config["num_attention_heads"])
    return float(config["head_dim"])


def _config_of_gemma2(file: GGUFConfig) -> Config:
    config = file.common("Gemma2", "gemma2", (WINDOW_KEY,))
    return {
        **config,
        **_TANH,
        "sliding_window": file.integer(WINDOW_KEY, 4096),
        "query_pre_attn_scalar": _query_scalar(config, 46),
        "attn_logit_softcapping": file.number("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": file.number("final_logit_softcapping", 30.0),
    }


def _config_of_gemma3(file: GGUFConfig) -> Config:
    config = file.common("Gemma3", "gemma3_text", (WINDOW_KEY,))
    return {
        **config,
        **_TANH,
        "sliding_window": file.integer(WINDOW_KEY),
        "layer_types": file.layer_types(6),
        "rope_local_base_freq": file.number("rope.freq_base_swa", 10000.0),
        "query_pre_attn_scalar": _query_scalar(config, 62),
        "attn_logit_softcapping": None,
        "final_logit_softcapping": file.number("final_logit_softcapping", 0.0) or None,
    }


_GEMMA = {**_COMMON, "num_key_value_heads": 16, "max_position_embeddings": 8192}
_GEMMA2 = {
    **_COMMON,
    "num_key_value_heads": 4,
    "max_position_embeddings": 8192,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}
_GEMMA3 = {
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
}

FAMILY = Family(
    (
        ModelType("gemma", _gemma, _GEMMA),
        ModelType("gemma2", _gemma2, _GEMMA2),
        ModelType("gemma3_text", _gemma3, _GEMMA3),
    ),
    (
        GGUFArchitecture("gemma", _config_of_gemma, norms_with_offset=True),
        GGUFArchitecture("gemma2", _config_of_gemma2, norms_with_offset=True),
        GGUFArchitecture("gemma3", _config_of_gemma3, norms_with_offset=True),
    ),
)
