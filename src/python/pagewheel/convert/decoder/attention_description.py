"""The part of pagewheel.json that says how positions and windows enter a model's attention."""

from __future__ import annotations

from typing import Any

from .architecture import Architecture
from .rotary import RotaryEmbedding


def describe_attention(arch: Architecture) -> dict[str, Any]:
    """`sliding_windows` are each layer's; 0 for none, as for `attention_soft_cap`."""
    return {
        "context_length": arch.context_length,
        "rotary": describe_rotary(arch),
        "sliding_windows": list(arch.windows),
        "attention_soft_cap": arch.attention_soft_cap,
    }


def describe_rotary(arch: Architecture) -> dict[str, Any]:
    """`kinds` are the model's rotary embeddings, `layers` each layer's kind or -1 for none.

    The first kind's entries stand beside them too: a model with one kind is described by these.
    """
    first = _describe_kind(arch.rotary[0]) if arch.rotary else {"pairing": "half"}
    return {
        **first,
        "kinds": [_describe_kind(kind) for kind in arch.rotary],
        "layers": [
            -1 if layer.attention.rotary is None else layer.attention.rotary
            for layer in arch.layers
        ],
    }


def _describe_kind(rotary: RotaryEmbedding) -> dict[str, Any]:
    return {
        "dims": rotary.dims,
        "theta": rotary.theta,
        "inverse_frequencies": list(rotary.inverse_frequencies),
        "attention_scaling": rotary.attention_scaling,
        "pairing": "half",
        "interleaved": False,
    }
