"""LFM2, with experts too: short convolutions in most layers, attention in the others."""

from __future__ import annotations

import re
from typing import Any

from ..decoder.architecture import (
    Architecture,
    Experts,
    Mlp,
    QueryKeyNorm,
    Routing,
    ShortConvolution,
)
from .deepseek import require_sigmoid
from .entry import (
    Family,
    FilePart,
    GGUFArchitecture,
    ModelType,
    Part,
    Recipe,
    each_expert,
    tensor_name,
)
from .gguf_config import Config, GGUFConfig
from .reader import Reader


def _mlp(reader: Reader) -> Mlp:
    config = reader.config
    size = config.positive("intermediate_size", config.positive("block_ff_dim", 12288))
    if config.boolean("block_auto_adjust_ff_dim", True):
        size = int(config.number("block_ffn_dim_multiplier", 1.0) * int(2 * size / 3))
        multiple = config.positive("block_multiple_of", 256)
        size = (size + multiple - 1) // multiple * multiple
    return Mlp(size)


def _attends(reader: Reader) -> list[bool]:
    """Says of each layer whether it attends. Older configs list the layers that do."""
    config = reader.config
    kinds = ("full_attention", "conv")
    listed = config.values.get("full_attn_idxs") or range(config.layers)
    older = [kinds[layer not in listed] for layer in range(config.layers)]
    return [each == "full_attention" for each in config.layer_types(older, kinds)]


def _architecture(reader: Reader, mlp: Mlp | Experts) -> Architecture:
    config = reader.config
    arch = reader.architecture(
        reader.attention(query_key_norm=QueryKeyNorm.HEAD),
        mlp,
        [0] * config.layers,
        norm_eps=config.not_negative("norm_eps"),
        tied_embeddings=config.boolean("tie_embedding", config.boolean("tie_word_embeddings")),
    )
    convolution = ShortConvolution(
        config.positive("conv_L_cache", 3), config.boolean("conv_bias", False)
    )
    return arch.with_mixer(convolution, _attends(reader))


def _lfm2(reader: Reader) -> Architecture:
    return _architecture(reader, _mlp(reader))


def _lfm2_moe(reader: Reader) -> Architecture:
    config = reader.config
    experts = reader.experts(
        "num_experts",
        Routing.SIGMOID,
        reader.small_mlp(),
        correction=config.boolean("use_expert_bias", True),
        normalise=config.boolean("norm_topk_prob", True),
        weights_scale=config.number("routed_scaling_factor", 1.0),
    )
    num_dense = config.integer("num_dense_layers", 2)
    return reader.with_dense_layers(_architecture(reader, experts), lambda index: index < num_dense)


_NAMES = {
    "input_layernorm": "operator_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_norm": "self_attn.q_layernorm",
    "self_attn.k_norm": "self_attn.k_layernorm",
    "self_attn.o_proj": "self_attn.out_proj",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.gate": "feed_forward.gate",
    "mlp.experts.gate_proj": "feed_forward.experts.w1",
    "mlp.experts.up_proj": "feed_forward.experts.w3",
    "mlp.experts.down_proj": "feed_forward.experts.w2",
}


def _recipe(arch: Architecture, name: str) -> Recipe | None:
    if name == "norm":
        return (Part("embedding_norm.weight"),)
    layer = re.fullmatch(r"(layers\.\d+\.)(.*)", name)
    if layer is None:
        return None
    if layer[2] == "mlp.gate.e_score_correction_bias":
        return (Part(f"{layer[1]}feed_forward.expert_bias"),)
    if layer[2] not in _NAMES:
        return None
    moved = layer[1] + _NAMES[layer[2]]
    return each_expert(arch, moved) or (Part(tensor_name(moved)),)


def _config(file: GGUFConfig, *known: str) -> Config:
    kv_heads = file.each_layer("attention.head_count_kv")
    name = ("Lfm2Moe", "lfm2_moe") if known else ("Lfm2", "lfm2")
    config = file.common(*name, known, kv_heads=max(kv_heads))
    return {
        **config,
        "norm_eps": config["rms_norm_eps"],
        "layer_types": ["full_attention" if each else "conv" for each in kv_heads],
        "conv_L_cache": file.integer("shortconv.l_cache"),
        "conv_bias": False,
        "block_auto_adjust_ff_dim": False,
        "tie_embedding": config["tie_word_embeddings"],
    }


def _config_of_experts(file: GGUFConfig) -> Config:
    known = ("expert_count", "leading_dense_block_count", "expert_gating_func")
    require_sigmoid(file)
    return {
        **_config(file, *known),
        **file.experts("num_experts", "moe_intermediate_size"),
        "num_dense_layers": file.integer("leading_dense_block_count", 0),
        "use_expert_bias": any(name.endswith(".exp_probs_b.bias") for name in file.shapes),
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.0,
    }


def _file_part(arch: Architecture, name: str) -> FilePart | None:
    found = re.fullmatch(r"layers\.(\d+)\.conv\.conv", name)
    if found is None:
        return None
    convolution = arch.layers[int(found[1])].mixer
    assert isinstance(convolution, ShortConvolution)
    return FilePart("shortconv.conv.weight", (arch.hidden_size, convolution.length))


_GGUF_NAMES = {
    "norm": "token_embd_norm.weight",
    "conv.in_proj": "shortconv.in_proj.weight",
    "conv.out_proj": "shortconv.out_proj.weight",
    "mlp.gate.e_score_correction": "exp_probs_b",
}


_DEFAULTS: dict[str, Any] = {
    "num_key_value_heads": 8,
    "max_position_embeddings": 128_000,
    "rope_theta": 1e6,
    "norm_eps": 1e-5,
    "tie_word_embeddings": True,
}

_MOE = {
    **_DEFAULTS,
    "intermediate_size": 7168,
    "moe_intermediate_size": 1792,
    "num_experts": 32,
    "num_experts_per_tok": 4,
}

FAMILY = Family(
    (
        ModelType("lfm2", _lfm2, _DEFAULTS, _recipe),
        ModelType("lfm2_moe", _lfm2_moe, _MOE, _recipe),
    ),
    (
        GGUFArchitecture("lfm2", _config, names=_GGUF_NAMES, part=_file_part),
        GGUFArchitecture("lfm2moe", _config_of_experts, names=_GGUF_NAMES, part=_file_part),
    ),
)
