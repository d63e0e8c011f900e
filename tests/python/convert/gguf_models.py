"""Writes transformers' models as GGUF files, named and changed as llama.cpp's converter does.

Names are those of the gguf package's own table, so they are independent of pagewheel's.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import torch
from convert import gguf_hybrids, gguf_kimi
from convert.gguf_delta_nets import delta_net_tensors
from convert.gguf_writing import add_tensor, finish
from gguf.constants import GGMLQuantizationType as Kind
from tokenizers import pre_tokenizers
from transformers import PreTrainedModel

# transformers' model_type -> `general.architecture`
ARCHITECTURES = {
    "mistral": "llama",
    "mixtral": "llama",
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
    "granitemoeshared": "granitemoe",
    "glm4_moe": "glm4moe",
    "ernie4_5_moe": "ernie4_5-moe",
    "minimax_m2": "minimax-m2",
    "hunyuan_v1_moe": "hunyuan-moe",
    "gemma3_text": "gemma3",
    "gemma3n_text": "gemma3n",
    "gemma4_text": "gemma4",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "gpt_oss": "gpt-oss",
    "qwen3_next": "qwen3next",
    "qwen3_5_text": "qwen35",
    "qwen3_5_moe_text": "qwen35moe",
    "kimi_linear": "kimi-linear",
    **gguf_hybrids.ARCHITECTURES,
}
_GEMMA4_SCALES = {
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
}
_PERMUTED = ("llama", "granite", "granitemoe", "smollm3")
_WITH_WINDOWS = ("phi3", "gemma2", "gemma3", "gemma3n", "gemma4", "gpt-oss")


def architecture_of(model: PreTrainedModel) -> str:
    return ARCHITECTURES.get(model.config.model_type, model.config.model_type)


def write(
    model: PreTrainedModel,
    path: Path,
    kind: Kind = Kind.F32,
    *,
    fused_latent: bool = False,
    tensor_per_expert: bool = False,
    head: torch.nn.Module | None = None,
) -> Path:
    """All matrices as `kind`; the byte-level vocabulary of tiny_models. `fused_latent`: DeepSeek's
    keys and values in one tensor, as its checkpoints have them. `tensor_per_expert`: as files
    before 2024-04 have experts. `head`: what guesses further tokens (tiny_heads.MtpHead).
    """
    name = architecture_of(model)
    writer = gguf.GGUFWriter(path, name)
    # A plain object: transformers' own refuses numbers that differ between layers.
    numbers = SimpleNamespace(**model.config.to_dict(), fused_latent=fused_latent)
    numbers.num_heads_behind = 0 if head is None else 1
    hybrid = gguf_hybrids if model.config.model_type in gguf_hybrids.ARCHITECTURES else None
    if name == "kimi-linear":
        hybrid = gguf_kimi
    if hybrid:
        hybrid.add_numbers(writer, model.config)
    else:
        _add_numbers(writer, numbers, name)
    _add_vocabulary(writer, model.config.vocab_size)
    tensors = hybrid.tensors(model) if hybrid else _tensors(model, name, fused_latent, head)
    for tensor, values in tensors.items():
        array = np.ascontiguousarray(values.detach().float().numpy())
        stem = tensor.removesuffix("_exps.weight")
        if tensor_per_expert and stem != tensor:
            for expert, matrix in enumerate(array):
                add_tensor(writer, f"{stem}.{expert}.weight", matrix, kind)
            continue
        add_tensor(writer, tensor, array, Kind.F32 if "_inp" in tensor else kind)
    finish(writer)
    return path


def _add_numbers(writer: gguf.GGUFWriter, config: Any, name: str) -> None:
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    writer.add_block_count(config.num_hidden_layers + config.num_heads_behind)
    if config.num_heads_behind:
        writer.add_nextn_predict_layers(config.num_heads_behind)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    if name != "gemma4":
        writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    if name not in ("gemma4", "deepseek2"):
        writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    head_size = getattr(config, "head_dim", None)
    head_size = head_size or config.hidden_size // config.num_attention_heads
    stretched = rope.get("alpha", 1.0) ** (head_size / (head_size - 2))
    writer.add_rope_freq_base(rope["rope_theta"] * stretched)
    if name not in ("gemma4", "deepseek2"):
        writer.add_key_length(head_size)
        writer.add_value_length(head_size)
        writer.add_rope_dimension_count(int(head_size * rope.get("partial_rotary_factor", 1.0)))
    if getattr(config, "sliding_window", None) and name in _WITH_WINDOWS:
        writer.add_sliding_window(config.sliding_window)
    if rope.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope.get("rope_type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope.get("rope_type") == "longrope":
        writer.add_rope_scaling_orig_ctx_len(config.original_max_position_embeddings)
        if rope.get("short_mscale"):
            writer.add_rope_scaling_attn_factors(rope["short_mscale"])
    if name in ("granite", "granitemoe"):
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if name == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if name in _OWN_NUMBERS:
        _OWN_NUMBERS[name](writer, config)
    of_token = ("num_experts_per_tok", "moe_k", "top_k_experts", "moe_topk")
    active = next(filter(None, (getattr(config, each, None) for each in of_token)), 0)
    if active:
        names = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
        writer.add_expert_count(next(filter(None, (getattr(config, n, None) for n in names))))
        writer.add_expert_used_count(active)
        inner = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
        writer.add_expert_feed_forward_length(inner)


def _add_numbers_of_gemma3n(writer: gguf.GGUFWriter, config: Any) -> None:
    _add_numbers_of_newer_gemmas(writer, config)
    writer.add_altup_active_idx(config.altup_active_idx)
    writer.add_altup_num_inputs(config.altup_num_inputs)
    normal = torch.distributions.normal.Normal(0, 1)
    shares = torch.tensor(config.activation_sparsity_pattern, dtype=torch.float32)
    writer.add_activation_sparsity_scale(normal.icdf(shares).tolist())


def _add_numbers_of_newer_gemmas(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_sliding_window_pattern([each == "sliding_attention" for each in config.layer_types])
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input or 0)
    writer.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])
    if config.final_logit_softcapping:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)


def _own_sizes(config: Any) -> dict[int, dict[str, int]]:
    """Of Gemma 4's layers without a window."""
    return {int(layer): own for layer, own in config.per_layer_config.items()}


