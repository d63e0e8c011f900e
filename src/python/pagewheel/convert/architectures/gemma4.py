"""Gemma 4 (text): heads of two sizes, proportional rotation, shared caches, experts."""

from __future__ import annotations

from dataclasses import replace

from ..decoder.architecture import Architecture, Experts, Layer, Mlp, Routing
from ..decoder.rotary import RotaryEmbedding
from .entry import Family, GGUFArchitecture, ModelType, Part, Recipe
from .gemma import (
    NEWER_DEFAULTS,
    per_layer_inputs,
    read_newer_gemma,
    with_global_rotary,
    with_shared_caches,
)
from .gguf_config import WINDOW_KEY, Config, GGUFConfig
from .reader import ModelConfig, Reader


def _read(reader: Reader) -> Architecture:
    config = reader.config
    if config.values.get("use_bidirectional_attention") == "all":
        raise config.fail("bidirectional attention is not supported")
    types = reader.full_attention_every(6)
    types[-1] = "full_attention"
    arch = read_newer_gemma(reader, types)
    arch = with_shared_caches(reader, arch)
    arch = arch.with_layers(lambda index, layer: _layer(config, index, layer))
    if config.boolean("enable_moe_block"):
        experts = _experts(reader)
        arch = arch.with_layers(lambda _, layer: replace(layer, beside=experts))
    return with_global_rotary(arch, _global_rotary(reader, types))


def _experts(reader: Reader) -> Experts:
    config = reader.config
    return Experts(
        count=config.positive("num_experts"),
        active=config.positive("top_k_experts"),
        mlp=Mlp(config.positive("moe_intermediate_size"), reader.activation("hidden_activation")),
        routing=Routing.SOFTMAX,
        normalise=True,
    )


_ROUTER = {"gate": "proj.weight", "router_scale": "scale", "expert_scales": "per_expert_scale"}


def _recipe(arch: Architecture, name: str) -> Recipe | None:
    """The rows of gate and up of all experts are in one tensor."""
    before, found, after = name.partition(".moe.")
    if not found:
        return None
    if after in _ROUTER:
        return (Part(f"{before}.router.{_ROUTER[after]}"),)
    if after == "experts.down_proj":
        return (Part(f"{before}.{after}"),)
    experts = arch.layers[0].beside
    assert experts is not None
    inner = experts.mlp.intermediate_size
    first = 0 if after == "experts.gate_proj" else inner
    return (Part(f"{before}.experts.gate_up_proj", slice(first, first + inner), 2 * inner),)


def _layer(config: ModelConfig, index: int, layer: Layer) -> Layer:
    """Layers without a window have heads of their own size and number."""
    attention = layer.attention
    shared = attention.cache_of is not None
    if not attention.window:
        own = _global_heads(config, index)
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


def _global_rotary(reader: Reader, types: list[str]) -> RotaryEmbedding:
    """The rotary embedding of layers without a window, which have their own head size."""
    config = reader.config
    layer = config.layer_types(types).index("full_attention")
    size = _global_heads(config, layer).get("head_dim", config.head_size)
    own = ModelConfig({**config.values, "head_dim": size}, config.where)
    return Reader(own, None).rotary("full_attention")


def _global_heads(config: ModelConfig, layer: int) -> dict[str, int]:
    """`per_layer_config`, in older files `global_head_dim` and `num_global_key_value_heads`."""
    overrides = config.values.get("per_layer_config")
    if isinstance(overrides, dict):
        own = ModelConfig(overrides.get(str(layer)) or {}, f"{config.where}: layer {layer}")
    else:
        own = ModelConfig({"head_dim": config.positive("global_head_dim", 512)}, config.where)
        if config.boolean("attention_k_eq_v") and config.values.get("num_global_key_value_heads"):
            own.values["num_key_value_heads"] = config.values["num_global_key_value_heads"]
    names = ("head_dim", "num_key_value_heads")
    return {name: own.positive(name) for name in names if own.values.get(name) is not None}


