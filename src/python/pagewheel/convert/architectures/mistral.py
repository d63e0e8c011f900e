"""Mistral: a Llama with sliding windows. Its GGUF files call themselves llama."""

from __future__ import annotations

from .entry import Family, ModelType
from .reader import Reader

FAMILY = Family(
    (
        ModelType(
            "mistral",
            Reader.architecture_with_windows,
            {
                "rms_norm_eps": 1e-6,
                "num_key_value_heads": 8,
                "max_position_embeddings": 131072,
                "sliding_window": 4096,
            },
        ),
    )
)
