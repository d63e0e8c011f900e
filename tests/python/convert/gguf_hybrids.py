"""Numbers and tensors of hybrids with Mamba 2 or short convolutions, as llama.cpp's converter
writes them.
"""

from __future__ import annotations

from typing import Any

import gguf
import torch
from transformers import PreTrainedModel

# transformers' model_type -> `general.architecture`
ARCHITECTURES = {
    "lfm2": "lfm2",
    "lfm2_moe": "lfm2moe",
    "granitemoehybrid": "granitehybrid",
    "mamba2": "mamba2",
    "falcon_h1": "falcon-h1",
    "nemotron_h": "nemotron_h",
}


def add_numbers(writer: gguf.GGUFWriter, config: Any) -> None:
    kind, layers = config.model_type, config.num_hidden_layers
    writer.add_block_count(layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    eps = ("norm_eps", "rms_norm_eps", "layer_norm_epsilon")
    writer.add_layer_norm_rms_eps(next(getattr(config, e) for e in eps if hasattr(config, e)))
    if kind != "mamba2":
        _add_attention(writer, config)
    if kind.startswith("lfm2"):
        _add_lfm2(writer, config)
    else:
        _add_mixer(writer, config)
    if kind == "granitemoehybrid":
        _add_granite(writer, config)


def _add_attention(writer: gguf.GGUFWriter, config: Any) -> None:
    kind = config.model_type
    types = ["full_attention"] * config.num_hidden_layers
    if kind != "falcon_h1":
        types = list(getattr(config, "layers_block_type", None) or config.layer_types)
    kv_heads = [config.num_key_value_heads if t == "full_attention" else 0 for t in types]
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads if kind == "falcon_h1" else kv_heads)
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(size)
    writer.add_value_length(size)
    inner: Any = config.intermediate_size
    if kind == "nemotron_h":
        inner = [inner if each == "mlp" else 0 for each in types]
    else:
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
        writer.add_rope_dimension_count(size)
    writer.add_feed_forward_length(inner)


