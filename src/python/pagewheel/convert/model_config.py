"""Typed access to a config.json, with the defaults of each model type.

A config leaves out what equals its class' default, so those defaults are part of the format:
they are the ones of transformers' configuration classes. yoco has none there; its are llama's.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from .errors import ConversionError
from .rotary import RotaryParameters

_GEMMA = {"rms_norm_eps": 1e-6, "tie_word_embeddings": True, "head_dim": 256}

# By model type; what is not named here has no default or is read with one where it is used.
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "llama": {"rms_norm_eps": 1e-6, "max_position_embeddings": 2048},
    "yoco": {"rms_norm_eps": 1e-6, "max_position_embeddings": 2048},
    "mistral": {
        "rms_norm_eps": 1e-6,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
    "smollm3": {
        "rms_norm_eps": 1e-6,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
        "rope_theta": 2e6,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
    },
    "qwen2": {
        "rms_norm_eps": 1e-6,
        "num_key_value_heads": 32,
        "max_position_embeddings": 32768,
        "use_sliding_window": False,
        "sliding_window": 4096,
        "attention_bias": True,
    },
    "qwen3": {
        "rms_norm_eps": 1e-6,
        "num_key_value_heads": 32,
        "head_dim": 128,
        "max_position_embeddings": 32768,
        "use_sliding_window": False,
        "sliding_window": 4096,
    },
    "qwen3_moe": {
        "rms_norm_eps": 1e-6,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
        "use_sliding_window": False,
        "sliding_window": 4096,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
    },
    "mixtral": {
        "rms_norm_eps": 1e-5,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "rope_theta": 1e6,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "phi3": {
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 4096,
        "original_max_position_embeddings": 4096,
    },
    "granite": {"rms_norm_eps": 1e-6, "max_position_embeddings": 2048},
    "olmo2": {"rms_norm_eps": 1e-5, "max_position_embeddings": 2048},
    "gemma": {**_GEMMA, "num_key_value_heads": 16, "max_position_embeddings": 8192},
    "gemma2": {
        **_GEMMA,
        "num_key_value_heads": 4,
        "max_position_embeddings": 8192,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
    "gemma3_text": {
        **_GEMMA,
        "vocab_size": 262208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "max_position_embeddings": 131072,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "rope_theta": 1e6,
    },
    "gemma3n_text": {
        **_GEMMA,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32768,
        "sliding_window": 512,
        "rope_theta": 1e6,
        "final_logit_softcapping": 30.0,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size_per_layer_input": 256,
        "vocab_size_per_layer_input": 262144,
        "altup_num_inputs": 4,
        "altup_active_idx": 0,
        "altup_correct_scale": True,
        "laurel_rank": 64,
        "num_kv_shared_layers": 15,
    },
    "gemma4_text": {
        **_GEMMA,
        "num_key_value_heads": 4,
        "max_position_embeddings": 131072,
        "sliding_window": 512,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size_per_layer_input": 256,
        "vocab_size_per_layer_input": 262144,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            "full_attention": {
                "rope_type": "proportional",
                "partial_rotary_factor": 0.25,
                "rope_theta": 1e6,
            },
        },
    },
    "deepseek_v2": {
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 2048,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "moe_intermediate_size": 1407,
        "topk_method": "greedy",
    },
    "deepseek_v3": {
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "n_group": 8,
        "topk_group": 4,
        "first_k_dense_replace": 3,
        "routed_scaling_factor": 2.5,
    },
    "gpt_oss": {
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
}


# Far above any model's: sizes are i32 in the graphs, and what is made for each layer or channel of
# more would not end.
MAX_INTEGER = 2**31 - 1
MAX_LAYERS = 65_536
MAX_HEAD_SIZE = 65_536


class ModelConfig:
    """The values of a config.json; every error names `where` it is and the key."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.where = where
        self.model_type = str(values.get("model_type"))
        self.values = {**DEFAULTS.get(self.model_type, {}), **values}

    def fail(self, message: str) -> ConversionError:
        return ConversionError(f"{self.where}: {message}")

    def _typed(self, key: str, kinds: tuple[type, ...], names: str, default: Any) -> Any:
        value = self.values.get(key)
        if value is None:
            value = default
        if value is None:
            raise self.fail(f"{key!r} is missing")
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self.fail(f"{key!r} must be {names}, got {value!r:.80}")
        return value

    def integer(self, key: str, default: int | None = None, limit: int = MAX_INTEGER) -> int:
        value = int(self._typed(key, (int,), "an integer", default))
        if abs(value) > limit:
            raise self.fail(f"{key!r} must be at most {limit}, got {value!r:.80}")
        return value

    def positive(self, key: str, default: int | None = None, limit: int = MAX_INTEGER) -> int:
        value = self.integer(key, default, limit)
        if value <= 0:
            raise self.fail(f"{key!r} must be positive, got {value}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._typed(key, (int, float), "a number", default)
        if not abs(value) <= sys.float_info.max:
            raise self.fail(f"{key!r} must be finite, got {value!r:.80}")
        return float(value)

    def not_negative(self, key: str) -> float:
        value = self.number(key)
        if value < 0:
            raise self.fail(f"{key!r} must not be negative, got {value}")
        return value

    def boolean(self, key: str, default: bool = False) -> bool:
        return bool(self._typed(key, (bool,), "true or false", default))

    def list_of(self, key: str, kind: type | tuple[type, ...], length: int) -> list[Any] | None:
        """`length` values; None where the key is missing."""
        value = self.values.get(key)
        if value is None:
            return None
        if (
            not isinstance(value, list)
            or len(value) != length
            or not all(isinstance(each, kind) for each in value)
        ):
            raise self.fail(f"{key!r} must be {length} values of type {kind}, got {value!r:.80}")
        return value

    @property
    def layers(self) -> int:
        return self.positive("num_hidden_layers", limit=MAX_LAYERS)

    @property
    def heads(self) -> int:
        return self.positive("num_attention_heads")

    @property
    def head_size(self) -> int:
        default = self.positive("hidden_size") // self.heads
        return self.positive("head_dim", default, MAX_HEAD_SIZE)

    def layer_types(self, otherwise: list[str]) -> list[str]:
        """ "full_attention" or "sliding_attention" for each layer."""
        types = self.list_of("layer_types", str, self.layers) or otherwise
        for each in types:
            if each not in ("full_attention", "sliding_attention"):
                raise self.fail(
                    f"the layer type {each!r} is not supported; supported: full_attention, "
                    "sliding_attention"
                )
        return types

    def rotary_parameters(
        self, layer_type: str | None = None, served_length: int | None = None
    ) -> RotaryParameters | None:
        """`rope_parameters`, of one layer type where they are nested; None for no rotation.

        Before transformers 5 they were `rope_scaling`, `rope_theta` and
        `partial_rotary_factor`.
        """
        values = self.values.get("rope_parameters")
        if self.values.get("rope_scaling") is not None:
            values = self.values["rope_scaling"]
        if values is None:
            values = {}
        if not isinstance(values, dict):
            raise self.fail(f"'rope_parameters' must be an object, got {values!r:.80}")
        if layer_type is not None and layer_type in values:
            values = values[layer_type]
            if values is None:
                return None
        theta = values.get("rope_theta") or self.number("rope_theta", 10000.0)
        partial = values.get("partial_rotary_factor")
        if partial is None:
            partial = self.number("partial_rotary_factor", 1.0)
        for name, value in (("rope_theta", theta), ("partial_rotary_factor", partial)):
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or not 0 < value <= sys.float_info.max:
                raise self.fail(f"{name!r} must be a positive number, got {value!r:.80}")
        original = self.values.get("original_max_position_embeddings")
        return RotaryParameters(
            values,
            float(theta),
            self.head_size,
            float(partial),
            self.positive("max_position_embeddings"),
            None if original is None else self.positive("original_max_position_embeddings"),
            served_length,
        )
