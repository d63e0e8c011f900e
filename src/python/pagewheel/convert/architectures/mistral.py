"""Mistral: a Llama with sliding windows. Its GGUF files call themselves llama."""

from __future__ import annotations

from ..decoder.architecture import Architecture
from .entry import Family, ModelType
from .reader import Reader


def _read(reader: Reader) -> Architecture:
    return reader.architecture(windows=reader.windows(reader.same_everywhere(True)))


FAMILY = Family(
    (
        ModelType(
            "mistral",
            _read,
            {
                "rms_norm_eps": 1e-6,
                "num_key_value_heads": 8,
                "max_position_embeddings": 131072,
                "sliding_window": 4096,
            },
        ),
    )
)