def _config(file: GGUFConfig) -> Config:
    types = file.layer_types(6)
    whole = [index for index, each in enumerate(types) if each == "full_attention"]
    shared = file.integer("attention.shared_kv_layers", 0)
    if not 0 <= shared < len(types):
        raise file.fail(
            f"{file.key('attention.shared_kv_layers')} must be 0 to {len(types) - 1}, got {shared}"
        )
    first_shared = len(types) - shared
    kv_heads = file.each_layer("attention.head_count_kv")
    local_heads = _local_kv_heads(file, kv_heads, types)
    sizes = file.each_layer("feed_forward_length")
    double = first_shared < len(sizes) and sizes[-1] == 2 * sizes[0]
    if sizes != sizes[:1] * first_shared + [sizes[0] * (1 + double)] * shared:
        raise file.fail(f"{file.key('feed_forward_length')} = {sizes!r:.80} is not supported")
    head_size = file.integer("attention.key_length")
    local_size = file.integer("attention.key_length_swa", head_size)
    config = file.common(
        *("Gemma4", "gemma4_text", (WINDOW_KEY, "expert_count")),
        intermediate_size=sizes[0],
        kv_heads=local_heads,
        head_size=head_size,
    )
    with_values = [
        f"blk.{index}.attn_v.weight" in file.shapes for index in whole if index < first_shared
    ]
    count = file.integer("expert_count", 0)
    experts = {
        "enable_moe_block": True,
        "num_experts": count,
        "top_k_experts": file.integer("expert_used_count", 0),
        "moe_intermediate_size": file.integer("expert_feed_forward_length", 0),
    }
    return {
        **config,
        **(experts if count else {}),
        **per_layer_inputs(file),
        "head_dim": local_size,
        "per_layer_config": {
            str(index): {"head_dim": head_size, "num_key_value_heads": kv_heads[index]}
            for index in whole
        },
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": file.integer(WINDOW_KEY),
        "layer_types": types,
        "num_kv_shared_layers": shared,
        "attention_k_eq_v": not any(with_values),
        "use_double_wide_mlp": double,
        "final_logit_softcapping": file.number("final_logit_softcapping", 0.0) or None,
        "rope_parameters": {
            "full_attention": {
                "rope_type": "proportional",
                "rope_theta": config["rope_theta"],
                "partial_rotary_factor": _global_rotary_factor(file, head_size),
            },
            "sliding_attention": {
                "rope_type": "default",
                "rope_theta": file.theta("rope.freq_base_swa"),
                "partial_rotary_factor": file.partial_rotary_factor(
                    "rope.dimension_count_swa", local_size
                ),
            },
        },
        "partial_rotary_factor": 1.0,
    }


def _local_kv_heads(file: GGUFConfig, kv_heads: list[int], types: list[str]) -> int:
    """The number of kv heads of layers with a window, which must all have as many."""
    local = {heads for heads, each in zip(kv_heads, types, strict=True) if each != "full_attention"}
    if len(local) != 1 or "full_attention" not in types:
        raise file.fail(
            f"{file.key('attention.head_count_kv')} = {kv_heads!r:.80} in layers with windows "
            f"and without, {types!r:.80}, is not supported"
        )
    return next(iter(local))


def _global_rotary_factor(file: GGUFConfig, head_size: int) -> float:
    """The part of a head that rotates in layers without a window.

    A channel that does not rotate has a huge divisor.
    """
    divisors = file.vector("rope_freqs.weight")
    rotated = divisors.count(1.0)
    if len(divisors) != head_size // 2 or not all(each >= 1e20 for each in divisors[rotated:]):
        raise file.fail(
            f"tensor 'rope_freqs.weight' must be {head_size // 2} numbers: ones, then 1e30"
        )
    return file.part(2 * rotated, head_size)


FAMILY = Family(
    (
        ModelType(
            "gemma4_text",
            _read,
            {
                **NEWER_DEFAULTS,
                "num_key_value_heads": 4,
                "max_position_embeddings": 131072,
                "rope_parameters": {
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                    "full_attention": {
                        "rope_type": "proportional",
                        "partial_rotary_factor": 0.25,
                        "rope_theta": 1e6,
                    },
                },
            },
            _recipe,
        ),
    ),
    (
        GGUFArchitecture(
            "gemma4",
            _config,
            names={
                "moe.gate": "ffn_gate_inp",
                "moe.router_scale": "ffn_gate_inp.scale",
                "moe.expert_scales": "ffn_down_exps.scale",
                "moe.experts.down_proj": "ffn_down_exps",
                "experts.gate_up_proj": "ffn_gate_up_exps",
                "post_feedforward_layernorm_1": "post_ffw_norm_1",
                "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
                "post_feedforward_layernorm_2": "post_ffw_norm_2",
            },
            fused_as_in_checkpoint=True,
            frequency_divisors=False,
        ),
    ),
)
