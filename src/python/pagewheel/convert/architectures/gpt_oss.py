"""gpt-oss: attention sinks and clamped experts with biases."""

from __future__ import annotations

from ..decoder.architecture import Architecture, Mlp, Routing
from .entry import Family, GGUFArchitecture, ModelType, Part, Recipe, experts_of, tensor_name
from .gguf_config import WINDOW_KEY, Config, GGUFConfig
from .reader import Reader


def _read(reader: Reader) -> Architecture:
    config = reader.config
    experts = reader.experts(
        "num_local_experts",
        Routing.SOFTMAX_OF_BEST,
        Mlp(config.positive("intermediate_size"), bias=True),
        router_bias=True,
        clamp=config.number("swiglu_limit"),
        alpha=config.number("swiglu_alpha"),
    )
    windows = reader.windows(reader.full_attention_every(2))
    return reader.architecture(reader.attention(sinks=True), experts, windows)


def _config(file: GGUFConfig) -> Config:
    config = file.common("GptOss", "gpt_oss", (WINDOW_KEY, "expert_count", "expert_gating_func"))
    inner = file.integer("expert_feed_forward_length", config["intermediate_size"])
    if config["rope_scaling"] is not None:
        config["rope_scaling"]["truncate"] = False
    return {
        **config,
        "intermediate_size": inner,
        "attention_bias": True,
        "sliding_window": file.integer(WINDOW_KEY),
        **file.experts("num_local_experts"),
        "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0,
    }


def _recipe(arch: Architecture, name: str) -> Recipe | None:
    before, found, after = name.partition(".mlp.experts.")
    if not found:
        moved = name.replace(".mlp.gate", ".mlp.router")
        return None if moved == name else (Part(tensor_name(moved)),)
    kind, bias = after.removesuffix(".bias"), after.endswith(".bias")
    suffix = "_bias" if bias else ""
    if kind == "down_proj":
        return (Part(f"{before}.mlp.experts.down_proj{suffix}", transposed=not bias),)
    length = 2 * experts_of(arch, name).mlp.intermediate_size
    # The rows of gate and up are interleaved.
    rows = slice(0 if kind == "gate_proj" else 1, None, 2)
    tensor = f"{before}.mlp.experts.gate_up_proj{suffix}"
    return (Part(tensor, rows, length, -1 if bias else -2, transposed=not bias),)


FAMILY = Family(
    (
        ModelType(
            "gpt_oss",
            _read,
            {
                "rms_norm_eps": 1e-5,
                "num_key_value_heads": 8,
                "head_dim": 64,
                "max_position_embeddings": 131072,
                "rope_theta": 150000.0,
                "attention_bias": True,
                "sliding_window": 128,
                "num_local_experts": 128,
                "num_experts_per_tok": 4,
                "swiglu_alpha": 1.702,
                "swiglu_limit": 7.0,
                "rope_parameters": {
                    "rope_type": "yarn",
                    "factor": 32.0,
                    "beta_fast": 32.0,
                    "beta_slow": 1.0,
                    "truncate": False,
                    "original_max_position_embeddings": 4096,
                },
            },
            _recipe,
        ),
    ),
    (
        GGUFArchitecture(
            "gpt-oss", _config, names={"post_attention_layernorm": "post_attention_norm"}
        ),
    ),
)
