"""Gemma 3 and later: layers without a window have a rotary embedding of their own."""

from __future__ import annotations

from dataclasses import replace

from ..decoder.architecture import Architecture
from ..decoder.rotary import RotaryEmbedding
from .model_config import ModelConfig
from .reader import Reader


def with_global_rotary(arch: Architecture, rotary: RotaryEmbedding) -> Architecture:
    """Layers without a window rotate by `rotary`, the others by what all had so far."""
    layers = tuple(
        replace(layer, attention=replace(layer.attention, rotary=1))
        if layer.attention.window
        else layer
        for layer in arch.layers
    )
    return replace(arch, layers=layers, rotary=(rotary, *arch.rotary))


def local_rotary(reader: Reader) -> RotaryEmbedding:
    """Of layers with a window. Before transformers 5 it was `rope_local_base_freq`, unscaled."""
    config = reader.config
    nested = config.values.get("rope_parameters")
    if isinstance(nested, dict) and "sliding_attention" in nested:
        return reader.rotary("sliding_attention")
    local = {
        **config.values,
        "rope_parameters": None,
        "rope_scaling": None,
        "rope_theta": config.number("rope_local_base_freq", 10000.0),
    }
    return Reader(ModelConfig(local, config.where), None).rotary()