def _add_numbers_of_gemma4(writer: gguf.GGUFWriter, config: Any) -> None:
    _add_numbers_of_newer_gemmas(writer, config)
    own = _own_sizes(config)
    size = next(values["head_dim"] for values in own.values())
    for add, value in (
        (writer.add_key_length, size),
        (writer.add_value_length, size),
        (writer.add_key_length_swa, config.head_dim),
        (writer.add_value_length_swa, config.head_dim),
        (writer.add_rope_dimension_count, size),
        (writer.add_rope_dimension_count_swa, config.head_dim),
    ):
        add(value)
    heads = config.num_key_value_heads
    count = config.num_hidden_layers
    writer.add_head_count_kv(
        [own.get(layer, {}).get("num_key_value_heads", heads) for layer in range(count)]
    )
    first_shared = count - config.num_kv_shared_layers
    wide = 2 if config.use_double_wide_mlp else 1
    writer.add_feed_forward_length(
        [config.intermediate_size * (wide if i >= first_shared else 1) for i in range(count)]
    )


def _add_numbers_of_deepseek(writer: gguf.GGUFWriter, config: Any) -> None:
    rank, rotated = config.kv_lora_rank, config.qk_rope_head_dim
    if config.fused_latent:
        writer.add_head_count_kv(config.num_attention_heads)
        writer.add_key_length(config.qk_nope_head_dim + rotated)
        writer.add_value_length(config.v_head_dim)
    else:
        writer.add_head_count_kv(1)
        writer.add_key_length(rank + rotated)
        writer.add_value_length(rank)
        writer.add_key_length_mla(config.qk_nope_head_dim + rotated)
        writer.add_value_length_mla(config.v_head_dim)
    writer.add_kv_lora_rank(rank)
    if config.q_lora_rank:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_rope_dimension_count(rotated)
    writer.add_leading_dense_block_count(config.first_k_dense_replace)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_group_count(config.n_group)
    writer.add_expert_group_used_count(config.topk_group)
    if config.model_type == "deepseek_v3":
        writer.add_expert_weights_norm(config.norm_topk_prob)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if config.rope_parameters.get("mscale_all_dim"):
        writer.add_rope_scaling_yarn_log_mul(0.1 * config.rope_parameters["mscale_all_dim"])


