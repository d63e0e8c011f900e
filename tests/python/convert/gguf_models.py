"""Writes transformers' models as GGUF files, named and changed as llama.cpp's converter does.

Names are those of the gguf package's own table, so they are independent of pagewheel's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf.constants import GGMLQuantizationType as Kind
from tokenizers import pre_tokenizers
from transformers import PreTrainedModel

# transformers' model_type -> `general.architecture`
_ARCHITECTURES = {
    "mistral": "llama",
    "mixtral": "llama",
    "qwen3_moe": "qwen3moe",
    "gemma3_text": "gemma3",
    "gpt_oss": "gpt-oss",
}
_PERMUTED = ("llama", "granite", "smollm3")


def architecture_of(model: PreTrainedModel) -> str:
    return _ARCHITECTURES.get(model.config.model_type, model.config.model_type)


def write(model: PreTrainedModel, path: Path, kind: Kind = Kind.F32) -> Path:
    """All matrices as `kind`; the byte-level vocabulary of tiny_models."""
    name = architecture_of(model)
    writer = gguf.GGUFWriter(path, name)
    _add_numbers(writer, model.config, name)
    _add_vocabulary(writer, model.config.vocab_size)
    for tensor, values in _tensors(model, name).items():
        array = np.ascontiguousarray(values.detach().float().numpy())
        if array.ndim == 1 or kind is Kind.F32 or "_inp" in tensor:
            writer.add_tensor(tensor, array)
        else:
            writer.add_tensor(tensor, gguf.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_numbers(writer: gguf.GGUFWriter, config: Any, name: str) -> None:
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(rope["rope_theta"])
    head_size = getattr(config, "head_dim", None)
    head_size = head_size or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head_size)
    writer.add_value_length(head_size)
    writer.add_rope_dimension_count(int(head_size * rope.get("partial_rotary_factor", 1.0)))
    if getattr(config, "sliding_window", None) and name in ("phi3", "gemma2", "gemma3", "gpt-oss"):
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
    if name == "granite":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if name == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if getattr(config, "num_experts_per_tok", None):
        writer.add_expert_count(getattr(config, "num_experts", None) or config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        inner = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
        writer.add_expert_feed_forward_length(inner)


def _add_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    tokens = ["<pad>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokens += [f"<unused{index}>" for index in range(size - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 3 + [1] * 256 + [5] * (size - 259))
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _tensors(model: PreTrainedModel, name: str) -> dict[str, torch.Tensor]:
    config = model.config
    kind = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == name)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    tensors: dict[str, torch.Tensor] = {}
    for full, values in model.state_dict().items():
        if full == "lm_head.weight" and config.tie_word_embeddings:
            continue
        for part, changed in _expanded(full, values, name):
            stem, _, ending = part.rpartition(".")
            if ending not in ("weight", "bias"):
                stem, ending = part, "weight"
            mapped = names.get_name(stem)
            assert mapped is not None, part
            tensors[f"{mapped}.{ending}"] = _changed(part, changed, config, name)
    tensors.update(_rope_tensors(model))
    return tensors


def _expanded(full: str, values: torch.Tensor, name: str) -> list[tuple[str, torch.Tensor]]:
    """transformers keeps the experts' gate and up in one tensor; files keep two."""
    if ".experts." not in full:
        return [(full, values)]
    bias = "bias" if full.endswith("_bias") else "weight"
    stem = full.removesuffix("_bias")
    if name == "gpt-oss" and bias == "weight":
        values = values.swapaxes(1, 2)
    if "gate_up_proj" not in stem:
        return [(f"{stem}.{bias}", values)]
    if name == "gpt-oss":
        gate, up = values[:, 0::2], values[:, 1::2]
    else:
        gate, up = values.chunk(2, dim=1)
    prefix = stem.removesuffix("gate_up_proj")
    return [(f"{prefix}gate_proj.{bias}", gate), (f"{prefix}up_proj.{bias}", up)]


def _changed(part: str, values: torch.Tensor, config: Any, name: str) -> torch.Tensor:
    if name.startswith("gemma") and "norm" in part:
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
