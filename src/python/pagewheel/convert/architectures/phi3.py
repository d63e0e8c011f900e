"""Phi-3, Phi-3.5 mini and Phi-4 mini: fused projections, partial rotation, longrope."""

from __future__ import annotations

from ..decoder.architecture import Architecture, Mlp
from .entry import Family, GGUFArchitecture, ModelType, Part, Recipe
from .gguf_config import WINDOW_KEY, Config, GGUFConfig
from .reader import Reader


def _config(file: GGUFConfig) -> Config:
    config = file.common("Phi3", "phi3", (WINDOW_KEY,))
    window = file.integer(WINDOW_KEY, 0)
    original = file.integer(
        "rope.scaling.original_context_length", config["max_position_embeddings"]
    )
    return {
        **config,
        "sliding_window": window or None,
        "original_max_position_embeddings": original,
    }


def _recipe(arch: Architecture, name: str) -> Recipe | None:
    """Query, key and value are in one matrix, gate and up in another."""
    prefix, _, last = name.rpartition(".")
    attention, mlp = arch.layers[0].attention, arch.layers[0].mlp
    assert isinstance(mlp, Mlp)
    query, kv = (heads * attention.head_size for heads in (attention.heads, attention.kv_heads))
    inner = mlp.intermediate_size
    fused = {
        "q_proj": ("qkv_proj", 0, query, query + 2 * kv),
        "k_proj": ("qkv_proj", query, kv, query + 2 * kv),
        "v_proj": ("qkv_proj", query + kv, kv, query + 2 * kv),
        "gate_proj": ("gate_up_proj", 0, inner, 2 * inner),
        "up_proj": ("gate_up_proj", inner, inner, 2 * inner),
    }
    if last not in fused:
        return None
    tensor, first, count, length = fused[last]
    return (Part(f"{prefix}.{tensor}.weight", slice(first, first + count), length),)


FAMILY = Family(
    (
        ModelType(
            "phi3",
            Reader.architecture_with_windows,
            {
                "rms_norm_eps": 1e-5,
                "max_position_embeddings": 4096,
                "original_max_position_embeddings": 4096,
            },
            _recipe,
        ),
    ),
    (
        GGUFArchitecture(
            "phi3",
            _config,
            names={"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"},
            fused_as_in_checkpoint=True,
        ),
    ),
)
