"""A GGUF file's metadata as the config.json it was made from.

llama.cpp keeps a model's numbers under its own names; given back Hugging Face's, they are read
by the one reader that knows architectures. Only numbers are translated here: names of weights
are `gguf_source`'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .errors import ConversionError
from .gguf_blocks import decode
from .gguf_file import GGUFTensor
from .gguf_metadata import Metadata
from .weights import dense_f32

Config = dict[str, Any]

# Far above any model's; keeps a damaged file from asking for that many rotary frequencies.
_MAX_HEAD_SIZE = 65_536

# Those that only some architectures know.
_SCALE_KEYS = ("attention.scale", "logit_scale", "embedding_scale", "residual_scale")
# Keys that change what the model computes, refused where an architecture does not know them.
# A value in the tuple means "as if the key was not there".
_REFUSED_KEYS: Mapping[str, tuple[Any, ...]] = {
    "attention.max_alibi_bias": (0.0,),
    "attention.clamp_kqv": (0.0,),
    "use_parallel_residual": (False,),
    "leading_dense_block_count": (0,),
    "expert_shared_count": (0,),
    "expert_group_count": (0, 1),
    "expert_weights_scale": (0.0, 1.0),
    "expert_count": (0,),
    "attention.sliding_window": (0,),
    **dict.fromkeys(_SCALE_KEYS, (0.0, 1.0)),
}


class GGUFConfig:
    """Numbers of one architecture, `name` being the prefix of their keys."""

    def __init__(self, metadata: Metadata, tensors: Mapping[str, GGUFTensor]) -> None:
        self.metadata = metadata
        self.tensors = tensors
        self.name = metadata.require("general.architecture", str)

    def key(self, name: str) -> str:
        return f"{self.name}.{name}"

    def fail(self, message: str) -> ConversionError:
        return ConversionError(f"{self.metadata.path}: {message}")

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.metadata.get(self.key(name), int, default)
        if value is None:
            raise self.fail(f"the key {self.key(name)} is missing")
        return int(value)

    def number(self, name: str, default: float) -> float:
        return self.metadata.number(self.key(name), default)

    def has(self, name: str) -> bool:
        return self.key(name) in self.metadata.values

    def refuse(self, names: Mapping[str, tuple[Any, ...]]) -> None:
        for name, neutral in names.items():
            value = self.metadata.values.get(self.key(name))
            if value is not None and value not in neutral:
                raise self.fail(f"{self.key(name)} = {value!r:.80} is not supported yet")

    def common(self, model_type: str, known: tuple[str, ...] = ()) -> Config:
        """What every architecture has. `known` are keys that this one reads itself."""
        self.refuse({name: _REFUSED_KEYS[name] for name in _REFUSED_KEYS if name not in known})
        layers, hidden = self.integer("block_count"), self.integer("embedding_length")
        if layers > len(self.tensors):  # before anything is made for each layer
            raise self.fail(
                f"{self.key('block_count')} = {layers}, but there are only "
                f"{len(self.tensors)} tensors"
            )
        heads = self.metadata.uniform(self.key("attention.head_count"), layers)
        if heads <= 0 or hidden <= 0:
            raise self.fail(f"{heads} heads and hidden size {hidden} must be positive")
        embedding = self.tensors.get("token_embd.weight")
        if embedding is None:
            raise self.fail("the tensor 'token_embd.weight' is missing")
        return {
            "model_type": model_type,
            "hidden_size": hidden,
            "intermediate_size": self.metadata.uniform(self.key("feed_forward_length"), layers, 0),
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": self.metadata.uniform(
                self.key("attention.head_count_kv"), layers, heads
            ),
            "hidden_act": "silu",
            "rms_norm_eps": self.metadata.require(
                self.key("attention.layer_norm_rms_epsilon"), float
            ),
            "max_position_embeddings": self.integer("context_length"),
            "vocab_size": self.integer("vocab_size", embedding.shape[0]),
            "tie_word_embeddings": "output.weight" not in self.tensors,
            "attention_bias": False,
            "mlp_bias": False,
            "sliding_window": None,
            **self._rotary(hidden // heads),
        }

    def _rotary(self, default_head_size: int) -> Config:
        head_size = self.integer("attention.key_length", default_head_size)
        value_size = self.integer("attention.value_length", head_size)
        if value_size != head_size:
            raise self.fail(
                f"value heads of {value_size} beside key heads of {head_size} are not supported"
            )
        dims = self.integer("rope.dimension_count", head_size)
        theta = self.number("rope.freq_base", 10000.0)
        if not 0 < dims <= min(head_size, _MAX_HEAD_SIZE) or dims % 2 or theta <= 0:
            raise self.fail(
                f"{self.key('rope.dimension_count')} = {dims} and {self.key('rope.freq_base')} = "
                f"{theta} do not fit heads of {head_size}"
            )
        partial = dims / head_size
        if int(head_size * partial) != dims:  # readers of config.json multiply and round down
            partial = math.nextafter(partial, 2)
        return {
            "head_dim": head_size,
            "rope_theta": theta,
            "partial_rotary_factor": partial,
            "rope_scaling": self._rope_scaling(),
        }

    def _rope_scaling(self) -> Config | None:
        kind = self.metadata.get(self.key("rope.scaling.type"), str, "none")
        factor = self.number("rope.scaling.factor", 0.0)
        old_factor = self.number("rope.scale_linear", 0.0)
        if old_factor and kind == "none":
            kind, factor = "linear", old_factor
        if "rope_factors_long.weight" in self.tensors:
            return self._longrope()
        if kind == "none" or (kind == "linear" and factor in (0.0, 1.0)):
            return None
        if kind == "linear":
            return {"rope_type": "linear", "factor": factor}
        if kind != "yarn":
            raise self.fail(
                f"{self.key('rope.scaling.type')} = {kind!r} is not supported; supported: none, "
                "linear, yarn, longrope with its factors"
            )
        scaling = {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": self.integer(
                "rope.scaling.original_context_length"
            ),
            "beta_fast": self.number("rope.scaling.yarn_beta_fast", 32.0),
            "beta_slow": self.number("rope.scaling.yarn_beta_slow", 1.0),
        }
        if self.has("rope.scaling.attn_factor"):
            scaling["attention_factor"] = self.number("rope.scaling.attn_factor", 1.0)
        return scaling

    def _longrope(self) -> Config:
        scaling: Config = {"rope_type": "longrope"}
        for name in ("long", "short"):
            scaling[f"{name}_factor"] = self.vector(f"rope_factors_{name}.weight").tolist()
        if self.has("rope.scaling.original_context_length"):
            original = self.integer("rope.scaling.original_context_length")
            scaling["original_max_position_embeddings"] = original
        if self.has("rope.scaling.attn_factor"):
            scaling["attention_factor"] = self.number("rope.scaling.attn_factor", 1.0)
        return scaling

    def vector(self, name: str) -> np.ndarray[Any, np.dtype[np.float32]]:
        """A tensor of one dimension with positive numbers."""
        tensor = self.tensors.get(name)
        if tensor is None or len(tensor.shape) != 1:
            raise self.fail(f"the vector {name!r} is missing or no vector")
        values = dense_f32(decode(tensor.name, tensor.type, tensor.shape, tensor.data))
        if not (np.isfinite(values) & (values > 0)).all():
            raise self.fail(f"tensor {name!r} must hold positive numbers")
        return values

    def experts(self) -> tuple[int, int]:
        """How many there are and how many compute a token."""
        return self.integer("expert_count"), self.integer("expert_used_count")


def _llama(file: GGUFConfig) -> Config:
    if not file.integer("expert_count", 0):
        return {"architectures": ["LlamaForCausalLM"], **file.common("llama")}
    count, active = file.experts()
    return {
        "architectures": ["MixtralForCausalLM"],
        **file.common("mixtral", ("expert_count",)),
        "num_local_experts": count,
        "num_experts_per_tok": active,
    }


def _qwen2(file: GGUFConfig) -> Config:
    return {
        "architectures": ["Qwen2ForCausalLM"],
        **file.common("qwen2"),
        "attention_bias": True,
    }


def _qwen3(file: GGUFConfig) -> Config:
    return {"architectures": ["Qwen3ForCausalLM"], **file.common("qwen3")}


def _qwen3moe(file: GGUFConfig) -> Config:
    count, active = file.experts()
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        **file.common("qwen3_moe", ("expert_count",)),
        "num_experts": count,
        "num_experts_per_tok": active,
        "moe_intermediate_size": file.integer("expert_feed_forward_length"),
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def _smollm3(file: GGUFConfig) -> Config:
    # llama.cpp has no key for it: every fourth layer turns nothing.
    return {
        "architectures": ["SmolLM3ForCausalLM"],
        **file.common("smollm3"),
        "no_rope_layer_interval": 4,
        "use_sliding_window": False,
    }


def _phi3(file: GGUFConfig) -> Config:
    config = file.common("phi3", ("attention.sliding_window",))
    window = file.integer("attention.sliding_window", 0)
    original = file.integer(
        "rope.scaling.original_context_length", config["max_position_embeddings"]
    )
    return {
        "architectures": ["Phi3ForCausalLM"],
        **config,
        "sliding_window": window or None,
        "original_max_position_embeddings": original,
    }


def _granite(file: GGUFConfig) -> Config:
    config = file.common("granite", _SCALE_KEYS)
    return {
        "architectures": ["GraniteForCausalLM"],
        **config,
        "attention_multiplier": file.number("attention.scale", config["head_dim"] ** -0.5),
        "embedding_multiplier": file.number("embedding_scale", 1.0),
        "residual_multiplier": file.number("residual_scale", 1.0),
        "logits_scaling": file.number("logit_scale", 1.0),
    }


def _olmo2(file: GGUFConfig) -> Config:
    return {"architectures": ["Olmo2ForCausalLM"], **file.common("olmo2")}


def _gemma(file: GGUFConfig) -> Config:
    return {
        "architectures": ["GemmaForCausalLM"],
        **file.common("gemma"),
        "hidden_activation": "gelu_pytorch_tanh",
    }


def _query_scalar(config: Config, layers_of_27b: int) -> float:
    """llama.cpp has no key for it; like it, go by the one size where it is not the head's."""
    if config["num_hidden_layers"] == layers_of_27b:
        return float(config["hidden_size"] // config["num_attention_heads"])
    return float(config["head_dim"])


def _gemma2(file: GGUFConfig) -> Config:
    config = file.common("gemma2", ("attention.sliding_window",))
    return {
        "architectures": ["Gemma2ForCausalLM"],
        **config,
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": file.integer("attention.sliding_window", 4096),
        "query_pre_attn_scalar": _query_scalar(config, 46),
        "attn_logit_softcapping": file.number("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": file.number("final_logit_softcapping", 30.0),
    }


def _gemma3(file: GGUFConfig) -> Config:
    config = file.common("gemma3", ("attention.sliding_window",))
    return {
        "architectures": ["Gemma3ForCausalLM"],
        **config,
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": file.integer("attention.sliding_window"),
        "sliding_window_pattern": file.integer("attention.sliding_window_pattern", 6),
        "rope_local_base_freq": file.number("rope.freq_base_swa", 10000.0),
        "query_pre_attn_scalar": _query_scalar(config, 62),
        "attn_logit_softcapping": None,
        "final_logit_softcapping": file.number("final_logit_softcapping", 0.0) or None,
    }


def _gpt_oss(file: GGUFConfig) -> Config:
    count, active = file.experts()
    config = file.common("gpt_oss", ("attention.sliding_window", "expert_count"))
    inner = file.integer("expert_feed_forward_length", config["intermediate_size"])
    if config["rope_scaling"] is not None:
        config["rope_scaling"]["truncate"] = False
    return {
        "architectures": ["GptOssForCausalLM"],
        **config,
        "intermediate_size": inner,
        "attention_bias": True,
        "sliding_window": file.integer("attention.sliding_window"),
        "num_local_experts": count,
        "num_experts_per_tok": active,
        "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0,
    }


# `general.architecture` -> config.json. Mistral's and Mixtral's files call themselves llama.
_READERS: Mapping[str, Callable[[GGUFConfig], Config]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3moe": _qwen3moe,
    "smollm3": _smollm3,
    "phi3": _phi3,
    "granite": _granite,
    "olmo2": _olmo2,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gpt-oss": _gpt_oss,
}
SUPPORTED_ARCHITECTURES = tuple(_READERS)


def read_config(metadata: Metadata, tensors: Mapping[str, GGUFTensor]) -> Config:
    """config.json's values. Raises ConversionError, naming the file and the key."""
    file = GGUFConfig(metadata, tensors)
    if file.name not in _READERS:
        raise file.fail(
            f"the architecture {file.name!r} is not supported; "
            f"supported: {', '.join(SUPPORTED_ARCHITECTURES)}"
        )
    return _READERS[file.name](file)
