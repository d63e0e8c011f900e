"""Gemma 3n (text): per-layer embeddings, AltUp, LAuReL, sparse activations, shared caches."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import Any

from ..decoder.architecture import AltUp, Architecture, Mlp
from .entry import Family, GGUFArchitecture, ModelType
from .gemma import (
    NEWER_DEFAULTS,
    per_layer_inputs,
    read_newer_gemma,
    with_global_rotary,
    with_shared_caches,
)
from .gguf_config import WINDOW_KEY, Config, GGUFConfig
from .reader import Reader


def _read(reader: Reader) -> Architecture:
    config = reader.config
    count = config.layers
    sizes = config.values.get("intermediate_size")
    if isinstance(sizes, list):
        sizes = config.list_of("intermediate_size", int, count)
    else:
        sizes = [config.positive("intermediate_size")] * count
    sparse = 10 if count > 10 else 0
    sparsity = config.list_of("activation_sparsity_pattern", (int, float), count) or (
        [0.95] * sparse + [0.0] * (count - sparse)
    )
    arch = read_newer_gemma(reader, reader.full_attention_every(5))
    altup = AltUp(
        config.positive("altup_num_inputs"),
        config.integer("altup_active_idx"),
        config.positive("laurel_rank"),
        config.boolean("altup_correct_scale"),
    )
    mlps = [
        Mlp(size, reader.activation("hidden_activation"), sparsity=share)
        for size, share in zip(sizes or [], sparsity, strict=True)
    ]
    arch = arch.with_layers(lambda index, layer: replace(layer, mlp=mlps[index]), altup=altup)
    arch = with_global_rotary(arch, reader.rotary("full_attention"))
    return with_shared_caches(reader, arch)


def _config(file: GGUFConfig) -> Config:
    sizes = file.each_layer("feed_forward_length")
    config = file.common("Gemma3n", "gemma3n_text", (WINDOW_KEY,), intermediate_size=sizes)
    return {
        **config,
        **per_layer_inputs(file),
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": file.integer(WINDOW_KEY),
        "layer_types": file.layer_types(5),
        "num_kv_shared_layers": file.integer("attention.shared_kv_layers"),
        "rope_local_base_freq": file.theta("rope.freq_base_swa"),
        "final_logit_softcapping": file.number("final_logit_softcapping", 30.0),
        "activation_sparsity_pattern": _sparsity(file),
        "altup_num_inputs": file.integer("altup.num_inputs"),
        "altup_active_idx": file.integer("altup.active_idx"),
        "altup_correct_scale": True,
        "laurel_rank": file.shape("blk.0.laurel_l.weight")[0],
    }


def _sparsity(file: GGUFConfig) -> list[float]:
    """Files hold how many standard deviations above the mean a channel must be."""
    key = file.key("activation_sparsity_scale")
    cutoffs: Any = file.metadata.require(key, list)
    if len(cutoffs) != file.layers or not all(isinstance(each, float) for each in cutoffs):
        raise file.fail(f"{key} must be {file.layers} numbers, got {cutoffs!r:.80}")
    shares = [NormalDist().cdf(each) for each in cutoffs]
    if not all(0 <= share < 1 for share in shares):
        raise file.fail(f"{key} must be numbers below infinity, got {cutoffs!r:.80}")
    return shares


FAMILY = Family(
    (
        ModelType(
            "gemma3n_text",
            _read,
            {
                **NEWER_DEFAULTS,
                "num_key_value_heads": 2,
                "max_position_embeddings": 32768,
                "rope_theta": 1e6,
                "final_logit_softcapping": 30.0,
                "altup_num_inputs": 4,
                "altup_active_idx": 0,
                "altup_correct_scale": True,
                "laurel_rank": 64,
                "num_kv_shared_layers": 15,
            },
        ),
    ),
    (
        GGUFArchitecture(
            "gemma3n",
            _config,
            names={
                "altup.modality_router": "altup_router",
                "altup.router_norm": "altup_router_norm",
                "altup.prediction_coefs": "altup_predict_coef",
                "altup.correction_coefs": "altup_correct_coef",
                "altup.correct_output_scale": "altup_correct_scale",
                "laurel.linear_left": "laurel_l",
                "laurel.linear_right": "laurel_r",
                "laurel.post_laurel_norm": "laurel_post_norm",
            },
        ),
    ),
)
