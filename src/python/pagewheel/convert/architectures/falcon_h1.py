"""Falcon-H1: attention and Mamba 2 side by side in every layer."""

from __future__ import annotations

from dataclasses import replace

from ..decoder.architecture import Architecture
from .entry import Family, GGUFArchitecture, ModelType, Part, Recipe, tensor_name
from .gguf_config import Config, GGUFConfig
from .mamba2 import config_of_mixer, file_part, mamba_of, mixer_of, recipe_of_mixer
from .reader import ModelConfig, Reader


def _numbers(config: ModelConfig, key: str, count: int) -> list[float]:
    numbers = config.list_of(key, (int, float), count)
    return [1.0] * count if numbers is None else [float(each) for each in numbers]


def _falcon_h1(reader: Reader) -> Architecture:
    config = reader.config
    inner = config.number("attention_in_multiplier", 1.0)
    key, out = config.number("key_multiplier", 1.0), config.number("attention_out_multiplier", 1.0)
    gate, down = _numbers(config, "mlp_multipliers", 2)
    ssm_in, ssm_out = (config.number(f"ssm_{each}_multiplier", 1.0) for each in ("in", "out"))
    parts = _numbers(config, "ssm_multipliers", 5)
    multipliers = {
        # of the weight, of the bias
        "self_attn.q_proj": ((inner,), (1.0,)),
        "self_attn.k_proj": ((inner * key,), (key,)),
        "self_attn.v_proj": ((inner,), (1.0,)),
        "self_attn.o_proj": ((out,), (out,)),
        "mlp.gate_proj": ((gate,), (gate,)),
        "mlp.down_proj": ((down,), (down,)),
        "mamba.gate_proj": ((ssm_in * parts[0],), (parts[0],)),
        "mamba.conv_proj": (tuple(ssm_in * each for each in parts[1:4]), tuple(parts[1:4])),
        "mamba.dt_proj": ((ssm_in * parts[4],), (parts[4],)),
        "mamba.out_proj": ((ssm_out,), (ssm_out,)),
    }
    mixer = mixer_of(
        config,
        norm=config.boolean("mamba_rms_norm"),
        output_bias=config.boolean("projectors_bias"),
        gate_after_norm=config.boolean("mamba_norm_before_gate", True),
    )
    arch = reader.architecture(
        embedding_scale=config.number("embedding_multiplier", 1.0),
        logits_scale=config.number("lm_head_multiplier", 1.0),
        multipliers=tuple(
            (name, factors)
            for name, both in multipliers.items()
            for name, factors in ((name, both[0]), (f"{name}.bias", both[1]))
            if set(factors) != {1.0}
        ),
    )
    return arch.with_layers(lambda _, layer: replace(layer, recurrence=mixer))


_NAMES = {
    "post_attention_layernorm": "pre_ff_layernorm",
    "mlp.gate_proj": "feed_forward.gate_proj",
    "mlp.up_proj": "feed_forward.up_proj",
    "mlp.down_proj": "feed_forward.down_proj",
}


def _recipe(arch: Architecture, name: str) -> Recipe | None:
    if name == "norm":
        return (Part("final_layernorm.weight"),)
    found = recipe_of_mixer(arch, name)
    before, _, own = name.partition(".")[2].partition(".")
    stem, bias = own.removesuffix(".bias"), ".bias" if own.endswith(".bias") else ""
    if found is None and own:
        moved = _NAMES.get(stem, stem)
        found = (Part(tensor_name(f"layers.{before}.{moved}{bias}")),)
    factors = dict(arch.multipliers).get(own)
    if found is None or factors is None:
        return found
    counts: tuple[int, ...] = (0,)
    if len(factors) > 1:
        mamba = mamba_of(arch, int(before))
        states = mamba.groups * mamba.state_size
        counts = (mamba.inner_size, states, states)
    return (replace(found[0], scales=tuple(zip(factors, counts, strict=True))),)


def _config(file: GGUFConfig) -> Config:
    return {
        **file.common("FalconH1", "falcon_h1"),
        **config_of_mixer(file),
        "mamba_rms_norm": "blk.0.ssm_norm.weight" in file.shapes,
        "mamba_norm_before_gate": False,
    }


_DEFAULTS = {
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 8192,
    "num_key_value_heads": 8,
    "mamba_n_heads": 128,
    "mamba_d_ssm": 1024,
}

FAMILY = Family(
    (ModelType("falcon_h1", _falcon_h1, _DEFAULTS, _recipe),),
    (GGUFArchitecture("falcon-h1", _config, part=file_part),),
)
