"""Tiny random models of transformers', one for each architecture, in odd shapes on purpose.

1, 3 or 5 kv heads, heads whose size is not hidden / heads, sizes that are no powers of two.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

VOCABULARY = 300
_COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 60,
    "intermediate_size": 52,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_DELTA = {
    "hidden_size": 96,
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 16,
}
_DELTA_EXPERTS = {
    "num_experts": 5,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 36,
    "shared_expert_intermediate_size": 44,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 256,
}
_WINDOW = {"sliding_window": 40}
_MAMBA = {"mamba_n_heads": 6, "mamba_d_head": 20, "mamba_d_state": 24, "mamba_expand": 2}
_FALCON = {
    "mamba_d_ssm": 96, "mamba_n_heads": 6, "mamba_d_head": 16, "mamba_n_groups": 2,
    "mamba_d_state": 24, "embedding_multiplier": 3.0, "lm_head_multiplier": 0.7,
    "key_multiplier": 0.6, "mlp_multipliers": [1.3, 0.8], "attention_in_multiplier": 1.2,
    "attention_out_multiplier": 0.9, "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.6,
    "ssm_multipliers": [0.8, 1.1, 0.9, 1.2, 0.7],
}  # fmt: skip
_EXPERTS = {"num_local_experts": 5, "num_experts": 5, "num_experts_per_tok": 2}

_SHARED_EXPERTS = {
    "n_routed_experts": 6,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 36,
    "n_group": 3,
    "topk_group": 2,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.5,
}
_LATENT = {
    "num_key_value_heads": 6,
    "head_dim": 16,
    "kv_lora_rank": 20,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 32,
    **_SHARED_EXPERTS,
}
_GRANITE = {
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.3,
    "residual_multiplier": 0.4,
    "logits_scaling": 2.5,
}
_GEMMA3N = {
    "num_hidden_layers": 4,
    "num_kv_shared_layers": 2,
    "intermediate_size": [52, 36, 52, 36],
    "hidden_size_per_layer_input": 12,
    "vocab_size_per_layer_input": 250,
    "laurel_rank": 10,
    "altup_num_inputs": 3,
    "altup_active_idx": 1,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "activation_sparsity_pattern": [0.8, 0.0, 0.5, 0.0],
}

# name -> (model type, what differs from _COMMON)
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "llama-even": ("llama", {"hidden_size": 64, "intermediate_size": 96,
                             "num_attention_heads": 4, "num_key_value_heads": 2}),
    "llama3": ("llama", {"rope_parameters": _LLAMA3, "attention_bias": True, "mlp_bias": True}),
    "llama-yarn": ("llama", {"rope_parameters": YARN, "num_attention_heads": 5,
                             "num_key_value_heads": 5}),
    "llama-linear": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4,
                                                   "factor": 3.0}}),
    "mistral": ("mistral", _WINDOW),
    "smollm3": ("smollm3", {"no_rope_layer_interval": 2}),
    "qwen2": ("qwen2", {"use_sliding_window": True, "max_window_layers": 1, **_WINDOW}),
    "qwen3": ("qwen3", {"tie_word_embeddings": True}),
    "phi3": ("phi3", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4,
                                          "partial_rotary_factor": 0.75},
                      "original_max_position_embeddings": 1024}),
    "phi3-longrope": ("phi3", {
        "rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4,
                            "short_factor": [1.0 + 0.1 * i for i in range(8)],
                            "long_factor": [2.0 + i for i in range(8)]},
        "original_max_position_embeddings": 400, "hidden_size": 96, "head_dim": 16}),
    "granite": ("granite", _GRANITE),
    "olmo2": ("olmo2", {"num_key_value_heads": 1}),
    "gemma": ("gemma", {"num_key_value_heads": 1}),
    "gemma2": ("gemma2", {"query_pre_attn_scalar": 20, "attn_logit_softcapping": 4.0,
                          **_WINDOW}),
    "gemma3": ("gemma3_text", {"num_key_value_heads": 1, "query_pre_attn_scalar": 20,
                               "layer_types": ["sliding_attention", "full_attention"],
                               **_WINDOW}),
    "gemma3n": ("gemma3n_text", {**_GEMMA3N, **_WINDOW}),
    "gemma4": ("gemma4_text", {
        "num_hidden_layers": 4, "num_kv_shared_layers": 2, "use_double_wide_mlp": True,
        "hidden_size_per_layer_input": 12, "vocab_size_per_layer_input": VOCABULARY,
        "global_head_dim": 48, "layer_types": ["sliding_attention", "full_attention"] * 2,
        **_WINDOW}),
    "gemma4-keys-are-values": ("gemma4_text", {
        "hidden_size_per_layer_input": 0, "attention_k_eq_v": True,
        "num_global_key_value_heads": 1, "global_head_dim": 64, "final_logit_softcapping": 3.0,
        "layer_types": ["sliding_attention", "full_attention"], **_WINDOW}),
    "gemma4-experts": ("gemma4_text", {
        "hidden_size_per_layer_input": 0, "enable_moe_block": True, "num_experts": 5,
        "top_k_experts": 2, "moe_intermediate_size": 36, "global_head_dim": 48,
        "layer_types": ["sliding_attention", "full_attention"], **_WINDOW}),
    "mixtral": ("mixtral", _EXPERTS),
    "qwen3_moe": ("qwen3_moe", {**_EXPERTS, "moe_intermediate_size": 36,
                                "norm_topk_prob": True}),
    "qwen2_moe": ("qwen2_moe", {**_EXPERTS, "moe_intermediate_size": 36, "qkv_bias": True,
                                "shared_expert_intermediate_size": 44}),
    "olmoe": ("olmoe", {**_EXPERTS, "head_dim": 16, "hidden_size": 96}),
    "granitemoe": ("granitemoe", {**_EXPERTS, **_GRANITE}),
    "granitemoeshared": ("granitemoeshared", {**_EXPERTS, **_GRANITE,
                                              "shared_intermediate_size": 44}),
    "glm4_moe": ("glm4_moe", {**_SHARED_EXPERTS, "use_qk_norm": True, "attention_bias": True}),
    "ernie4_5_moe": ("ernie4_5_moe", {
        "moe_num_experts": 5, "moe_k": 2, "moe_intermediate_size": 36,
        "moe_num_shared_experts": 2, "moe_layer_start_index": 1}),
    "minimax_m2": ("minimax_m2", {**_EXPERTS, "rotary_dim": 16}),
    "hunyuan_v1_moe": ("hunyuan_v1_moe", {**_EXPERTS, "moe_topk": 2, "rope_parameters": {
        "rope_type": "dynamic", "rope_theta": 1e4, "factor": 1.0, "alpha": 3.0}}),
    "phimoe": ("phimoe", {**_EXPERTS, "attention_bias": True, "lm_head_bias": True}),
    "phimoe-longrope": ("phimoe", {**_EXPERTS, "hidden_size": 96, "head_dim": 16,
        "original_max_position_embeddings": 400, "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 1e4, "short_mscale": 1.2, "long_mscale": 1.3,
            "short_factor": [1.0 + 0.1 * i for i in range(8)],
            "long_factor": [2.0 + i for i in range(8)],
            "original_max_position_embeddings": 400}}),
    "gpt_oss-even": ("gpt_oss", {**_EXPERTS, "hidden_size": 64, "intermediate_size": 96}),
    "deepseek_v2": ("deepseek_v2", {
        **_LATENT, "q_lora_rank": None, "topk_method": "group_limited_greedy"}),
    "deepseek_v3": ("deepseek_v3", {
        **_LATENT, "q_lora_rank": 28, "rope_parameters": {
            **YARN, "mscale": 0.8, "mscale_all_dim": 0.5}}),
    "gpt_oss": ("gpt_oss", {**_EXPERTS, **_WINDOW,
                            "rope_parameters": {**YARN, "truncate": False}}),
    "lfm2": ("lfm2", {"hidden_size": 96, "num_hidden_layers": 4, "head_dim": 16,
                      "layer_types": ["conv", "full_attention", "conv", "conv"],
                      "block_multiple_of": 4}),
    "lfm2-bias": ("lfm2", {"hidden_size": 96, "num_hidden_layers": 4, "head_dim": 16,
                           "conv_bias": True, "conv_L_cache": 5,
                           "layer_types": ["full_attention", "conv", "conv", "full_attention"],
                           "block_auto_adjust_ff_dim": False, "tie_word_embeddings": False}),
    "granitemoehybrid": ("granitemoehybrid", {**_GRANITE, **_MAMBA, "num_hidden_layers": 4,
                         "layer_types": ["linear_attention", "full_attention",
                                         "linear_attention", "linear_attention"],
                         "num_local_experts": 0, "shared_intermediate_size": 44}),
    "granitemoehybrid-experts": ("granitemoehybrid", {**_EXPERTS, **_GRANITE, **_MAMBA,
                                 "mamba_n_groups": 2, "mamba_proj_bias": True,
                                 "time_step_limit": [0.5, 0.9],
                                 "layer_types": ["full_attention", "linear_attention"],
                                 "position_embedding_type": "rope",
                                 "shared_intermediate_size": 44}),
    "mamba2": ("mamba2", {"hidden_size": 64, "num_hidden_layers": 3, "num_heads": 8,
                          "head_dim": 16, "state_size": 24, "n_groups": 2}),
    "falcon_h1": ("falcon_h1", {**_FALCON, "mamba_rms_norm": False}),
    "falcon_h1-norm": ("falcon_h1", {**_FALCON, "mamba_rms_norm": True, "projectors_bias": True,
                                     "mamba_proj_bias": True,
                                     "attention_bias": True, "mlp_bias": True}),
    "nemotron_h": ("nemotron_h", {"layers_block_type": ["linear_attention", "mlp",
                                                        "full_attention", "linear_attention"],
                                  "mamba_num_heads": 6, "mamba_head_dim": 20,
                                  "ssm_state_size": 24, "n_groups": 2}),
    "lfm2_moe": ("lfm2_moe", {"hidden_size": 96, "num_hidden_layers": 4, "head_dim": 16,
                              "layer_types": ["conv", "full_attention", "conv", "conv"],
                              "num_dense_layers": 1, "num_experts": 5, "num_experts_per_tok": 2,
                              "moe_intermediate_size": 36, "routed_scaling_factor": 1.5}),
    # Key and value heads that vectors hold whole, and others.
    "qwen3_5": ("qwen3_5_text", {**_DELTA, "linear_key_head_dim": 16, "linear_value_head_dim": 32}),
    "qwen3_5-odd": ("qwen3_5_text", {**_DELTA, "linear_num_key_heads": 4,
                                     "linear_key_head_dim": 12, "linear_value_head_dim": 20,
                                     "linear_conv_kernel_dim": 3, "tie_word_embeddings": True,
                                     "layer_types": ["full_attention", "linear_attention",
                                                     "linear_attention"]}),
    "qwen3_5_moe": ("qwen3_5_moe_text", {**_DELTA, **_DELTA_EXPERTS}),
    "qwen3_next": ("qwen3_next", {**_DELTA, **_DELTA_EXPERTS}),
    "kimi_linear": ("kimi_linear", {
        **_LATENT, **_DELTA, "linear_num_heads": 3, "linear_head_dim": 32, "num_experts": 6,
        "num_shared_experts": 2, "mlp_layer_types": ["dense", "sparse", "sparse"]}),
    "kimi_linear-odd": ("kimi_linear", {
        **_LATENT, **_DELTA, "linear_num_heads": 5, "linear_head_dim": 12, "num_experts": 6,
        "q_lora_rank": 28, "layer_types": ["full_attention", "linear_attention",
                                           "linear_attention"]}),
    # As published, without positions; and with all that is otherwise.
    "olmo_hybrid": ("olmo_hybrid", {**_DELTA, "rope_parameters": {"rope_theta": None}}),
    # transformers writes convolutions in three parts of one size.
    "olmo_hybrid-rotated": ("olmo_hybrid", {**_DELTA, "linear_allow_neg_eigval": False,
                                            "linear_key_head_dim": 20, "attention_bias": True,
                                            "linear_value_head_dim": 10}),
}  # fmt: skip

# Model types whose layers keep states: OpenVINO's attention has no tables for them.
WITH_STATES = (
    *("lfm2", "lfm2_moe", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"),
    *("granitemoehybrid", "mamba2", "falcon_h1", "nemotron_h"),
    *("olmo_hybrid", "kimi_linear"),
)
# Read from Hugging Face folders alone.
WITHOUT_GGUF = ("olmo_hybrid",)


def make(name: str, **others: Any) -> PreTrainedModel:
    """The model, f32, with weights large enough that every part of it shows in the logits.

    `others` are values of its config that the table has not.
    """
    model_type, changes = ARCHITECTURES[name]
    config = AutoConfig.for_model(model_type, **{**_COMMON, **changes, **others})
    # Only eager attention has soft caps and sinks.
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    centred = ("gemma", "gemma2", "gemma3_text", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
    offset = 0.0 if config.model_type in centred else 1.0
    unscaled = config.model_type in ("gemma3n_text", "gemma4_text")
    with torch.no_grad():
        values = [*model.named_parameters()]
        values += [(n, b) for n, b in model.named_buffers() if n.endswith(("layer_scalar", "bias"))]
        for parameter_name, parameter in values:
            random = torch.randn(parameter.shape, generator=generator)
            if "q_norm" in parameter_name and unscaled:
                parameter.copy_(0.2 + 0.05 * random)  # in place of 1 / sqrt(head size)
            elif "linear_attn.norm" in parameter_name:
                parameter.copy_(1.0 + 0.3 * random)
            elif "norm" in parameter_name:
                parameter.copy_(offset + 0.3 * random)
            elif parameter.ndim == 1 or "bias" in parameter_name:
                parameter.copy_(0.5 * random)
            else:
                parameter.copy_(random / parameter.shape[-1] ** 0.5)
    return model.eval()


def save(model: PreTrainedModel, folder: Path, **options: Any) -> Path:
    """The model's folder, with a tokenizer of bytes."""
    model.save_pretrained(folder, **options)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def byte_tokenizer() -> Tokenizer:
    """Byte-level BPE: three control tokens, every byte, a few merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("\u0120", "a")]
    pieces = ["<pad>", "<s>", "</s>", *alphabet, *("".join(merge) for merge in merges)]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<pad>", "<s>", "</s>"])
    return tokenizer


def random_ids(count: int, seed: int = 3) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (count,), generator=generator).tolist()


@contextmanager
def without_attention_caps(model: PreTrainedModel) -> Iterator[bool]:
    """The model without soft caps of attention logits meanwhile; whether it had any."""
    capped = [
        layer.self_attn
        for layer in model.base_model.layers
        if getattr(getattr(layer, "self_attn", None), "attn_logit_softcapping", None)
    ]
    for attention in capped:
        attention.attn_logit_softcapping = None
    try:
        yield bool(capped)
    finally:
        for attention in capped:
            attention.attn_logit_softcapping = model.config.attn_logit_softcapping


@torch.no_grad()
def logits(model: PreTrainedModel, ids: list[int]) -> Any:
    """f32 [len(ids), vocab]."""
    return model(torch.tensor([ids])).logits[0].float().numpy()
