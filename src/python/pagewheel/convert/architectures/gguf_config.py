"""A GGUF file's numbers under Hugging Face's names: what its architectures have in common.

llama.cpp keeps a model's numbers under its own names. Under Hugging Face's names, the reader of
the model type understands them. What an architecture adds is in its own file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...errors import ConversionError
from .reader import MAX_HEAD_SIZE, MAX_INTEGER


class Metadata:
    """The keys of the file at `path`; every error names the file and the key."""

    def __init__(self, values: Mapping[str, Any], path: Path) -> None:
        self.values = values
        self.path = path

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """The key's value, or `default` where the key is missing."""
        value = self.values.get(key)
        if value is None:
            return default
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            names = " or ".join(each.__name__ for each in kinds)
            raise ConversionError(f"{self.path}: {key} must be {names}, got {value!r:.80}")
        return value

    def require(self, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        value = self.get(key, kind, default)
        if value is None:
            raise ConversionError(f"{self.path}: the key {key} is missing")
        return value


Config = dict[str, Any]

WINDOW_KEY = "attention.sliding_window"
# Multipliers that only some architectures know.
SCALE_KEYS = ("attention.scale", "logit_scale", "embedding_scale", "residual_scale")
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
    "expert_gating_func": (0, 1),  # softmax
    WINDOW_KEY: (0,),
    "rope.scaling.yarn_log_multiplier": (0.0,),
    **dict.fromkeys(SCALE_KEYS, (0.0, 1.0)),
}


