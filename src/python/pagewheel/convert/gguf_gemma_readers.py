"""The Gemma family's config.json out of GGUF metadata."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

from .gguf_config import Config, GGUFConfig

_WINDOW = "attention.sliding_window"


def gemma(file: GGUFConfig) -> Config:
    return {
        "architectures": ["GemmaForCausalLM"],
        **file.common("gemma"),
        "hidden_activation": "gelu_pytorch_tanh",
    }


def _query_scalar(config: Config, layers_of_27b: int) -> float:
    """llama.cpp has no key for it; like it, go by the one size where it is not the head's."""
    if config["num_hidden_layers"] == layers_of_27b:
        return float(config["hidden_size"] // config["num_attention_heads"])
    return float(config["head_dim"])


def gemma2(file: GGUFConfig) -> Config:
    config = file.common("gemma2", (_WINDOW,))
    return {
        "architectures": ["Gemma2ForCausalLM"],
        **config,
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": file.integer(_WINDOW, 4096),
        "query_pre_attn_scalar": _query_scalar(config, 46),
        "attn_logit_softcapping": file.number("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": file.number("final_logit_softcapping", 30.0),
    }


def gemma3(file: GGUFConfig) -> Config:
    config = file.common("gemma3", (_WINDOW,))
    return {
        "architectures": ["Gemma3ForCausalLM"],
        **config,
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": file.integer(_WINDOW),
        "layer_types": file.layer_types(6),
        "rope_local_base_freq": file.number("rope.freq_base_swa", 10000.0),
        "query_pre_attn_scalar": _query_scalar(config, 62),
        "attn_logit_softcapping": None,
        "final_logit_softcapping": file.number("final_logit_softcapping", 0.0) or None,
    }


def _per_layer_inputs(file: GGUFConfig) -> Config:
    size = file.integer("embedding_length_per_layer_input", 0)
    rows = file.tensor("per_layer_token_embd.weight").shape[0] if size else 0
    return {"hidden_size_per_layer_input": size, "vocab_size_per_layer_input": rows}


def gemma3n(file: GGUFConfig) -> Config:
    sizes = file.each_layer("feed_forward_length")
    config = file.common("gemma3n_text", (_WINDOW,), intermediate_size=sizes)
    return {
        "architectures": ["Gemma3nForCausalLM"],
        **config,
        **_per_layer_inputs(file),
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": file.integer(_WINDOW),
        "layer_types": file.layer_types(5),
        "num_kv_shared_layers": file.integer("attention.shared_kv_layers"),
        "rope_local_base_freq": file.theta("rope.freq_base_swa"),
        "final_logit_softcapping": file.number("final_logit_softcapping", 30.0),
        "activation_sparsity_pattern": _sparsity(file),
        "altup_num_inputs": file.integer("altup.num_inputs"),
        "altup_active_idx": file.integer("altup.active_idx"),
        "altup_correct_scale": True,
        "laurel_rank": file.tensor("blk.0.laurel_l.weight").shape[0],
    }


def _sparsity(file: GGUFConfig) -> list[float]:
    """Files hold how many standard deviations above the mean a channel must be."""
    key = file.key("activation_sparsity_scale")
    cutoffs: Any = file.metadata.require(key, list)
    if len(cutoffs) != file.layers or not all(isinstance(each, float) for each in cutoffs):
        raise file.fail(f"{key} must be {file.layers} numbers, got {cutoffs!r:.80}")
    shares = [NormalDist().cdf(each) for each in cutoffs]
    if not all(0 <= share < 1 for share in shares):
        raise file.fail(f"{key} must be numbers below infinity, got {cutoffs!r:.80}")
    return shares


def gemma4(file: GGUFConfig) -> Config:
    types = file.layer_types(6)
    whole = [index for index, each in enumerate(types) if each == "full_attention"]
    shared = file.integer("attention.shared_kv_layers", 0)
    if not 0 <= shared < len(types):
        raise file.fail(
            f"{file.key('attention.shared_kv_layers')} must be 0 to {len(types) - 1}, got {shared}"
        )
    first_shared = len(types) - shared
    kv_heads = file.each_layer("attention.head_count_kv")
    near = {heads for heads, each in zip(kv_heads, types, strict=True) if each != "full_attention"}
    if len(near) != 1 or not whole:
        raise file.fail(
            f"{file.key('attention.head_count_kv')} = {kv_heads!r:.80} in layers with windows "
            f"and without, {types!r:.80}, is not supported"
        )
    sizes = file.each_layer("feed_forward_length")
    double = first_shared < len(sizes) and sizes[-1] == 2 * sizes[0]
    if sizes != sizes[:1] * first_shared + [sizes[0] * (1 + double)] * shared:
        raise file.fail(f"{file.key('feed_forward_length')} = {sizes!r:.80} is not supported")
    head_size = file.integer("attention.key_length")
    own_head_size = file.integer("attention.key_length_swa", head_size)
    config = file.common(
        "gemma4_text",
        (_WINDOW,),
        intermediate_size=sizes[0],
        kv_heads=next(iter(near)),
        head_size=head_size,
    )
    with_values = [
        f"blk.{index}.attn_v.weight" in file.tensors for index in whole if index < first_shared
    ]
    return {
        "architectures": ["Gemma4ForCausalLM"],
        **config,
        **_per_layer_inputs(file),
        "head_dim": own_head_size,
        "per_layer_config": {
            str(index): {"head_dim": head_size, "num_key_value_heads": kv_heads[index]}
            for index in whole
        },
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": file.integer(_WINDOW),
        "layer_types": types,
        "num_kv_shared_layers": shared,
        "attention_k_eq_v": not any(with_values),
        "use_double_wide_mlp": double,
        "final_logit_softcapping": file.number("final_logit_softcapping", 0.0) or None,
        "rope_parameters": {
            "full_attention": {
                "rope_type": "proportional",
                "rope_theta": config["rope_theta"],
                "partial_rotary_factor": _turning_part(file, head_size),
            },
            "sliding_attention": {
                "rope_type": "default",
                "rope_theta": file.theta("rope.freq_base_swa"),
                "partial_rotary_factor": file.turning_part(
                    "rope.dimension_count_swa", own_head_size
                ),
            },
        },
        "partial_rotary_factor": 1.0,
    }


def _turning_part(file: GGUFConfig, head_size: int) -> float:
    """Of layers without a window: channels that stand still have a huge divisor."""
    divisors = file.vector("rope_freqs.weight")
    turning = int((divisors == 1).sum())
    if len(divisors) != head_size // 2 or not (divisors[turning:] >= 1e20).all():
        raise file.fail(
            f"tensor 'rope_freqs.weight' must be {head_size // 2} numbers: ones, then 1e30"
        )
    return file.part(2 * turning, head_size)
