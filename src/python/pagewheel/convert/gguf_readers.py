"""A GGUF file's metadata as the config.json it was made from, for each architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .gguf_config import SCALE_KEYS, Config, GGUFConfig
from .gguf_file import GGUFTensor
from .gguf_gemma_readers import gemma, gemma2, gemma3, gemma3n, gemma4
from .gguf_metadata import Metadata


def _llama(file: GGUFConfig) -> Config:
    if not file.integer("expert_count", 0):
        return {"architectures": ["LlamaForCausalLM"], **file.common("llama")}
    count, active = file.experts()
    return {
        "architectures": ["MixtralForCausalLM"],
        **file.common("mixtral", ("expert_count",)),
        "num_local_experts": count,
        "num_experts_per_tok": active,
    }


def _qwen2(file: GGUFConfig) -> Config:
    return {
        "architectures": ["Qwen2ForCausalLM"],
        **file.common("qwen2"),
        "attention_bias": True,
    }


def _qwen3(file: GGUFConfig) -> Config:
    return {"architectures": ["Qwen3ForCausalLM"], **file.common("qwen3")}


def _qwen3moe(file: GGUFConfig) -> Config:
    count, active = file.experts()
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        **file.common("qwen3_moe", ("expert_count",)),
        "num_experts": count,
        "num_experts_per_tok": active,
        "moe_intermediate_size": file.integer("expert_feed_forward_length"),
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def _smollm3(file: GGUFConfig) -> Config:
    # llama.cpp has no key for it: every fourth layer turns nothing.
    return {
        "architectures": ["SmolLM3ForCausalLM"],
        **file.common("smollm3"),
        "no_rope_layer_interval": 4,
        "use_sliding_window": False,
    }


def _phi3(file: GGUFConfig) -> Config:
    config = file.common("phi3", ("attention.sliding_window",))
    window = file.integer("attention.sliding_window", 0)
    original = file.integer(
        "rope.scaling.original_context_length", config["max_position_embeddings"]
    )
    return {
        "architectures": ["Phi3ForCausalLM"],
        **config,
        "sliding_window": window or None,
        "original_max_position_embeddings": original,
    }


def _granite(file: GGUFConfig) -> Config:
    config = file.common("granite", SCALE_KEYS)
    return {
        "architectures": ["GraniteForCausalLM"],
        **config,
        "attention_multiplier": file.number("attention.scale", config["head_dim"] ** -0.5),
        "embedding_multiplier": file.number("embedding_scale", 1.0),
        "residual_multiplier": file.number("residual_scale", 1.0),
        "logits_scaling": file.number("logit_scale", 1.0),
    }


def _olmo2(file: GGUFConfig) -> Config:
    return {"architectures": ["Olmo2ForCausalLM"], **file.common("olmo2")}


# Of `expert_gating_func`.
_SIGMOID = 2


def _gpt_oss(file: GGUFConfig) -> Config:
    count, active = file.experts()
    config = file.common(
        "gpt_oss", ("attention.sliding_window", "expert_count", "expert_gating_func")
    )
    inner = file.integer("expert_feed_forward_length", config["intermediate_size"])
    if config["rope_scaling"] is not None:
        config["rope_scaling"]["truncate"] = False
    return {
        "architectures": ["GptOssForCausalLM"],
        **config,
        "intermediate_size": inner,
        "attention_bias": True,
        "sliding_window": file.integer("attention.sliding_window"),
        "num_local_experts": count,
        "num_experts_per_tok": active,
        "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0,
    }


def _deepseek2(file: GGUFConfig) -> Config:
    """V2, V3 and what is built like them."""
    known = (
        *("leading_dense_block_count", "expert_shared_count", "expert_group_count"),
        *("expert_weights_scale", "expert_count", "expert_gating_func"),
        "rope.scaling.yarn_log_multiplier",
    )
    rotated = file.integer("rope.dimension_count")
    heads = file.metadata.uniform(file.key("attention.head_count"), file.layers)
    sigmoid = file.integer("expert_gating_func", 1) == _SIGMOID
    # With one kv head, files since 2025-04 describe what llama.cpp computes with.
    config = file.common(
        "deepseek_v3" if sigmoid else "deepseek_v2", known, kv_heads=heads, head_size=rotated
    )
    sizes = {
        name: file.integer(f"attention.{name}_length_mla", file.integer(f"attention.{name}_length"))
        for name in ("key", "value")
    }
    if sizes["key"] <= rotated:
        raise file.fail(f"key heads of {sizes['key']} with {rotated} rotated channels")
    normalised = file.metadata.get(file.key("expert_weights_norm"), bool, False)
    if normalised and not sigmoid:
        raise file.fail(f"{file.key('expert_weights_norm')} with softmax is not supported")
    # llama.cpp takes the cosines' and sines' own factor to be the same, so that it cancels.
    weight = 10.0 * file.number("rope.scaling.yarn_log_multiplier", 0.0)
    if weight and config["rope_scaling"] is not None:
        config["rope_scaling"] |= {"mscale": weight, "mscale_all_dim": weight}
    groups = max(file.integer("expert_group_count", 1), 1)
    count, active = file.experts()
    return {
        "architectures": [f"DeepseekV{3 if sigmoid else 2}ForCausalLM"],
        **config,
        "kv_lora_rank": file.integer("attention.kv_lora_rank"),
        "q_lora_rank": file.integer("attention.q_lora_rank", 0) or None,
        "qk_rope_head_dim": rotated,
        "qk_nope_head_dim": sizes["key"] - rotated,
        "v_head_dim": sizes["value"],
        "n_routed_experts": count,
        "num_experts_per_tok": active,
        "moe_intermediate_size": file.integer("expert_feed_forward_length"),
        "n_shared_experts": file.integer("expert_shared_count", 0),
        "first_k_dense_replace": file.integer("leading_dense_block_count", 0),
        "routed_scaling_factor": file.number("expert_weights_scale", 0.0) or 1.0,
        "norm_topk_prob": normalised,
        "topk_method": "greedy" if groups == 1 else "group_limited_greedy",
        "n_group": groups,
        "topk_group": file.integer("expert_group_used_count", 1) if groups > 1 else 1,
    }


# `general.architecture` -> config.json. Mistral's and Mixtral's files call themselves llama.
_READERS: Mapping[str, Callable[[GGUFConfig], Config]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3moe": _qwen3moe,
    "smollm3": _smollm3,
    "phi3": _phi3,
    "granite": _granite,
    "olmo2": _olmo2,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3": gemma3,
    "gemma3n": gemma3n,
    "gemma4": gemma4,
    "deepseek2": _deepseek2,
    "gpt-oss": _gpt_oss,
}
SUPPORTED_ARCHITECTURES = tuple(_READERS)


def read_config(metadata: Metadata, tensors: Mapping[str, GGUFTensor]) -> Config:
    """config.json's values. Raises ConversionError, naming the file and the key."""
    file = GGUFConfig(metadata, tensors)
    if file.name not in _READERS:
        raise file.fail(
            f"the architecture {file.name!r} is not supported; "
            f"supported: {', '.join(SUPPORTED_ARCHITECTURES)}"
        )
    return _READERS[file.name](file)
