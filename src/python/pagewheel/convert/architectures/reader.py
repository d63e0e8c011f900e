"""What the readers of all model types share: config.json's common names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ...errors import ConversionError
from ..decoder.architecture import Activation, Architecture, Attention, Experts, Layer, Mlp, Routing
from ..decoder.rotary import RotaryEmbedding, RotaryParameters, rotary_embedding, served_length

# Far above any model's. Sizes are i32 in the graphs. Larger numbers of layers or channels would
# ask for more than any machine has.
MAX_INTEGER = 2**31 - 1
MAX_LAYERS = 65_536
MAX_HEAD_SIZE = 65_536


class ModelConfig:
    """The values of a config.json; every error names `where` it is and the key."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.where = where
        self.model_type = str(values.get("model_type"))
        self.values = dict(values)

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
        """Gives `length` values; None where the key is missing."""
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

    def layer_types(
        self,
        otherwise: list[str],
        supported: Collection[str] = ("full_attention", "sliding_attention"),
        key: str = "layer_types",
    ) -> list[str]:
        """Gives one of `supported` for each layer, `otherwise` where the config has none."""
        types = self.list_of(key, str, self.layers) or otherwise
        for each in types:
            if each not in supported:
                raise self.fail(
                    f"the layer type {each!r} is not supported; supported: {', '.join(supported)}"
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


_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "gelu": Activation.GELU,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "gelu_new": Activation.GELU_TANH,
    "relu2": Activation.SQUARED_RELU,
}


class Reader:
    """What most model types have in common; each reader changes what is its own."""

    def __init__(self, config: ModelConfig, context_length: int | None) -> None:
        self.config = config
        self.context_length = context_length

    def activation(self, key: str = "hidden_act") -> Activation:
        name = self.config.values.get(key, "silu")
        if name not in _ACTIVATIONS:
            raise self.config.fail(
                f"{key} {name!r} is not supported; supported: {', '.join(_ACTIVATIONS)}"
            )
        return _ACTIVATIONS[name]

    def attention(self, **changes: Any) -> Attention:
        """`changes` override what else is said here."""
        config = self.config
        bias = config.boolean("attention_bias")
        common = Attention(
            heads=config.heads,
            kv_heads=config.positive("num_key_value_heads", config.heads),
            head_size=config.head_size,
            scale=config.head_size**-0.5,
            bias=bias,
            output_bias=bias,
        )
        return replace(common, **changes)

    def experts(
        self, count: str, routing: Routing, mlp: Mlp | None = None, **others: Any
    ) -> Experts:
        """`count` is the key of how many there are; `mlp` one of them, if it is not mlp()."""
        active = self.config.positive("num_experts_per_tok")
        return Experts(self.config.positive(count), active, mlp or self.mlp(), routing, **others)

    def small_mlp(self, count: int = 1) -> Mlp:
        """An expert, or what is as large as `count` of them."""
        return Mlp(count * self.config.positive("moe_intermediate_size"), self.activation())

    def mlp(self) -> Mlp:
        return Mlp(
            self.config.positive("intermediate_size"),
            self.activation(),
            self.config.boolean("mlp_bias"),
        )

    def windows(self, otherwise: list[str]) -> list[int]:
        """Gives each layer's window, 0 for none. `otherwise` are the types if none are given."""
        types = self.config.layer_types(otherwise)
        if self.config.values.get("sliding_window") is None:
            return [0] * len(types)
        window = self.config.positive("sliding_window")
        return [window if each == "sliding_attention" else 0 for each in types]

    def full_attention_every(self, count: int) -> list[str]:
        """Layer types: each `count`-th layer has no window, the others have one."""
        return [
            "sliding_attention" if (layer + 1) % count else "full_attention"
            for layer in range(self.config.layers)
        ]

    def same_everywhere(self, sliding: bool) -> list[str]:
        return ["sliding_attention" if sliding else "full_attention"] * self.config.layers

    def rotary(self, layer_type: str | None = None) -> RotaryEmbedding:
        parameters = self.config.rotary_parameters(layer_type, self.context_length)
        if parameters is None:
            raise self.config.fail(f"'rope_parameters' of {layer_type!r} are missing")
        return rotary_embedding(parameters)

    def with_dense_layers(
        self, arch: Architecture, is_dense: Callable[[int], bool]
    ) -> Architecture:
        """Layers of experts, but for those that have a plain MLP."""
        return arch.with_layers(
            lambda index, layer: replace(layer, mlp=self.mlp()) if is_dense(index) else layer
        )

    def architecture_with_windows(self) -> Architecture:
        """All layers have the config's window, where it has one."""
        return self.architecture(windows=self.windows(self.same_everywhere(True)))

    def architecture(
        self,
        attention: Attention | None = None,
        mlp: Mlp | Experts | None = None,
        windows: list[int] | None = None,
        **changes: Any,
    ) -> Architecture:
        """Makes layers alike but for their windows; `changes` override what else is said here."""
        attention = attention or self.attention()
        mlp = mlp or self.mlp()
        parameters = self.config.rotary_parameters(served_length=self.context_length)
        if parameters is not None:
            changes = {"context_length": served_length(parameters), **changes}
        if "rotary" not in changes:
            changes["rotary"] = (self.rotary(),)
        windows = windows or [0] * self.config.layers
        layers = (Layer(replace(attention, window=window), mlp) for window in windows)
        return self.of_layers(layers, **changes)

    def of_layers(self, layers: Iterable[Layer], **changes: Any) -> Architecture:
        """Takes layers of any kind; `changes` override what else is said here."""
        config = self.config
        values: dict[str, Any] = {
            "model_type": config.model_type,
            "hidden_size": config.positive("hidden_size"),
            "vocab_size": config.positive("vocab_size"),
            "context_length": config.positive("max_position_embeddings"),
            "layers": tuple(layers),
            "norm_eps": config.not_negative("rms_norm_eps"),
            "tied_embeddings": config.boolean("tie_word_embeddings"),
            **changes,
        }
        return Architecture(**values)
