"""config.json -> Architecture: for each model type, which names mean which numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .architecture import (
    Architecture,
    Attention,
    Experts,
    LatentKeys,
    Mlp,
    NormPlacement,
    QueryKeyNorm,
    Routing,
)
from .architecture_reader import Reader
from .errors import ConversionError
from .gemma_reader import gemma, gemma2, gemma3, gemma3n, gemma4
from .model_config import ModelConfig
from .rotary import rotary_embedding
from .yoco_reader import yoco


def read_architecture(
    values: Mapping[str, Any], where: str, *, context_length: int | None = None
) -> Architecture:
    """The architecture a config.json describes; `where` names the file in errors.

    `context_length` asks for so many positions of a model whose rotary frequencies depend on
    it (longrope). Raises ConversionError for a model type or a value that is not supported.
    """
    config = ModelConfig(values, where)
    if config.model_type not in _READERS:
        raise config.fail(
            f"the model type {config.model_type!r} is not supported; "
            f"supported: {', '.join(sorted(_READERS))}"
        )
    try:
        return _READERS[config.model_type](Reader(config, context_length))
    except ConversionError as error:
        if str(error).startswith(where):
            raise
        raise config.fail(str(error)) from None
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError) as error:
        raise config.fail(f"the config is damaged: {type(error).__name__}: {error}") from error


def _llama(reader: Reader) -> Architecture:
    return reader.architecture()


def _mistral(reader: Reader) -> Architecture:
    return reader.architecture(windows=reader.windows(reader.same_everywhere(True)))


def _smollm3(reader: Reader) -> Architecture:
    config = reader.config
    layers = config.layers
    interval = config.positive("no_rope_layer_interval", 4)
    rotated = config.list_of("no_rope_layers", int, layers) or [
        int((layer + 1) % interval != 0) for layer in range(layers)
    ]
    windows = [0] * layers
    if config.boolean("use_sliding_window"):
        windows = reader.windows(
            ["full_attention" if each else "sliding_attention" for each in rotated]
        )
    arch = reader.architecture(windows=windows)
    changed = tuple(
        layer if turns else replace(layer, attention=replace(layer.attention, rotary=None))
        for layer, turns in zip(arch.layers, rotated, strict=True)
    )
    return replace(arch, layers=changed)


def _qwen_windows(reader: Reader) -> list[int]:
    config = reader.config
    if not config.boolean("use_sliding_window"):
        return [0] * config.layers
    first = config.integer("max_window_layers", 28)
    types = ["full_attention"] * min(first, config.layers)
    types += ["sliding_attention"] * (config.layers - len(types))
    return reader.windows(types)


def _qwen2(reader: Reader) -> Architecture:
    attention = replace(reader.attention(), bias=True, output_bias=False)
    return reader.architecture(attention, windows=_qwen_windows(reader))


def _qwen3(reader: Reader) -> Architecture:
    attention = replace(reader.attention(), query_key_norm=QueryKeyNorm.HEAD)
    return reader.architecture(attention, windows=_qwen_windows(reader))


def _qwen3_moe(reader: Reader) -> Architecture:
    config = reader.config
    experts = Experts(
        # transformers 5 writes another name than its predecessors.
        count=config.positive("num_local_experts", config.positive("num_experts")),
        active=config.positive("num_experts_per_tok"),
        mlp=Mlp(config.positive("moe_intermediate_size"), reader.activation()),
        routing=Routing.SOFTMAX,
        normalise=config.boolean("norm_topk_prob"),
    )
    attention = replace(reader.attention(), query_key_norm=QueryKeyNorm.HEAD)
    windows = reader.windows(reader.same_everywhere(config.boolean("use_sliding_window")))
    arch = reader.architecture(attention, experts, windows)
    step = config.positive("decoder_sparse_step", 1)
    dense = config.values.get("mlp_only_layers") or []
    layers = tuple(
        replace(layer, mlp=reader.mlp()) if index in dense or (index + 1) % step else layer
        for index, layer in enumerate(arch.layers)
    )
    return replace(arch, layers=layers)


def _mixtral(reader: Reader) -> Architecture:
    config = reader.config
    experts = Experts(
        count=config.positive("num_local_experts"),
        active=config.positive("num_experts_per_tok"),
        mlp=reader.mlp(),
        # All experts' softmax, the best renormalised: the softmax of the best.
        routing=Routing.SOFTMAX_OF_BEST,
    )
    return reader.architecture(mlp=experts, windows=reader.windows(reader.same_everywhere(True)))


def _gpt_oss(reader: Reader) -> Architecture:
    config = reader.config
    experts = Experts(
        count=config.positive("num_local_experts"),
        active=config.positive("num_experts_per_tok"),
        mlp=Mlp(config.positive("intermediate_size"), bias=True),
        routing=Routing.SOFTMAX_OF_BEST,
        router_bias=True,
        clamp=config.number("swiglu_limit"),
        alpha=config.number("swiglu_alpha"),
    )
    types = ["full_attention" if i % 2 else "sliding_attention" for i in range(config.layers)]
    attention = replace(reader.attention(), sinks=True)
    return reader.architecture(attention, experts, reader.windows(types))


def _phi3(reader: Reader) -> Architecture:
    return reader.architecture(windows=reader.windows(reader.same_everywhere(True)))


def _granite(reader: Reader) -> Architecture:
    config = reader.config
    return reader.architecture(
        replace(reader.attention(), scale=config.number("attention_multiplier", 1.0)),
        embedding_scale=config.number("embedding_multiplier", 1.0),
        residual_scale=config.number("residual_multiplier", 1.0),
        logits_scale=1.0 / config.number("logits_scaling", 1.0),
    )


def _olmo2(reader: Reader) -> Architecture:
    attention = replace(reader.attention(), query_key_norm=QueryKeyNorm.WHOLE)
    return reader.architecture(attention, norms=NormPlacement.POST)


def _deepseek(reader: Reader, routing: Routing) -> Architecture:
    config = reader.config
    rotated = config.positive("qk_rope_head_dim")
    size = config.positive("qk_nope_head_dim") + rotated
    query_rank = config.values.get("q_lora_rank")
    rotary = Reader(
        ModelConfig({**config.values, "head_dim": rotated}, config.where), None
    ).config.rotary_parameters()
    assert rotary is not None  # only nested parameters may be
    scale = size**-0.5
    weight = rotary.values.get("mscale_all_dim")
    if rotary.kind != "default" and weight:
        factor = rotary.positive("factor")
        scale *= (0.1 * rotary.number("mscale_all_dim") * math.log(max(factor, 1.0)) + 1.0) ** 2
    bias = config.boolean("attention_bias")
    attention = Attention(
        heads=config.heads,
        kv_heads=config.heads,
        head_size=size,
        scale=scale,
        bias=bias,
        output_bias=bias,
        latent=LatentKeys(
            config.positive("kv_lora_rank"),
            rotated,
            0 if query_rank is None else config.positive("q_lora_rank"),
        ),
        separate_value_size=config.positive("v_head_dim"),
    )
    inner = config.positive("moe_intermediate_size")
    shared = config.integer("n_shared_experts", 0)
    limited = routing is Routing.SIGMOID or config.values.get("topk_method") != "greedy"
    experts = Experts(
        count=config.positive("n_routed_experts"),
        active=config.positive("num_experts_per_tok"),
        mlp=Mlp(inner, reader.activation()),
        routing=routing,
        weights_scale=config.number("routed_scaling_factor", 1.0),
        normalise=routing is Routing.SIGMOID and config.boolean("norm_topk_prob", True),
        groups=config.positive("n_group", 1) if limited else 1,
        active_groups=config.positive("topk_group", 1) if limited else 1,
        shared=Mlp(inner * shared, reader.activation()) if shared else None,
    )
    arch = reader.architecture(
        attention,
        experts,
        rotary=(rotary_embedding(rotary),),
        rotary_interleaved=routing is Routing.SOFTMAX or config.boolean("rope_interleave", True),
    )
    dense = config.integer("first_k_dense_replace", 0)
    layers = tuple(
        replace(layer, mlp=reader.mlp()) if index < dense else layer
        for index, layer in enumerate(arch.layers)
    )
    return replace(arch, layers=layers)


_READERS: Mapping[str, Callable[[Reader], Architecture]] = {
    "llama": _llama,
    "mistral": _mistral,
    "smollm3": _smollm3,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "mixtral": _mixtral,
    "gpt_oss": _gpt_oss,
    "deepseek_v2": lambda reader: _deepseek(reader, Routing.SOFTMAX),
    "deepseek_v3": lambda reader: _deepseek(reader, Routing.SIGMOID),
    "phi3": _phi3,
    "granite": _granite,
    "olmo2": _olmo2,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "gemma3n_text": gemma3n,
    "gemma4_text": gemma4,
    "yoco": yoco,
}
SUPPORTED_MODEL_TYPES = tuple(_READERS)
