"""config.json -> Architecture for the Gemma family."""

from __future__ import annotations

from dataclasses import replace

from .architecture import (
    Activation,
    AltUp,
    Architecture,
    Layer,
    Mlp,
    NormPlacement,
    PerLayerInputs,
    QueryKeyNorm,
)
from .architecture_reader import Reader
from .model_config import ModelConfig
from .rotary import RotaryEmbedding


def _gemma_mlp(reader: Reader, key: str) -> Mlp:
    # Every Gemma was trained with tanh, also where an old config says "gelu".
    name = reader.config.values.get(key, "gelu_pytorch_tanh")
    activation = Activation.GELU_TANH if name == "gelu" else None
    if activation is None:
        reader.config.values.setdefault(key, name)
        activation = reader.activation(key)
    return Mlp(reader.config.positive("intermediate_size"), activation)


def gemma(reader: Reader) -> Architecture:
    return reader.architecture(
        mlp=_gemma_mlp(reader, "hidden_activation"),
        norm_offset=1.0,
        embedding_scale=reader.config.positive("hidden_size") ** 0.5,
    )


def gemma2(reader: Reader) -> Architecture:
    config = reader.config
    attention = replace(
        reader.attention(),
        scale=config.number("query_pre_attn_scalar") ** -0.5,
        soft_cap=config.number("attn_logit_softcapping", 0.0),
    )
    types = ["full_attention" if i % 2 else "sliding_attention" for i in range(config.layers)]
    return reader.architecture(
        attention,
        _gemma_mlp(reader, "hidden_activation"),
        reader.windows(types),
        norms=NormPlacement.SANDWICH,
        norm_offset=1.0,
        embedding_scale=config.positive("hidden_size") ** 0.5,
        logits_soft_cap=config.number("final_logit_softcapping", 0.0),
    )


def _with_rotations(arch: Architecture, whole: RotaryEmbedding) -> Architecture:
    """Layers without a window turn by `whole`, the others by what all had so far."""
    layers = tuple(
        replace(layer, attention=replace(layer.attention, rotary=1))
        if layer.attention.window
        else layer
        for layer in arch.layers
    )
    return replace(arch, layers=layers, rotary=(whole, *arch.rotary))


def gemma3(reader: Reader) -> Architecture:
    config = reader.config
    attention = replace(
        reader.attention(),
        scale=config.number("query_pre_attn_scalar") ** -0.5,
        soft_cap=config.number("attn_logit_softcapping", 0.0),
        query_key_norm=QueryKeyNorm.HEAD,
    )
    pattern = config.positive("sliding_window_pattern", 6)
    types = [
        "sliding_attention" if (layer + 1) % pattern else "full_attention"
        for layer in range(config.layers)
    ]
    arch = reader.architecture(
        attention,
        _gemma_mlp(reader, "hidden_activation"),
        reader.windows(types),
        rotary=(_local_rotary(reader),),
        norms=NormPlacement.SANDWICH,
        norm_offset=1.0,
        embedding_scale=config.positive("hidden_size") ** 0.5,
        logits_soft_cap=config.number("final_logit_softcapping", 0.0),
    )
    return _with_rotations(arch, reader.rotary("full_attention"))


def _local_rotary(reader: Reader) -> RotaryEmbedding:
    """Of layers with a window: never scaled before transformers 5, `rope_local_base_freq`."""
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


def _shared_caches(reader: Reader, arch: Architecture) -> Architecture:
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


def _newer_gemma(reader: Reader, types: list[str]) -> Architecture:
    """What Gemma 3n and 4 have in common; all layers turn by the local rotary embedding."""
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
        rotary=(_local_rotary(reader),),
        norms=NormPlacement.SANDWICH,
        embedding_scale=config.positive("hidden_size") ** 0.5,
        logits_soft_cap=config.number("final_logit_softcapping", 0.0),
        per_layer_inputs=per_layer,
    )


