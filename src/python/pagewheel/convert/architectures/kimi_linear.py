"""Kimi Linear: decays by channel in three layers of four, latent attention without positions."""

from __future__ import annotations

import re
from dataclasses import replace

from ..decoder.architecture import Architecture, Experts, GatedDeltaNet, Routing
from ..decoder.rotary import rotary_embedding
from .deepseek import (
    GGUF_NAMES,
    config_of_deepseek,
    grouped_experts,
    latent_attention,
    latent_rotary,
    recipe_of_latent,
    require_sigmoid,
)
from .entry import Family, FilePart, GGUFArchitecture, ModelType, Part, Recipe, tensor_name
from .gguf_config import Config, GGUFConfig
from .llama import recipe_of_mixtral
from .olmo_hybrid import joined_projections
from .qwen_hybrid import attending_layers
from .reader import Reader

# DeepSeek V3's name -> Kimi's.
_NAMES = {
    "max_position_embeddings": "model_max_length",
    "norm_topk_prob": "moe_renormalize",
    "n_group": "num_expert_group",
    "n_routed_experts": "num_experts",
    "n_shared_experts": "num_shared_experts",
    "num_experts_per_tok": "num_experts_per_token",
}
_MOVED = {
    "in_proj_b": "b_proj",
    "in_proj_a_down": "f_a_proj",
    "in_proj_a": "f_b_proj",
    "in_proj_z_down": "g_a_proj",
    "in_proj_z": "g_b_proj",
    "norm": "o_norm",
    "out_proj": "o_proj",
}


def _kimi_linear(reader: Reader) -> Architecture:
    config, values = reader.config, reader.config.values
    values.update({name: values[own] for name, own in _NAMES.items()})
    # As published the numbers of these layers stand in an object, and layers count from 1.
    own = values.get("linear_attn_config") or {}
    for key, name in (
        ("num_heads", "num_heads"),
        ("head_dim", "head_dim"),
        ("short_conv_kernel_size", "conv_kernel_dim"),
    ):
        values[f"linear_{name}"] = own.get(key, values[f"linear_{name}"])
    if values.get("layer_types") is None:
        full = set(own.get("full_attn_layers", range(5, config.layers + 1, 4)))
        kinds = ("linear_attention", "full_attention")
        values["layer_types"] = [kinds[layer + 1 in full] for layer in range(config.layers)]
    heads, size = config.positive("linear_num_heads"), config.positive("linear_head_dim")
    length = config.positive("linear_conv_kernel_dim")
    net = GatedDeltaNet(heads, heads, size, size, length, decay_by_channel=True)
    rotary = latent_rotary(config)
    attention = latent_attention(config, rotary)
    assert attention.latent is not None
    latent = replace(attention.latent, norm_eps=1e-6)
    arch = reader.architecture(
        replace(attention, rotary=None, latent=latent),
        grouped_experts(reader, Routing.SIGMOID),
        rotary=(rotary_embedding(rotary),),  # which no layer has
    )
    mlps = config.list_of("mlp_layer_types", str, config.layers)
    dense = config.integer("first_k_dense_replace", 1)
    arch = reader.with_dense_layers(
        arch, lambda index: index < dense if mlps is None else mlps[index] == "dense"
    )
    return arch.with_mixer(net, attending_layers(reader))


def _recipe(arch: Architecture, name: str) -> Recipe | None:
    found = re.fullmatch(r"layers\.(\d+)\.(linear_attn|mlp)\.(.*)", name)
    if found is None:
        return recipe_of_latent(arch, name)
    layer = arch.layers[int(found[1])]
    if found[2] == "mlp":
        return recipe_of_mixtral(arch, name) if isinstance(layer.mlp, Experts) else None
    assert isinstance(layer.mixer, GatedDeltaNet)
    prefix = f"layers.{found[1]}.self_attn."
    own = tensor_name(prefix + _MOVED.get(found[3], found[3]))
    return joined_projections(layer.mixer, prefix, found[3]) or (Part(own),)


def _file_part(arch: Architecture, name: str) -> FilePart | None:
    """llama.cpp keeps queries, keys and values in tensors of their own, as the checkpoint does."""
    found = re.fullmatch(r"layers\.(\d+)\.linear_attn\.(in_proj_qkv|conv1d|A_log)", name)
    if found is None:
        return None
    net = arch.layers[int(found[1])].mixer
    assert isinstance(net, GatedDeltaNet)
    if found[2] == "A_log":
        return FilePart("ssm_a", (net.value_heads, 1), negative_exponential=True)
    is_conv = found[2] == "conv1d"
    stem, columns = ("ssm_conv1d_", net.length) if is_conv else ("attn_", arch.hidden_size)
    keys, values = (
        FilePart(f"{stem}{each}.weight", (width, columns))
        for each, width in (("k", net.key_width), ("v", net.value_width))
    )
    return FilePart(f"{stem}q.weight", keys.shape, below=(keys, values))


def _config(file: GGUFConfig) -> Config:
    """DeepSeek V3's, by Kimi's names. Experts' weights are normalised whatever the file says."""
    require_sigmoid(file, default=None)
    values = config_of_deepseek(file)
    kinds = ("linear_attention", "full_attention")
    return {
        **values,
        **{own: values[name] for name, own in _NAMES.items()},
        "architectures": ["KimiLinearForCausalLM"],
        "model_type": "kimi_linear",
        "moe_renormalize": True,
        "layer_types": [kinds[each > 0] for each in file.each_layer("attention.head_count_kv")],
        # llama.cpp knows one number of heads for both kinds of layers.
        "linear_num_heads": values["num_attention_heads"],
        "linear_head_dim": file.integer("kda.head_dim"),
        "linear_conv_kernel_dim": file.integer("ssm.conv_kernel"),
    }


_DEFAULTS = {
    "vocab_size": 163840,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "moe_intermediate_size": 1024,
    "num_hidden_layers": 27,
    "num_attention_heads": 32,
    "rms_norm_eps": 1e-5,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "routed_scaling_factor": 2.446,
    "topk_group": 1,
    "model_max_length": 1048576,
    "moe_renormalize": True,
    "num_expert_group": 1,
    "num_experts": 256,
    "num_shared_experts": 1,
    "num_experts_per_token": 8,
    "linear_head_dim": 128,
    "linear_num_heads": 32,
    "linear_conv_kernel_dim": 4,
}

# transformers writes a dense MLP under the experts' name.
FAMILY = Family(
    (ModelType("kimi_linear", _kimi_linear, _DEFAULTS, _recipe, recipe_of_mixtral),),
    (
        GGUFArchitecture(
            "kimi-linear",
            _config,
            names={
                **GGUF_NAMES,
                "linear_attn.in_proj_b": "ssm_beta",
                "linear_attn.in_proj_a_down": "ssm_f_a",
                "linear_attn.in_proj_a": "ssm_f_b",
                "linear_attn.in_proj_z_down": "ssm_g_a",
                "linear_attn.in_proj_z": "ssm_g_b",
                "linear_attn.dt": "ssm_dt",
                "linear_attn.norm": "ssm_norm",
                "linear_attn.out_proj": "attn_output",
            },
            part=_file_part,
            fused_as_in_checkpoint=True,
        ),
    ),
)
