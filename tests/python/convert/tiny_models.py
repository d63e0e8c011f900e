"""Tiny random models of transformers', one for each architecture, in odd shapes on purpose.

1, 3 or 5 kv heads, heads whose size is not hidden / heads, sizes that are no powers of two.
"""

from __future__ import annotations

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
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 256,
}
_WINDOW = {"sliding_window": 40}
_EXPERTS = {"num_local_experts": 5, "num_experts": 5, "num_experts_per_tok": 2}

# name -> (model type, what differs from _COMMON)
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "llama3": ("llama", {"rope_parameters": _LLAMA3, "attention_bias": True, "mlp_bias": True}),
    "llama-yarn": ("llama", {"rope_parameters": _YARN, "num_attention_heads": 5,
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
    "granite": ("granite", {"embedding_multiplier": 3.0, "attention_multiplier": 0.3,
                            "residual_multiplier": 0.4, "logits_scaling": 2.5}),
    "olmo2": ("olmo2", {"num_key_value_heads": 1}),
    "gemma": ("gemma", {"num_key_value_heads": 1}),
    "gemma2": ("gemma2", {"query_pre_attn_scalar": 20, **_WINDOW}),
    "gemma3": ("gemma3_text", {"num_key_value_heads": 1, "query_pre_attn_scalar": 20,
                               "layer_types": ["sliding_attention", "full_attention"],
                               **_WINDOW}),
    "mixtral": ("mixtral", _EXPERTS),
    "qwen3_moe": ("qwen3_moe", {**_EXPERTS, "moe_intermediate_size": 36,
                                "norm_topk_prob": True}),
    "gpt_oss": ("gpt_oss", {**_EXPERTS, **_WINDOW, 
                            "rope_parameters": {**_YARN, "truncate": False}}),
}  # fmt: skip


def make(name: str) -> PreTrainedModel:
    """The model, f32, with weights large enough that every part of it shows in the logits."""
    model_type, changes = ARCHITECTURES[name]
    config = AutoConfig.for_model(model_type, **{**_COMMON, **changes})
    # Only eager attention has soft caps and sinks.
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    offset = 0.0 if config.model_type in ("gemma", "gemma2", "gemma3_text") else 1.0
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            random = torch.randn(parameter.shape, generator=generator)
            if "norm" in parameter_name:
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


@torch.no_grad()
def logits(model: PreTrainedModel, ids: list[int]) -> Any:
    """f32 [len(ids), vocab]."""
    return model(torch.tensor([ids])).logits[0].float().numpy()
