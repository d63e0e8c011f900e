"""config.json -> Architecture: for each model type, which names mean which numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .architecture import (
    Activation,
    Architecture,
    Attention,
    Experts,
    Layer,
    Mlp,
    NormPlacement,
    QueryKeyNorm,
    Routing,
)
from .errors import ConversionError
from .model_config import ModelConfig
from .rotary import RotaryEmbedding, rotary_embedding, served_length

_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "gelu": Activation.GELU,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "gelu_new": Activation.GELU_TANH,
}


def read_architecture(
    values: Mapping[str, Any], where: str, *, context_length: int | None = None
) -> Architecture:
    """The architecture a config.json describes; `where` names the file in errors.

    `context_length` asks for so many positions of a model whose rotary frequencies depend on
    it (longrope). Raises ConversionError for a model type or a value that is not supported.
    """
    config = ModelConfig(values, where)
    if config.model_type not in _READERS:
        raise config.fail(
            f"the model type {config.model_type!r} is not supported; "
            f"supported: {', '.join(sorted(_READERS))}"
        )
    try:
        return _READERS[config.model_type](_Reader(config, context_length))
    except ConversionError as error:
        if str(error).startswith(where):
            raise
        raise config.fail(str(error)) from None


class _Reader:
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

    def same_everywhere(self, sliding: bool) -> list[str]:
        return ["sliding_attention" if sliding else "full_attention"] * self.config.layers

    def rotary(self, layer_type: str | None = None) -> RotaryEmbedding:
        parameters = self.config.rotary_parameters(layer_type, self.context_length)
        if parameters is None:
            raise self.config.fail(f"'rope_parameters' of {layer_type!r} are missing")
        return rotary_embedding(parameters)

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
            "norm_eps": config.number("rms_norm_eps"),
            "tied_embeddings": config.boolean("tie_word_embeddings"),
            **changes,
        }
        if "rotary" not in values:
            values["rotary"] = (self.rotary(),)
        return Architecture(**values)


def _llama(reader: _Reader) -> Architecture:
    return reader.architecture()


def _mistral(reader: _Reader) -> Architecture:
    return reader.architecture(windows=reader.windows(reader.same_everywhere(True)))


def _smollm3(reader: _Reader) -> Architecture:
    config = reader.config
    layers = config.layers
    interval = config.positive("no_rope_layer_interval", 4)
    rotated = config.list_of("no_rope_layers", int, layers) or [
        int((layer + 1) % interval != 0) for layer in range(layers)
    ]
    windows = [0] * layers
    if config.boolean("use_sliding_window"):
        windows = reader.windows(
            ["full_attention" if each else "sliding_attention" for each in rotated]
        )
    arch = reader.architecture(windows=windows)
    changed = tuple(
        layer if turns else replace(layer, attention=replace(layer.attention, rotary=None))
        for layer, turns in zip(arch.layers, rotated, strict=True)
    )
    return replace(arch, layers=changed)


def _qwen_windows(reader: _Reader) -> list[int]:
    config = reader.config
    if not config.boolean("use_sliding_window"):
        return [0] * config.layers
    first = config.integer("max_window_layers", 28)
    types = ["full_attention"] * min(first, config.layers)
    types += ["sliding_attention"] * (config.layers - len(types))
    return reader.windows(types)


def _qwen2(reader: _Reader) -> Architecture:
    attention = replace(reader.attention(), bias=True, output_bias=False)
    return reader.architecture(attention, windows=_qwen_windows(reader))


def _qwen3(reader: _Reader) -> Architecture:
    attention = replace(reader.attention(), query_key_norm=QueryKeyNorm.HEAD)
    return reader.architecture(attention, windows=_qwen_windows(reader))


def _qwen3_moe(reader: _Reader) -> Architecture:
    config = reader.config
    experts = Experts(
        # transformers 5 writes another name than its predecessors.
        count=config.positive("num_local_experts", config.positive("num_experts")),
        active=config.positive("num_experts_per_tok"),
        mlp=Mlp(config.positive("moe_intermediate_size"), reader.activation()),
        routing=Routing.SOFTMAX,
        normalise=config.boolean("norm_topk_prob"),
    )
    attention = replace(reader.attention(), query_key_norm=QueryKeyNorm.HEAD)
    windows = reader.windows(reader.same_everywhere(config.boolean("use_sliding_window")))
    arch = reader.architecture(attention, experts, windows)
    step = config.positive("decoder_sparse_step", 1)
    dense = config.values.get("mlp_only_layers") or []
    layers = tuple(
        replace(layer, mlp=reader.mlp()) if index in dense or (index + 1) % step else layer
        for index, layer in enumerate(arch.layers)
    )
    return replace(arch, layers=layers)


def _mixtral(reader: _Reader) -> Architecture:
    config = reader.config
    experts = Experts(
        count=config.positive("num_local_experts"),
        active=config.positive("num_experts_per_tok"),
        mlp=reader.mlp(),
        # All experts' softmax, the best renormalised: the softmax of the best.
        routing=Routing.SOFTMAX_OF_BEST,
    )
    return reader.architecture(mlp=experts, windows=reader.windows(reader.same_everywhere(True)))


def _gpt_oss(reader: _Reader) -> Architecture:
    config = reader.config
    experts = Experts(
        count=config.positive("num_local_experts"),
        active=config.positive("num_experts_per_tok"),
        mlp=Mlp(config.positive("intermediate_size"), bias=True),
        routing=Routing.SOFTMAX_OF_BEST,
        router_bias=True,
        clamp=config.number("swiglu_limit"),
        alpha=config.number("swiglu_alpha"),
    )
    types = ["full_attention" if i % 2 else "sliding_attention" for i in range(config.layers)]
    attention = replace(reader.attention(), sinks=True)
    return reader.architecture(attention, experts, reader.windows(types))


def _phi3(reader: _Reader) -> Architecture:
    return reader.architecture(windows=reader.windows(reader.same_everywhere(True)))


def _granite(reader: _Reader) -> Architecture:
    config = reader.config
    return reader.architecture(
        replace(reader.attention(), scale=config.number("attention_multiplier", 1.0)),
        embedding_scale=config.number("embedding_multiplier", 1.0),
        residual_scale=config.number("residual_multiplier", 1.0),
        logits_scale=1.0 / config.number("logits_scaling", 1.0),
    )


def _olmo2(reader: _Reader) -> Architecture:
    attention = replace(reader.attention(), query_key_norm=QueryKeyNorm.WHOLE)
    return reader.architecture(attention, norms=NormPlacement.POST)


def _gemma_mlp(reader: _Reader, key: str) -> Mlp:
    # Every Gemma was trained with tanh, also where an old config says "gelu".
    name = reader.config.values.get(key, "gelu_pytorch_tanh")
    activation = Activation.GELU_TANH if name == "gelu" else None
    if activation is None:
        reader.config.values.setdefault(key, name)
        activation = reader.activation(key)
    return Mlp(reader.config.positive("intermediate_size"), activation)


def _gemma(reader: _Reader) -> Architecture:
    return reader.architecture(
        mlp=_gemma_mlp(reader, "hidden_activation"),
        norm_offset=1.0,
        embedding_scale=reader.config.positive("hidden_size") ** 0.5,
    )


def _gemma2(reader: _Reader) -> Architecture:
    config = reader.config
    attention = replace(
        reader.attention(),
        scale=config.number("query_pre_attn_scalar") ** -0.5,
        soft_cap=config.number("attn_logit_softcapping", 0.0),
    )
    types = ["full_attention" if i % 2 else "sliding_attention" for i in range(config.layers)]
    return reader.architecture(
        attention,
        _gemma_mlp(reader, "hidden_activation"),
        reader.windows(types),
        norms=NormPlacement.SANDWICH,
        norm_offset=1.0,
        embedding_scale=config.positive("hidden_size") ** 0.5,
        logits_soft_cap=config.number("final_logit_softcapping", 0.0),
    )


def _with_local_rotation(arch: Architecture) -> Architecture:
    """Layers with a window use the second rotary embedding."""
    layers = tuple(
        replace(layer, attention=replace(layer.attention, rotary=1))
        if layer.attention.window
        else layer
        for layer in arch.layers
    )
    return replace(arch, layers=layers)


def _gemma3(reader: _Reader) -> Architecture:
    config = reader.config
    attention = replace(
        reader.attention(),
        scale=config.number("query_pre_attn_scalar") ** -0.5,
        soft_cap=config.number("attn_logit_softcapping", 0.0),
        query_key_norm=QueryKeyNorm.HEAD,
    )
    pattern = config.positive("sliding_window_pattern", 6)
    types = [
        "sliding_attention" if (layer + 1) % pattern else "full_attention"
        for layer in range(config.layers)
    ]
    arch = reader.architecture(
        attention,
        _gemma_mlp(reader, "hidden_activation"),
        reader.windows(types),
        rotary=(reader.rotary("full_attention"), _local_rotary(reader)),
        norms=NormPlacement.SANDWICH,
        norm_offset=1.0,
        embedding_scale=config.positive("hidden_size") ** 0.5,
        logits_soft_cap=config.number("final_logit_softcapping", 0.0),
    )
    return _with_local_rotation(arch)


def _local_rotary(reader: _Reader) -> RotaryEmbedding:
    """Of layers with a window: never scaled before transformers 5, `rope_local_base_freq`."""
    config = reader.config
    nested = config.values.get("rope_parameters")
    if isinstance(nested, dict) and "sliding_attention" in nested:
        return reader.rotary("sliding_attention")
    local = {
        **config.values,
        "rope_parameters": None,
        "rope_scaling": None,
        "rope_theta": config.number("rope_local_base_freq", 10000.0),
    }
    return _Reader(ModelConfig(local, config.where), None).rotary()


_READERS: Mapping[str, Callable[[_Reader], Architecture]] = {
    "llama": _llama,
    "mistral": _mistral,
    "smollm3": _smollm3,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "mixtral": _mixtral,
    "gpt_oss": _gpt_oss,
    "phi3": _phi3,
    "granite": _granite,
    "olmo2": _olmo2,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
}
SUPPORTED_MODEL_TYPES = tuple(_READERS)
