"""Independent references that pagewheel is compared with."""

from __future__ import annotations

import copy
from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pagewheel.convert.decoder.architecture import Mlp
from pagewheel.convert.gguf.file import GGUFFile
from pagewheel.convert.gguf.source import GGUFSource


def dequantised_llama(path: Path) -> LlamaForCausalLM:
    """transformers' model with the file's weights, dequantised by the gguf package."""
    reader = gguf.GGUFReader(path)
    with GGUFFile(path) as file:
        arch = GGUFSource(file).architecture
    attention, mlp, frequencies = arch.layers[0].attention, arch.layers[0].mlp, arch.rotary[0]
    assert isinstance(mlp, Mlp)
    config = LlamaConfig(
        vocab_size=arch.vocab_size,
        hidden_size=arch.hidden_size,
        intermediate_size=mlp.intermediate_size,
        num_hidden_layers=len(arch.layers),
        num_attention_heads=attention.heads,
        num_key_value_heads=attention.kv_heads,
        head_dim=attention.head_size,
        rms_norm_eps=arch.norm_eps,
        rope_theta=frequencies.theta,
        max_position_embeddings=arch.context_length,
        tie_word_embeddings=arch.tied_embeddings,
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    names = {
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    whole = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    }
    state: dict[str, torch.Tensor] = {}
    for tensor in reader.tensors:
        if tensor.name == "rope_freqs.weight":
            continue
        values = np.array(gguf.dequantize(tensor.data, tensor.tensor_type), np.float32)
        parts = tensor.name.split(".")
        if parts[0] == "blk" and parts[2] in ("attn_q", "attn_k"):
            heads = attention.heads if parts[2] == "attn_q" else attention.kv_heads
            # The inverse of llama.cpp's permutation for interleaved rotation.
            values = (
                values.reshape(heads, attention.head_size // 2, 2, -1)
                .swapaxes(1, 2)
                .reshape(values.shape)
            )
        name = whole.get(tensor.name) or f"model.layers.{parts[1]}.{names[parts[2]]}.weight"
        state[name] = torch.from_numpy(np.ascontiguousarray(values))
    if arch.tied_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True, assign=True)
    rotary = model.model.rotary_emb
    dims = frequencies.dims
    plain = frequencies.theta ** (-torch.arange(0, dims, 2).double() / dims)
    divisors = _frequency_divisors(reader)
    rotary.inv_freq = (plain / divisors).float()
    rotary.original_inv_freq = rotary.inv_freq
    return model.eval()


def first_layers(model: LlamaForCausalLM, count: int) -> LlamaForCausalLM:
    """A model of these, which shares the other's weights."""
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = count
    with torch.device("meta"):
        shallow = LlamaForCausalLM(config)
    shallow.load_state_dict(model.state_dict(), strict=False, assign=True)
    shallow.model.rotary_emb = model.model.rotary_emb
    return shallow.eval()


def _frequency_divisors(reader: gguf.GGUFReader) -> torch.Tensor | float:
    factor = reader.get_field("llama.rope.scaling.factor")
    result: torch.Tensor | float = 1.0 if factor is None else float(factor.contents())
    for tensor in reader.tensors:
        if tensor.name == "rope_freqs.weight":
            result = result * torch.from_numpy(np.array(tensor.data)).double()
    return result
