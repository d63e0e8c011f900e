"""SmolLM 3: a Llama of which some layers do not rotate."""

from __future__ import annotations

from dataclasses import replace

from ..decoder.architecture import Architecture
from .entry import Family, GGUFArchitecture, ModelType
from .gguf_config import Config, GGUFConfig
from .reader import Reader


def _read(reader: Reader) -> Architecture:
    config = reader.config
    layers = config.layers
    interval = config.positive("no_rope_layer_interval", 4)
    rotated = config.list_of("no_rope_layers", int, layers) or [
        int((layer + 1) % interval != 0) for layer in range(layers)
    ]
    windows = [0] * layers
    if config.boolean("use_sliding_window"):
        windows = reader.windows(
            ["full_attention" if each else "sliding_attention" for each in rotated]
        )
    arch = reader.architecture(windows=windows)
    changed = tuple(
        layer if rotates else replace(layer, attention=replace(layer.attention, rotary=None))
        for layer, rotates in zip(arch.layers, rotated, strict=True)
    )
    return replace(arch, layers=changed)


def _config(file: GGUFConfig) -> Config:
    # llama.cpp has no key for it: every fourth layer does not rotate.
    return {
        "architectures": ["SmolLM3ForCausalLM"],
        **file.common("smollm3"),
        "no_rope_layer_interval": 4,
        "use_sliding_window": False,
    }


FAMILY = Family(
    (
        ModelType(
            "smollm3",
            _read,
            {
                "rms_norm_eps": 1e-6,
                "num_key_value_heads": 4,
                "max_position_embeddings": 32768,
                "rope_theta": 2e6,
                "tie_word_embeddings": True,
                "use_sliding_window": False,
            },
        ),
    ),
    (GGUFArchitecture("smollm3", _config, interleaved=True),),
)
