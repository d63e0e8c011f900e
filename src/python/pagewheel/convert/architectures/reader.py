"""What the readers of all model types share: config.json's common names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..decoder.architecture import Activation, Architecture, Attention, Experts, Layer, Mlp
from ..decoder.rotary import RotaryEmbedding, rotary_embedding, served_length
from .model_config import ModelConfig

_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "gelu": Activation.GELU,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "gelu_new": Activation.GELU_TANH,
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

    def attention(self) -> Attention:
        config = self.config
        bias = config.boolean("attention_bias")
        return Attention(
            heads=config.heads,
            kv_heads=config.positive("num_key_value_heads", config.heads),
            head_size=config.head_size,
            scale=config.head_size**-0.5,
            bias=bias,
            output_bias=bias,
        )

    def mlp(self) -> Mlp:
        return Mlp(
            self.config.positive("intermediate_size"),
            self.activation(),
            self.config.boolean("mlp_bias"),
        )

    def windows(self, otherwise: list[str]) -> list[int]:
        """Each layer's window, 0 for none. `otherwise` are the layer types if none are given."""
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
        """All layers alike but for their windows; `changes` override what else is said here."""
        config = self.config
        attention = attention or self.attention()
        mlp = mlp or self.mlp()
        parameters = config.rotary_parameters(served_length=self.context_length)
        length = config.positive("max_position_embeddings")
        values: dict[str, Any] = {
            "model_type": config.model_type,
            "hidden_size": config.positive("hidden_size"),
            "vocab_size": config.positive("vocab_size"),
            "context_length": length if parameters is None else served_length(parameters),
            "layers": tuple(
                Layer(replace(attention, window=window), mlp)
                for window in windows or [0] * config.layers
            ),
            "norm_eps": config.not_negative("rms_norm_eps"),
            "tied_embeddings": config.boolean("tie_word_embeddings"),
            **changes,
        }
        if "rotary" not in values:
            values["rotary"] = (self.rotary(),)
        return Architecture(**values)
