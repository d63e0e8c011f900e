"""Granite 4: Mamba 2 in most layers, attention without positions in the others."""

from __future__ import annotations

from dataclasses import replace

from ..decoder.architecture import Architecture, Mlp
from .entry import Family, GGUFArchitecture, ModelType, Recipe
from .gguf_config import Config, GGUFConfig
from .llama import config_of_granite, granite, granite_experts, recipe_of_granite_moe
from .mamba2 import config_of_mixer, file_part, mixer_of, recipe_of_mixer
from .reader import ModelConfig, Reader

_ATTENDS = {
    "attention": True,
    "full_attention": True,
    "mamba": False,
    "linear_attention": False,
}


def _attending_layers(config: ModelConfig) -> list[bool]:
    key = "layer_types" if config.values.get("layer_types") is not None else "layers_block_type"
    types = config.layer_types(["mamba"] * config.layers, _ATTENDS, key)
    return [_ATTENDS[each] for each in types]


def _granite_hybrid(reader: Reader) -> Architecture:
    config = reader.config
    mlp = Mlp(config.positive("shared_intermediate_size"), reader.activation())
    if config.integer("num_local_experts", 0) > 0:
        arch = granite(reader, replace(granite_experts(reader), shared=mlp))
    else:
        arch = granite(reader, mlp)
    if config.values.get("position_embedding_type") != "rope":
        arch = arch.with_layers(lambda _, layer: layer.with_attention(rotary=None))
    return arch.with_mixer(mixer_of(config), _attending_layers(config))


def _recipe(arch: Architecture, name: str) -> Recipe | None:
    return recipe_of_mixer(arch, name) or recipe_of_granite_moe(arch, name)


def _config(file: GGUFConfig) -> Config:
    kv_heads = file.each_layer("attention.head_count_kv")
    config = config_of_granite(file, "expert_count", kv_heads=max(kv_heads))
    experts = file.integer("expert_count", 0)
    shared = file.shape(f"blk.0.ffn_up{'_shexp' if experts else ''}.weight")[0]
    # llama.cpp says by this key whether attention rotates.
    rotates = file.metadata.get(file.key("rope.scaling.finetuned"), bool, True)
    return {
        **config,
        **(file.experts("num_local_experts") if experts else {"num_local_experts": 0}),
        "architectures": ["GraniteMoeHybridForCausalLM"],
        "model_type": "granitemoehybrid",
        "layer_types": ["attention" if each else "mamba" for each in kv_heads],
        "shared_intermediate_size": shared,
        "position_embedding_type": "rope" if rotates else None,
        **config_of_mixer(file),
    }


_DEFAULTS = {
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "shared_intermediate_size": 1024,
    "mamba_n_heads": 128,
}

FAMILY = Family(
    (ModelType("granitemoehybrid", _granite_hybrid, _DEFAULTS, _recipe),),
    (
        GGUFArchitecture(
            "granitehybrid",
            _config,
            part=file_part,
            interleaved=True,
        ),
    ),
)