def _add_numbers_of_shared_experts(writer: gguf.GGUFWriter, config: Any) -> None:
    sizes = ("shared_expert_intermediate_size", "shared_intermediate_size")
    size = next(filter(None, (getattr(config, each, None) for each in sizes)), 0)
    if size:
        writer.add_expert_shared_feed_forward_length(size)


def _add_numbers_of_glm4(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_leading_dense_block_count(config.first_k_dense_replace)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_group_count(config.n_group)
    writer.add_expert_group_used_count(config.topk_group)
    writer.add_expert_weights_norm(config.norm_topk_prob)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def _add_numbers_of_ernie(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_leading_dense_block_count(config.moe_layer_start_index)
    writer.add_interleave_moe_layer_step(config.moe_layer_interval)
    writer.add_expert_shared_count(config.moe_num_shared_experts)


def _add_numbers_of_minimax(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def _add_numbers_of_delta_nets(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_ssm_state_size(config.linear_key_head_dim)
    writer.add_ssm_group_count(config.linear_num_key_heads)
    writer.add_ssm_time_step_rank(config.linear_num_value_heads)
    writer.add_ssm_inner_size(config.linear_value_head_dim * config.linear_num_value_heads)
    writer.add_full_attention_interval(config.layer_types.index("full_attention") + 1)
    _add_numbers_of_shared_experts(writer, config)


_OWN_NUMBERS = {
    "qwen3next": _add_numbers_of_delta_nets,
    "qwen35": _add_numbers_of_delta_nets,
    "qwen35moe": _add_numbers_of_delta_nets,
    "qwen2moe": _add_numbers_of_shared_experts,
    "granitemoe": _add_numbers_of_shared_experts,
    "glm4moe": _add_numbers_of_glm4,
    "ernie4_5-moe": _add_numbers_of_ernie,
    "minimax-m2": _add_numbers_of_minimax,
    "gemma3n": _add_numbers_of_gemma3n,
    "gemma4": _add_numbers_of_gemma4,
    "deepseek2": _add_numbers_of_deepseek,
}


def _add_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    tokens = ["<pad>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "th"]
    tokens += [f"<unused{index}>" for index in range(size - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 3 + [1] * 257 + [5] * (size - 260))
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def in_head_block(head: torch.nn.Module, block: int) -> dict[str, torch.Tensor]:
    """Under the names that DeepSeek's checkpoints have, which the converter gives Qwen's heads."""
    own = {
        "fc.": "eh_proj.",
        "pre_fc_norm_embedding.": "enorm.",
        "pre_fc_norm_hidden.": "hnorm.",
        "norm.": "shared_head.norm.",
        "layers.0.": "",
    }
    return {
        f"model.layers.{block}.{new}{name.removeprefix(old)}": values
        for name, values in head.state_dict().items()
        for old, new in own.items()
        if name.startswith(old)
    }


def _tensors(
    model: PreTrainedModel, name: str, fused_latent: bool, head: torch.nn.Module | None
) -> dict[str, torch.Tensor]:
    config = model.config
    kind = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == name)
    layers = config.num_hidden_layers
    # The package's table for Qwen has no heads.
    names = gguf.get_tensor_name_map(kind, layers + 1)
    of_heads = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GLM4_MOE, layers + 1)
    tensors: dict[str, torch.Tensor] = {}
    state = model.state_dict() | ({} if head is None else in_head_block(head, layers))
    for full, values in _joined(state).items():
        if full == "lm_head.weight" and config.tie_word_embeddings:
            continue
        parts = [(full, values)]
        if not (fused_latent and full.endswith("kv_b_proj.weight")):
            parts = _expanded(full, values, name, model)
        for part, changed in parts:
            if part.endswith(tuple(_GEMMA4_SCALES)):
                before, _, after = part.partition(".router.")
                layer = before.rpartition(".")[2]
                tensors[f"blk.{layer}.{_GEMMA4_SCALES[f'router.{after}']}"] = changed
                continue
            stem, _, ending = part.replace("_correction_bias", "_correction.bias").rpartition(".")
            if ending not in ("weight", "bias"):
                stem, ending = part, "weight"
            mapped = names.get_name(stem) or of_heads.get_name(stem)
            assert mapped is not None, part
            if mapped.endswith("ssm_a"):
                tensors[mapped] = changed
                continue
            tensors[f"{mapped}.{ending}"] = _changed(part, changed, config, name)
    tensors.update(_rope_tensors(model))
    return tensors


def _joined(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Gemma 3n's projections of streams are one tensor in files."""
    result: dict[str, torch.Tensor] = {}
    stacks: dict[str, list[torch.Tensor]] = {}
    for full, values in state.items():
        prefix, _, rest = full.partition("projections.")
        if "altup_" in prefix and rest:
            stacks.setdefault(f"{prefix}projections.weight", []).append(values)
        else:
            result[full] = values
    return result | {full: torch.stack(values) for full, values in stacks.items()}


def _expanded(
    full: str, values: torch.Tensor, name: str, model: PreTrainedModel
) -> list[tuple[str, torch.Tensor]]:
    """transformers keeps the experts' gate and up in one tensor; files keep two. DeepSeek's
    second projection of keys and values is cut in two the other way round.
    """
    if full.endswith("kv_b_proj.weight"):
        config = model.config
        split = values.unflatten(0, (config.num_attention_heads, -1))
        keys, of_values = split.split([config.qk_nope_head_dim, config.v_head_dim], dim=1)
        prefix = full.removesuffix("kv_b_proj.weight")
        return [
            (f"{prefix}k_b_proj.weight", keys.transpose(1, 2)),
            (f"{prefix}v_b_proj.weight", of_values),
        ]
    if ".linear_attn." in full:
        return delta_net_tensors(full, values, name, model.config)
    full = full.replace(".gate.moe_statics.", ".moe_statics.")
    full = full.replace(".block_sparse_moe.router.", ".mlp.gate.")
    full = full.replace(".block_sparse_moe.", ".mlp.").replace(".output_linear.", ".down_proj.")
    if name == "granitemoe":
        full = full.replace(".shared_mlp.", ".mlp.shared_experts.")
    if full.endswith("shared_experts.input_linear.weight"):
        stem = full.removesuffix("input_linear.weight")
        gate, up = values.chunk(2)
        return [(f"{stem}gate_proj.weight", gate), (f"{stem}up_proj.weight", up)]
    if full.endswith((".e_score_correction_bias", "shared_expert_gate.weight")):
        values = values.squeeze()  # as the converter does with every tensor
    if ".experts." not in full:
        return [(full, values)]
    bias = "bias" if full.endswith("_bias") else "weight"
    stem = full.removesuffix("_bias")
    if name == "gpt-oss" and bias == "weight":
        values = values.swapaxes(1, 2)
    if "gate_up_proj" not in stem or name == "gemma4":
        return [(f"{stem}.{bias}", values)]
    if name == "gpt-oss":
        gate, up = values[:, 0::2], values[:, 1::2]
    else:
        gate, up = values.chunk(2, dim=1)
    prefix = stem.removesuffix("gate_up_proj")
    return [(f"{prefix}gate_proj.{bias}", gate), (f"{prefix}up_proj.{bias}", up)]


def _changed(part: str, values: torch.Tensor, config: Any, name: str) -> torch.Tensor:
    centred = ("gemma", "gemma2", "gemma3", "qwen3next", "qwen35", "qwen35moe")
    if name in centred and "norm" in part and "linear_attn.norm" not in part:
        return values + 1
    if name in _PERMUTED and ("q_proj" in part or "k_proj" in part):
        heads = config.num_attention_heads if "q_proj" in part else config.num_key_value_heads
        size = values.shape[0] // heads
        split = values.reshape(heads, 2, size // 2, *values.shape[1:])
        return split.swapaxes(1, 2).reshape(values.shape)
    return values


def _rope_tensors(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    config = model.config
    rope = config.rope_parameters
    if config.model_type == "gemma4_text":
        whole = rope["full_attention"]
        size = next(
            values["head_dim"]
            for values in _own_sizes(SimpleNamespace(**config.to_dict())).values()
        )
        rotated = int(size * whole["partial_rotary_factor"] / 2)
        return {"rope_freqs.weight": torch.tensor([1.0] * rotated + [1e30] * (size // 2 - rotated))}
    if rope.get("rope_type") == "longrope":
        return {
            f"rope_factors_{which}.weight": torch.tensor(rope[f"{which}_factor"])
            for which in ("long", "short")
        }
    if rope.get("rope_type") == "llama3":
        dims = config.head_dim
        plain = rope["rope_theta"] ** (-torch.arange(0, dims, 2).double() / dims)
        return {"rope_freqs.weight": (plain / model.model.rotary_emb.inv_freq).float()}
    return {}
