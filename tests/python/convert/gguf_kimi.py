"""Numbers and tensors of Kimi Linear as llama.cpp's converter writes them."""

from __future__ import annotations

from typing import Any

import gguf
import torch
from transformers import PreTrainedModel


def add_numbers(writer: gguf.GGUFWriter, config: Any) -> None:
    rank, rotated = config.kv_lora_rank, config.qk_rope_head_dim
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.model_max_length)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv([int(each == "full_attention") for each in config.layer_types])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_kda_head_dim(config.linear_head_dim)
    writer.add_kv_lora_rank(rank)
    writer.add_rope_dimension_count(rotated)
    writer.add_key_length(rank + rotated)
    writer.add_key_length_mla(config.qk_nope_head_dim + rotated)
    writer.add_value_length_mla(config.v_head_dim)
    writer.add_expert_count(config.num_experts)
    writer.add_expert_used_count(config.num_experts_per_token)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_shared_count(config.num_shared_experts)
    writer.add_expert_group_count(config.num_expert_group)
    writer.add_expert_group_used_count(config.topk_group)
    writer.add_leading_dense_block_count(config.mlp_layer_types.count("dense"))
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def tensors(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.KIMI_LINEAR, model.config.num_hidden_layers)
    result: dict[str, torch.Tensor] = {}
    for full, values in model.state_dict().items():
        for part, changed in _parts(full, values, model.config):
            stem, _, ending = part.rpartition(".")
            mapped = names.get_name(part if ending == "A_log" else stem)
            assert mapped is not None, part
            result[mapped if ending == "A_log" else f"{mapped}.{ending}"] = changed
    return result


def _parts(full: str, values: torch.Tensor, config: Any) -> list[tuple[str, torch.Tensor]]:
    """transformers keeps the three convolutions in one tensor, and the experts' gate and up."""
    full = full.replace(".forget_gate.", ".")
    if full.endswith(".A_log"):
        return [(full, -torch.exp(values))]
    if full.endswith("_bias"):
        return [(full.replace(".dt_bias", ".dt_proj.bias").replace("on_bias", "on.bias"), values)]
    if full.endswith(".conv1d.weight"):
        pieces = (each.transpose(0, 1)[None] for each in values.chunk(3))
        names = (full.replace(".conv1d.", f".{each}_conv1d.") for each in "qkv")
        return list(zip(names, pieces, strict=True))
    if full.endswith("kv_b_proj.weight"):
        split = values.unflatten(0, (config.num_attention_heads, -1))
        keys, of_values = split.split([config.qk_nope_head_dim, config.v_head_dim], dim=1)
        stem = full.removesuffix("kv_b_proj.weight")
        return [
            (f"{stem}k_b_proj.weight", keys.transpose(1, 2)),
            (f"{stem}v_b_proj.weight", of_values),
        ]
    if full.endswith("gate_up_proj"):
        names = (full.replace("gate_up", each) + ".weight" for each in ("gate", "up"))
        return list(zip(names, values.chunk(2, dim=1), strict=True))
    return [(full if full.endswith(".weight") else full + ".weight", values)]
