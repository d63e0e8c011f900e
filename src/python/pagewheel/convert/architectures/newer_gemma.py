"""What Gemma 3n and Gemma 4 have in common."""

from __future__ import annotations

from dataclasses import replace

from ..decoder.architecture import Architecture, Mlp, NormPlacement, PerLayerInputs, QueryKeyNorm
from .gemma_rotary import local_rotary
from .gguf_config import Config, GGUFConfig
from .reader import Reader

DEFAULTS = {
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "head_dim": 256,
    "sliding_window": 512,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size_per_layer_input": 256,
    "vocab_size_per_layer_input": 262144,
}


def read_newer_gemma(reader: Reader, types: list[str]) -> Architecture:
    """All layers rotate by the local rotary embedding; their MLPs have no size yet."""
    config = reader.config
    attention = replace(
        reader.attention(), scale=1.0, query_key_norm=QueryKeyNorm.HEAD, value_norm=True
    )
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
        attention = replace(layers[index].attention, cache_of=owners[-1])
        layers[index] = replace(layers[index], attention=attention)
    return replace(arch, layers=tuple(layers))


def per_layer_inputs(file: GGUFConfig) -> Config:
    size = file.integer("embedding_length_per_layer_input", 0)
    rows = file.shape("per_layer_token_embd.weight")[0] if size else 0
    return {"hidden_size_per_layer_input": size, "vocab_size_per_layer_input": rows}