def _global_rotary(reader: Reader, types: list[str]) -> RotaryEmbedding:
    """Of layers without a window, with their own head size."""
    config = reader.config
    whole = config.layer_types(types).index("full_attention")
    size = _gemma4_overrides(config, whole).get("head_dim", config.head_size)
    own = ModelConfig({**config.values, "head_dim": size}, config.where)
    return Reader(own, None).rotary("full_attention")


def gemma3n(reader: Reader) -> Architecture:
    config = reader.config
    count = config.layers
    types = ["sliding_attention" if (i + 1) % 5 else "full_attention" for i in range(count)]
    sizes = config.values.get("intermediate_size")
    if isinstance(sizes, list):
        sizes = config.list_of("intermediate_size", int, count)
    else:
        sizes = [config.positive("intermediate_size")] * count
    sparse = 10 if count > 10 else 0
    sparsity = config.list_of("activation_sparsity_pattern", (int, float), count) or (
        [0.95] * sparse + [0.0] * (count - sparse)
    )
    arch = _newer_gemma(reader, types)
    layers = tuple(
        replace(layer, mlp=replace(layer.mlp, intermediate_size=size, sparsity=share))
        for layer, size, share in zip(arch.layers, sizes or [], sparsity, strict=True)
    )
    altup = AltUp(
        config.positive("altup_num_inputs"),
        config.integer("altup_active_idx"),
        config.positive("laurel_rank"),
        config.boolean("altup_correct_scale"),
    )
    arch = replace(arch, layers=layers, altup=altup)
    arch = _with_rotations(arch, reader.rotary("full_attention"))
    return _shared_caches(reader, arch)


def gemma4(reader: Reader) -> Architecture:
    config = reader.config
    if config.boolean("enable_moe_block"):
        raise config.fail("experts beside the MLP (enable_moe_block) are not supported")
    if config.values.get("use_bidirectional_attention") == "all":
        raise config.fail("bidirectional attention is not supported")
    count = config.layers
    types = ["sliding_attention" if (i + 1) % 6 else "full_attention" for i in range(count)]
    types[-1] = "full_attention"
    arch = _newer_gemma(reader, types)
    arch = _shared_caches(reader, arch)
    layers = tuple(_gemma4_layer(config, index, layer) for index, layer in enumerate(arch.layers))
    arch = replace(arch, layers=layers)
    return _with_rotations(arch, _global_rotary(reader, types))


def _gemma4_layer(config: ModelConfig, index: int, layer: Layer) -> Layer:
    """Layers without a window have heads of their own size and number."""
    attention = layer.attention
    shared = attention.cache_of is not None
    if not attention.window:
        own = _gemma4_overrides(config, index)
        attention = replace(
            attention,
            head_size=own.get("head_dim", attention.head_size),
            kv_heads=own.get("num_key_value_heads", attention.kv_heads),
            values_are_keys=config.boolean("attention_k_eq_v"),
        )
    wide = 2 if shared and config.boolean("use_double_wide_mlp") else 1
    assert isinstance(layer.mlp, Mlp)
    mlp = replace(layer.mlp, intermediate_size=wide * config.positive("intermediate_size"))
    return Layer(attention, mlp, scaled=True)


def _gemma4_overrides(config: ModelConfig, index: int) -> dict[str, int]:
    """`per_layer_config`, in older files `global_head_dim` and `num_global_key_value_heads`."""
    overrides = config.values.get("per_layer_config")
    if isinstance(overrides, dict):
        own = ModelConfig(overrides.get(str(index)) or {}, f"{config.where}: layer {index}")
    else:
        own = ModelConfig({"head_dim": config.positive("global_head_dim", 512)}, config.where)
        if config.boolean("attention_k_eq_v") and config.values.get("num_global_key_value_heads"):
            own.values["num_key_value_heads"] = config.values["num_global_key_value_heads"]
    names = ("head_dim", "num_key_value_heads")
    return {name: own.positive(name) for name in names if own.values.get(name) is not None}