class GGUFConfig:
    """Numbers of one architecture, `name` being the prefix of their keys.

    `shapes` are those of all tensors; `read_vector` gives the values of one with one dimension.
    """

    def __init__(
        self,
        metadata: Metadata,
        shapes: Mapping[str, tuple[int, ...]],
        read_vector: Callable[[str], list[float]],
    ) -> None:
        self.metadata = metadata
        self.shapes = shapes
        self._read_vector = read_vector
        self.name = metadata.require("general.architecture", str)

    def key(self, name: str) -> str:
        return f"{self.name}.{name}"

    def fail(self, message: str) -> ConversionError:
        return ConversionError(f"{self.metadata.path}: {message}")

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.metadata.get(self.key(name), int, default)
        if value is None:
            raise self.fail(f"the key {self.key(name)} is missing")
        if abs(value) > MAX_INTEGER:
            raise self.fail(f"{self.key(name)} must be at most {MAX_INTEGER}, got {value}")
        return int(value)

    def number(self, name: str, default: float) -> float:
        """Gives a finite number, `default` where the key is missing."""
        value = float(self.metadata.get(self.key(name), (float, int), default))
        if not abs(value) < math.inf:
            raise self.fail(f"{self.key(name)} must be finite, got {value}")
        return value

    def has(self, name: str) -> bool:
        return self.key(name) in self.metadata.values

    def refuse(self, names: Mapping[str, tuple[Any, ...]]) -> None:
        for name, neutral in names.items():
            value = self.metadata.values.get(self.key(name))
            if value is not None and value not in neutral:
                raise self.fail(f"{self.key(name)} = {value!r:.80} is not supported yet")

    @property
    def layers(self) -> int:
        """Checked here, since much is made for each layer: a damaged file may claim any number."""
        # The last blocks of some files guess further tokens, and are left out.
        layers = self.integer("block_count") - self.integer("nextn_predict_layers", 0)
        if not 0 < layers <= len(self.shapes):
            raise self.fail(
                f"{self.key('block_count')} = {layers}, but there are only "
                f"{len(self.shapes)} tensors"
            )
        return layers

    def common(
        self,
        class_name: str,
        model_type: str,
        known: tuple[str, ...] = (),
        *,
        intermediate_size: int | list[int] | None = None,
        kv_heads: int | None = None,
        head_size: int | None = None,
    ) -> Config:
        """Adds to outside_layers() what every architecture with attention has.

        `known` are keys that this one reads itself. Numbers that are given are not read here.
        """
        self.refuse({name: _REFUSED_KEYS[name] for name in _REFUSED_KEYS if name not in known})
        layers, hidden = self.layers, self.integer("embedding_length")
        heads = self.uniform("attention.head_count")
        if heads <= 0 or hidden <= 0:
            raise self.fail(f"{heads} heads and hidden size {hidden} must be positive")
        if intermediate_size is None:
            intermediate_size = self.uniform("feed_forward_length", 0)
        if kv_heads is None:
            kv_heads = self.uniform("attention.head_count_kv", heads)
        if head_size is None:
            head_size = self._head_size(hidden // heads)
        return {
            **self.outside_layers(class_name, model_type),
            "intermediate_size": intermediate_size,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "hidden_act": "silu",
            "rms_norm_eps": self.metadata.require(
                self.key("attention.layer_norm_rms_epsilon"), float
            ),
            "attention_bias": False,
            "mlp_bias": False,
            "sliding_window": None,
            "head_dim": head_size,
            "rope_theta": self.theta("rope.freq_base"),
            "partial_rotary_factor": self.partial_rotary_factor("rope.dimension_count", head_size),
            "rope_scaling": self._rope_scaling(),
        }

    def outside_layers(self, class_name: str, model_type: str) -> Config:
        """Gives what no layer has; `class_name` is transformers', without ForCausalLM."""
        return {
            "architectures": [f"{class_name}ForCausalLM"],
            "model_type": model_type,
            "hidden_size": self.integer("embedding_length"),
            "vocab_size": self.integer("vocab_size", self.shape("token_embd.weight")[0]),
            "max_position_embeddings": self.integer("context_length"),
            "tie_word_embeddings": "output.weight" not in self.shapes,
        }

    def shape(self, name: str) -> tuple[int, ...]:
        if name not in self.shapes:
            raise self.fail(f"the tensor {name!r} is missing")
        return self.shapes[name]

    def each_layer(self, name: str, default: int | None = None) -> list[int]:
        """Reads an integer that some files give once and others once per layer."""
        value = self.metadata.require(self.key(name), (int, list), default)
        values = value if isinstance(value, list) else [value] * self.layers
        if len(values) != self.layers or not all(type(each) is int for each in values):
            raise self.fail(f"{self.key(name)} must be {self.layers} integers, got {value!r:.80}")
        return values

    def uniform(self, name: str, default: int | None = None) -> int:
        """Reads an integer as each_layer() does, which must be the same in all layers."""
        values = self.each_layer(name, default)
        if len(set(values)) != 1:
            key = self.key(name)
            raise self.fail(f"{key} differs between layers, not supported: {values!r:.80}")
        return values[0]

    def layer_types(self, every: int) -> list[str]:
        """Reads a key that lists the layers with a window, or says that each n-th has none.

        `every` is that n where the key is missing.
        """
        name = "attention.sliding_window_pattern"
        pattern = self.metadata.get(self.key(name), (int, list), every)
        if isinstance(pattern, int):
            if pattern <= 0:
                raise self.fail(f"{self.key(name)} must be positive, got {pattern}")
            pattern = [(layer + 1) % pattern != 0 for layer in range(self.layers)]
        if len(pattern) != self.layers or not all(isinstance(each, bool) for each in pattern):
            raise self.fail(f"{self.key(name)} must say {self.layers} times true or false")
        return ["sliding_attention" if each else "full_attention" for each in pattern]

    def _head_size(self, default: int) -> int:
        head_size = self.integer("attention.key_length", default)
        value_size = self.integer("attention.value_length", head_size)
        if value_size != head_size:
            raise self.fail(
                f"value heads of {value_size} beside key heads of {head_size} are not supported"
            )
        return head_size

    def theta(self, name: str) -> float:
        theta = self.number(name, 10000.0)
        if theta <= 0:
            raise self.fail(f"{self.key(name)} must be positive, got {theta}")
        return theta

    def partial_rotary_factor(self, name: str, head_size: int) -> float:
        """The rotary part of a head. The key `name` says how many channels that is."""
        dims = self.integer(name, head_size)
        if not 0 < dims <= min(head_size, MAX_HEAD_SIZE) or dims % 2:
            raise self.fail(f"{self.key(name)} = {dims} does not fit heads of {head_size}")
        return self.part(dims, head_size)

    @staticmethod
    def part(dims: int, head_size: int) -> float:
        """dims / head_size so that it gives `dims` to those who multiply and round down."""
        partial = dims / head_size
        return partial if int(head_size * partial) == dims else math.nextafter(partial, 2)

    def _rope_scaling(self) -> Config | None:
        kind = self.metadata.get(self.key("rope.scaling.type"), str, "none")
        factor = self.number("rope.scaling.factor", 0.0)
        old_factor = self.number("rope.scale_linear", 0.0)
        if old_factor and kind == "none":
            kind, factor = "linear", old_factor
        if "rope_factors_long.weight" in self.shapes:
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
        return {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": self.integer(
                "rope.scaling.original_context_length"
            ),
            "beta_fast": self.number("rope.scaling.yarn_beta_fast", 32.0),
            "beta_slow": self.number("rope.scaling.yarn_beta_slow", 1.0),
            **self._attention_factor(),
        }

    def _longrope(self) -> Config:
        scaling: Config = {"rope_type": "longrope"}
        for name in ("long", "short"):
            scaling[f"{name}_factor"] = self.vector(f"rope_factors_{name}.weight")
        if self.has("rope.scaling.original_context_length"):
            original = self.integer("rope.scaling.original_context_length")
            scaling["original_max_position_embeddings"] = original
        return scaling | self._attention_factor()

    def _attention_factor(self) -> Config:
        name = "rope.scaling.attn_factor"
        return {"attention_factor": self.number(name, 1.0)} if self.has(name) else {}

    def vector(self, name: str) -> list[float]:
        """A tensor of one dimension with positive numbers, at most as many as a head is long."""
        shape = self.shapes.get(name, ())
        if len(shape) != 1:
            raise self.fail(f"the vector {name!r} is missing or no vector")
        if shape[0] > MAX_HEAD_SIZE:
            raise self.fail(f"tensor {name!r} must be at most {MAX_HEAD_SIZE} long, got {shape[0]}")
        values = self._read_vector(name)
        if not all(0 < each < math.inf for each in values):
            raise self.fail(f"tensor {name!r} must hold positive numbers")
        return values

    def experts(
        self, count: str, inner: str | None = None, active: str = "num_experts_per_tok"
    ) -> Config:
        """Tells by these names how many there are, how wide and how many compute a token."""
        width = {} if inner is None else {inner: self.integer("expert_feed_forward_length")}
        return {
            count: self.integer("expert_count"),
            active: self.integer("expert_used_count"),
            **width,
        }