def _add_lfm2(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_shortconv_l_cache(config.conv_L_cache)
    if config.model_type == "lfm2_moe":
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        writer.add_leading_dense_block_count(config.num_dense_layers)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def _mixer(config: Any) -> tuple[int, int, int, int, int]:
    """Heads, head size, groups, state size, taps."""
    names = {
        "mamba2": ("num_heads", "head_dim", "n_groups", "state_size", "conv_kernel"),
        "nemotron_h": (
            *("mamba_num_heads", "mamba_head_dim", "n_groups"),
            *("ssm_state_size", "conv_kernel"),
        ),
    }.get(
        config.model_type,
        ("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv"),
    )
    heads, size, groups, states, taps = (getattr(config, name) for name in names)
    return heads, size, groups, states, taps


def _add_mixer(writer: gguf.GGUFWriter, config: Any) -> None:
    heads, size, groups, states, taps = _mixer(config)
    writer.add_ssm_conv_kernel(taps)
    writer.add_ssm_inner_size(heads * size)
    writer.add_ssm_state_size(states)
    writer.add_ssm_time_step_rank(heads)
    writer.add_ssm_group_count(groups)


def _add_granite(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_attention_scale(config.attention_multiplier)
    writer.add_embedding_scale(config.embedding_multiplier)
    writer.add_residual_scale(config.residual_multiplier)
    writer.add_logit_scale(config.logits_scaling)
    writer.add_rope_scaling_finetuned(config.position_embedding_type == "rope")
    writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)
    if config.num_local_experts:
        writer.add_expert_count(config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)


def tensors(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    config = model.config
    name = ARCHITECTURES[config.model_type]
    kind = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == name)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    result: dict[str, torch.Tensor] = {}
    for full, values in model.state_dict().items():
        if full == "lm_head.weight" and config.tie_word_embeddings:
            continue
        for part, changed in _parts(full, values, config):
            stem, _, ending = part.rpartition(".")
            if ending in ("A_log", "D"):
                result[_mapped(names, part)] = changed
                continue
            result[f"{_mapped(names, stem)}.{ending}"] = changed
    return result


def _mapped(names: Any, stem: str) -> str:
    mapped = names.get_name(stem)
    assert mapped is not None, stem
    return str(mapped)


def _parts(full: str, values: torch.Tensor, config: Any) -> list[tuple[str, torch.Tensor]]:
    kind = config.model_type
    if kind == "nemotron_h":
        full = full.replace("model.", "backbone.")
    if kind == "falcon_h1":
        values = _multiplied(full, values, config)
        full = full.replace("pre_ff_layernorm", "pre_mlp_layernorm")
    if full.endswith(("self_attn.q_proj.weight", "self_attn.k_proj.weight")):
        values = _permuted(full, values, config) if kind == "granitemoehybrid" else values
    if full.endswith((".conv1d.weight", ".conv.conv.weight")):
        return [(full, values.squeeze(1))]
    if full.endswith(".A_log"):
        return [(full, -torch.exp(values)[:, None])]
    if full.endswith(".D"):
        return [(full, values[:, None])]
    if full.endswith(".dt_bias"):
        return [(full.replace(".dt_bias", ".dt_proj.bias"), values)]
    if full.endswith((".mamba.norm.weight", ".mixer.norm.weight")):
        return [(full, values.reshape(_mixer(config)[2], -1))]
    if full.endswith(".expert_bias"):
        return [(full + ".bias", values)]
    return _of_mlp(full, values, config)


def _of_mlp(full: str, values: torch.Tensor, config: Any) -> list[tuple[str, torch.Tensor]]:
    """transformers keeps gate and up in one tensor; files keep two."""
    mlp = "mlp" if getattr(config, "num_local_experts", 0) == 0 else "mlp.shared_experts"
    full = full.replace(".block_sparse_moe.router.", ".mlp.gate.")
    full = full.replace(".block_sparse_moe.", ".mlp.").replace(".shared_mlp.", f".{mlp}.")
    full = full.replace(".output_linear.", ".down_proj.").replace(
        ".input_linear.", ".gate_up_proj."
    )
    if ".experts." in full and not full.endswith(".weight"):
        full += ".weight"
    if "gate_up_proj" not in full:
        return [(full, values)]
    gate, up = values.chunk(2, dim=-2)
    return [(full.replace("gate_up", each), part) for each, part in (("gate", gate), ("up", up))]


def _permuted(full: str, values: torch.Tensor, config: Any) -> torch.Tensor:
    heads = config.num_attention_heads if "q_proj" in full else config.num_key_value_heads
    split = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return split.swapaxes(1, 2).reshape(values.shape)


def _multiplied(full: str, values: torch.Tensor, config: Any) -> torch.Tensor:
    """Falcon-H1's multipliers are in the file's weights."""
    factors = {
        "embed_tokens": config.embedding_multiplier,
        "lm_head": config.lm_head_multiplier,
        "q_proj": config.attention_in_multiplier,
        "k_proj": config.attention_in_multiplier * config.key_multiplier,
        "v_proj": config.attention_in_multiplier,
        "o_proj": config.attention_out_multiplier,
        "feed_forward.gate_proj": config.mlp_multipliers[0],
        "feed_forward.down_proj": config.mlp_multipliers[1],
        "mamba.out_proj": config.ssm_out_multiplier,
    }
    for name, factor in factors.items():
        if full.endswith(f"{name}.weight"):
            return values * factor
    if not full.endswith("mamba.in_proj.weight"):
        return values
    heads, size, groups, states, _ = _mixer(config)
    counts = [heads * size, heads * size, groups * states, groups * states, heads]
    rows = [torch.full((n,), m) for n, m in zip(counts, config.ssm_multipliers, strict=True)]
    return values * torch.cat(rows)[:, None] * config.ssm_in_multiplier
