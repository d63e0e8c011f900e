"""What a decoder is made of: the numbers a graph is built from, whoever wrote the file.

`architectures` makes it of a config.json, `graph` builds an ov::Model of it. Weights are asked
for by name: Hugging Face's without "model." and ".weight" ("layers.0.self_attn.q_proj");
biases end with ".bias".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from ...errors import ConversionError
from .rotary import RotaryEmbedding

# Channels of all heads. Far above any model's; keeps a damaged file or config from asking for
# lists of that many rows.
_MAX_WIDTH = 1 << 22
# These bounds are as far above any model's, for the same reason.
_MAX_RANK = 1 << 16
_MAX_EXPERTS = 1 << 16
_MAX_STREAMS = 64
_MAX_CONVOLUTION = 64
_MAX_STATE = 1 << 26  # numbers of a layer's recurrent state


def _check_positive(described: object, *names: str) -> None:
    for name in names:
        if getattr(described, name) <= 0:
            raise ConversionError(f"{name} must be positive, got {getattr(described, name)}")


def _check_range(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConversionError(f"{what} must be {least} to {most}, got {value}")


class NormPlacement(Enum):
    """Where the norms of a layer sit; the values are the norms' names, or None.

    (before attention, after attention, before the MLP, after the MLP); norms "after" act on
    the block's output before it is added.
    """

    PRE = ("input_layernorm", None, "post_attention_layernorm", None)
    POST = (None, "post_attention_layernorm", None, "post_feedforward_layernorm")
    SANDWICH = (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    )


# A layer with experts beside the MLP has norms after the MLP, before and after the experts.
NORMS_BESIDE = (
    "post_feedforward_layernorm_1",
    "pre_feedforward_layernorm_2",
    "post_feedforward_layernorm_2",
)


class QueryKeyNorm(Enum):
    """RMS norm of queries and keys, before rotation if not said otherwise."""

    NONE = "none"
    HEAD = "head"  # each head by itself, one weight of head_size
    ROTATED_HEAD = "rotated head"  # the same, after rotation
    WHOLE = "whole"  # all heads together


class Activation(Enum):
    SILU = "silu"
    SQUARED_RELU = "squared relu"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"


@dataclass(frozen=True)
class LatentKeys:
    """DeepSeek's latent attention (arXiv 2405.04434), written out: the cache holds whole heads.

    Keys and values come from a projection to `rank` channels (kv_a_proj, kv_a_layernorm; then
    k_b_proj and v_b_proj), but for the first `rotated` channels of a key, which all heads share
    (k_rope_proj). Queries pass `query_rank` channels (q_a_proj, q_a_layernorm, q_b_proj); 0: none.
    """

    rank: int
    rotated: int
    query_rank: int = 0
    norm_eps: float | None = None  # None: the architecture's

    def __post_init__(self) -> None:
        for name, least in (("rank", 1), ("rotated", 1), ("query_rank", 0)):
            _check_range(f"{name} of latent keys", getattr(self, name), least, _MAX_RANK)


@dataclass(frozen=True)
class Attention:
    """One layer's attention.

    Logits are `scale` * q.k, then soft_cap * tanh(logits / soft_cap) where soft_cap is not
    0. A query sees the last `window` keys, its own included; 0: all.
    """

    heads: int
    kv_heads: int
    head_size: int
    scale: float
    rotary: int | None = 0  # index into Architecture.rotary; None: no positions
    window: int = 0
    bias: bool = False  # of the query, key and value projections
    output_bias: bool = False
    query_key_norm: QueryKeyNorm = QueryKeyNorm.NONE
    value_norm: bool = False  # RMS norm of each value head, without weights
    soft_cap: float = 0.0
    sinks: bool = False  # one more logit per head in the softmax, weight "self_attn.sinks"
    cache_of: int | None = None  # the earlier layer whose keys and values it reads
    values_are_keys: bool = False  # no v_proj: values are the keys before norm and rotation
    latent: LatentKeys | None = None
    separate_value_size: int | None = None  # where it is not the head size
    # What heads give is multiplied by the sigmoid of the projection self_attn.gate_proj.
    output_gate: bool = False

    def __post_init__(self) -> None:
        _check_positive(self, "heads", "kv_heads", "head_size")
        if self.heads * max(self.head_size, self.value_size) > _MAX_WIDTH:
            raise ConversionError(
                f"{self.heads} heads of {max(self.head_size, self.value_size)} are more than "
                "any model has"
            )
        if self.heads % self.kv_heads:
            raise ConversionError(
                f"{self.heads} attention heads are no multiple of {self.kv_heads} kv heads"
            )
        if self.window < 0:
            raise ConversionError(f"the sliding window must not be negative, got {self.window}")
        if not 0 <= self.soft_cap < math.inf:
            raise ConversionError(
                f"the soft cap of attention logits must be 0 (none) or more, got {self.soft_cap}"
            )

    @property
    def value_size(self) -> int:
        return self.separate_value_size or self.head_size

    @property
    def queries_per_kv_head(self) -> int:
        return self.heads // self.kv_heads


@dataclass(frozen=True)
class ShortConvolution:
    """LFM2's mixer of tokens in place of attention: out_proj(c * conv(b * x)).

    b, c and x are the thirds of in_proj. conv is causal and depthwise over the last `length`
    tokens. Weights: conv.in_proj, conv.conv [hidden, 1, length] and conv.out_proj.
    """

    length: int
    bias: bool = False  # of all three

    def __post_init__(self) -> None:
        _check_range("the length of short convolutions", self.length, 2, _MAX_CONVOLUTION)


@dataclass(frozen=True)
class GatedDeltaNet:
    """A mixer of tokens in place of attention (Yang et al., arXiv 2412.06464).

    Queries, keys and values pass a short convolution over `length` tokens and SiLU. Each value
    head keeps a matrix. Weights, under linear_attn: in_proj_qkv, in_proj_z, in_proj_b, in_proj_a,
    conv1d [channels, 1, length], A_log and dt_bias [value_heads], norm [value_size], out_proj.
    """

    key_heads: int
    value_heads: int
    key_size: int
    value_size: int
    length: int
    beta_scale: float = 1.0  # betas are this times a sigmoid
    norm_eps: float | None = None  # None: the architecture's
    # Kimi Delta Attention (arXiv 2510.26692): each channel of keys has a decay of its own. The
    # inputs of in_proj_a and in_proj_z pass key_size channels (in_proj_a_down, in_proj_z_down).
    # A_log is [1, 1, value_heads, 1], and z's gate its sigmoid in place of its SiLU.
    decay_by_channel: bool = False

    def __post_init__(self) -> None:
        _check_positive(self, "key_heads", "value_heads", "key_size", "value_size")
        if max(self.key_width, self.value_width) > _MAX_WIDTH:
            raise ConversionError(
                f"{self.value_heads} heads of {self.value_size} are more than any model has"
            )
        if self.value_heads % self.key_heads:
            raise ConversionError(
                f"{self.value_heads} value heads are no multiple of {self.key_heads} key heads"
            )
        _check_range("the length of short convolutions", self.length, 2, _MAX_CONVOLUTION)

    @property
    def key_width(self) -> int:
        return self.key_heads * self.key_size

    @property
    def value_width(self) -> int:
        return self.value_heads * self.value_size

    @property
    def decay_width(self) -> int:
        return self.value_heads * (self.key_size if self.decay_by_channel else 1)


@dataclass(frozen=True)
class Mamba2:
    """A selective state space model (Dao and Gu, 2024, arXiv 2405.21060) as mixer of tokens.

    Weights: mamba.gate_proj [heads * head_size, hidden]; mamba.conv_proj to x, B and C, the heads'
    channels and twice groups * state_size, which pass mamba.conv1d over `length` tokens and silu;
    mamba.dt_proj [heads, hidden]; mamba.A_log, .D and .dt_bias [heads]; mamba.norm, an RMS norm of
    each group of channels after the gate or before it; mamba.out_proj.
    """

    heads: int
    head_size: int
    groups: int
    state_size: int
    length: int
    bias: bool = False  # of the first three projections
    output_bias: bool = False
    conv_bias: bool = True
    norm: bool = True
    norm_groups: int = 1
    gate_after_norm: bool = False
    dt_min: float = 0.0
    dt_max: float = math.inf

    def __post_init__(self) -> None:
        _check_positive(self, "heads", "head_size", "groups", "state_size", "norm_groups")
        _check_range("the length of convolutions", self.length, 2, _MAX_CONVOLUTION)
        _check_range("a recurrent state", self.inner_size * self.state_size, 1, _MAX_STATE)
        for groups in (self.groups, self.norm_groups):
            if self.heads % groups:
                raise ConversionError(f"{self.heads} heads are no multiple of {groups} groups")
        if not self.dt_min <= self.dt_max:
            raise ConversionError(f"steps cannot be from {self.dt_min} to {self.dt_max}")

    @property
    def inner_size(self) -> int:
        return self.heads * self.head_size

    @property
    def conv_size(self) -> int:
        return self.inner_size + 2 * self.groups * self.state_size


@dataclass(frozen=True)
class Mlp:
    """down(activation(gate(x)) * up(x)); weights gate_proj, up_proj and down_proj.

    Without a gate down(activation(up(x))).
    """

    intermediate_size: int
    activation: Activation = Activation.SILU
    bias: bool = False
    gated: bool = True
    # Gemma 3n: only about this part of the gate's channels, the largest, pass the activation.
    sparsity: float = 0.0

    def __post_init__(self) -> None:
        _check_positive(self, "intermediate_size")


class Routing(Enum):
    """How a token's expert weights come from its router logits."""

    SOFTMAX = "softmax"  # of all experts, then the best
    SOFTMAX_OF_BEST = "softmax of best"  # the best, renormalised to sum 1
    SIGMOID = "sigmoid"  # of all
    # Phi-MoE's SparseMixer (arXiv 2409.12136): the best; its weight is its part in the softmax of
    # those that are not far below it. Then the same of the others.
    SPARSE_MIXER = "sparse mixer"


@dataclass(frozen=True)
class Experts:
    """A routed MLP: `active` of `count` experts per token, weighted and added.

    Weights: mlp.gate [count, hidden], mlp.experts.gate_proj, .up_proj and .down_proj, each
    [count, out, in], and those of `shared`, an MLP every token passes, under
    mlp.shared_experts. With `shared_gate` its output is multiplied by the sigmoid of
    mlp.shared_gate [1, hidden] times the token.
    """

    count: int
    active: int
    mlp: Mlp
    routing: Routing
    router_bias: bool = False
    weights_scale: float = 1.0
    # Experts are chosen by weight + mlp.gate.e_score_correction_bias; not SOFTMAX_OF_BEST.
    correction: bool = False
    normalise: bool = False  # divide the chosen weights by their sum; not SOFTMAX_OF_BEST
    groups: int = 1  # experts are chosen from the best `active_groups` of so many groups
    active_groups: int = 1
    shared: Mlp | None = None
    shared_gate: bool = False
    # Logits within this part of the best one's magnitude are not far below it (SPARSE_MIXER).
    near: float = 0.0
    # gpt-oss: gate <= limit, |up| <= limit, gate * sigmoid(alpha * gate) * (up + 1).
    clamp: float = 0.0
    alpha: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.active <= self.count:
            raise ConversionError(f"{self.active} active of {self.count} experts is not possible")
        if self.count > _MAX_EXPERTS:
            raise ConversionError(f"experts must be at most {_MAX_EXPERTS}, got {self.count}")
        if self.groups <= 0 or self.count % self.groups:
            raise ConversionError(f"{self.count} experts are no multiple of {self.groups} groups")
        _check_range("active groups of experts", self.active_groups, 1, self.groups)


Mixer = Attention | ShortConvolution | GatedDeltaNet | Mamba2


@dataclass(frozen=True)
class Layer:
    """A mixer and an MLP. One of them may be missing, with its norms."""

    mixer: Mixer | None  # of tokens
    mlp: Mlp | Experts | None
    # It stands beside attention and reads what that reads; their outputs are added.
    recurrence: Mamba2 | None = None
    # Experts beside a plain MLP, which read what it reads before its norm. Weights: moe, with
    # moe.router_scale [hidden] and moe.expert_scales [count], and three norms of their own.
    beside: Experts | None = None
    scaled: bool = False  # the layer's output is multiplied by a number, "layer_scalar"
    norms: NormPlacement | None = None  # None: the architecture's

    @property
    def attention(self) -> Attention:
        """The mixer of a layer that attends."""
        assert isinstance(self.mixer, Attention)
        return self.mixer

    def with_attention(self, **changes: Any) -> Layer:
        return replace(self, mixer=replace(self.attention, **changes))


@dataclass(frozen=True)
class PerLayerInputs:
    """Gemma 3n's and 4's second embedding: each token has `size` numbers for every layer."""

    size: int
    vocab_size: int  # later tokens read row 0
    activation: Activation = Activation.GELU_TANH


@dataclass(frozen=True)
class AltUp:
    """Gemma 3n's alternating updates (Baykal et al., 2023, arXiv 2301.13310).

    The model carries `streams` hidden states, of which layers compute one and predict the
    others. Beside attention runs LAuReL, a product of two matrices of `laurel_rank`.
    """

    streams: int
    active: int
    laurel_rank: int
    scale_corrected: bool

    def __post_init__(self) -> None:
        _check_range("streams of alternating updates", self.streams, 1, _MAX_STREAMS)
        _check_range("the active stream", self.active, 0, self.streams - 1)


@dataclass(frozen=True)
class Eagle3:
    """A head of EAGLE-3 (Li et al., arXiv 2503.01840), which drafts for a model.

    The one layer's queries, keys and values are projected from a token's embedding and the state
    before it, beside each other; norms: input_layernorm and hidden_norm. `fc` makes a state of what
    three layers of the model read. The embeddings are the model's, which the folder lacks. The
    logits are of some of its tokens; then `d2t` [vocab_size] says how much further each of them is
    among the model's.
    """

    model_vocab_size: int


@dataclass(frozen=True)
class Architecture:
    """A decoder-only transformer with RMS norms, or with `layer_norms` that have biases."""

    model_type: str
    hidden_size: int
    vocab_size: int
    context_length: int
    layers: tuple[Layer, ...]
    rotary: tuple[RotaryEmbedding, ...]
    norm_eps: float
    tied_embeddings: bool
    norms: NormPlacement = NormPlacement.PRE
    layer_norms: bool = False
    # Added to every norm's weight: Gemma's checkpoints hold weight - 1 (its GGUF files do not).
    norm_offset: float = 0.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logits_scale: float = 1.0
    logits_soft_cap: float = 0.0
    lm_head_bias: bool = False
    per_layer_inputs: PerLayerInputs | None = None
    # The checkpoint pairs channels (2i, 2i + 1); the graph always pairs (i, i + dims / 2).
    rotary_interleaved: bool = False
    altup: AltUp | None = None  # with per_layer_inputs only
    # A head that guesses the token after the next one (multi-token prediction), with the model's
    # embeddings and output matrix. Checkpoints may lack it.
    mtp: Architecture | None = None
    # A head: its layers read "fc" of each token's embedding and the hidden state before it.
    reads_hidden_states: bool = False
    eagle3: Eagle3 | None = None
    # By name in a layer: what rows of the checkpoint's weight are multiplied with, part by part.
    multipliers: tuple[tuple[str, tuple[float, ...]], ...] = ()

    def __post_init__(self) -> None:
        _check_positive(self, "hidden_size", "vocab_size", "context_length")
        if not self.layers:
            raise ConversionError("layers must be positive, got 0")
        if self.altup is not None and self.per_layer_inputs is None:
            raise ConversionError("a model with alternating updates needs per-layer inputs")
        for index, attention in self.attentions.items():
            self._check_layer(index, attention)
            if attention.soft_cap != self.attention_soft_cap:
                raise ConversionError(
                    f"layer {index} caps attention logits at {attention.soft_cap:g}, "
                    f"the first at {self.attention_soft_cap:g}"
                )

    def _check_layer(self, index: int, attention: Attention) -> None:
        if attention.rotary is not None:
            if not 0 <= attention.rotary < len(self.rotary):
                raise ConversionError(
                    f"layer {index} uses rotary embedding {attention.rotary} of {len(self.rotary)}"
                )
            dims = self.rotary[attention.rotary].dims
            if dims > attention.head_size:
                raise ConversionError(
                    f"{dims} rotary dimensions exceed the head size {attention.head_size}"
                )
        if attention.cache_of is not None:
            self._check_shared_cache(index, attention, attention.cache_of)

    def _check_shared_cache(self, index: int, attention: Attention, cache_of: int) -> None:
        if not 0 <= cache_of < index or self.layers[cache_of].attention.cache_of is not None:
            raise ConversionError(
                f"layer {index} cannot read the cache of layer {cache_of}, "
                "which is no earlier layer with a cache of its own"
            )
        owner = self.layers[cache_of].attention
        if (owner.kv_heads, owner.head_size) != (attention.kv_heads, attention.head_size):
            raise ConversionError(
                f"layer {index} reads the cache of layer {cache_of}, but their kv heads differ"
            )

    def with_layers(self, change: Callable[[int, Layer], Layer], **others: Any) -> Architecture:
        """What `change` makes of each layer and its number; `others` are members to set as well."""
        layers = tuple(change(index, layer) for index, layer in enumerate(self.layers))
        return replace(self, layers=layers, **others)

    def with_mixer(self, mixer: Mixer, attends: Sequence[bool]) -> Architecture:
        """The mixer is in place of attention in layers that do not attend."""
        return self.with_layers(
            lambda index, layer: layer if attends[index] else replace(layer, mixer=mixer)
        )

    def norms_of(self, layer: int) -> tuple[str | None, ...]:
        """The value of the layer's NormPlacement."""
        return (self.layers[layer].norms or self.norms).value

    @property
    def attentions(self) -> dict[int, Attention]:
        """The attention of the layers that have one, by the layer's number."""
        mixers = ((index, layer.mixer) for index, layer in enumerate(self.layers))
        return {index: mixer for index, mixer in mixers if isinstance(mixer, Attention)}

    @property
    def attention_soft_cap(self) -> float:
        """Every layer's cap; 0 for none. It is not in the graph: OpenVINO's attention has none."""
        return next((each.soft_cap for each in self.attentions.values()), 0.0)

    @property
    def windows(self) -> tuple[int, ...]:
        """The sliding windows of the layers that attend; 0 for none."""
        return tuple(attention.window for attention in self.attentions.values())


Shapes = dict[str, tuple[int, ...]]

# What checkpoints call the weights of a head that guesses further tokens where it is a block behind
# the last layer, beside that block's layer. Some lack the last two: they are the model's then.
NAMES_IN_HEAD_BLOCK = {
    "fc": "eh_proj",
    "pre_fc_norm_embedding": "enorm",
    "pre_fc_norm_hidden": "hnorm",
    "norm": "shared_head.norm",
    "embed_tokens": "embed_tokens",
    "lm_head": "shared_head.head",
}


def weight_shapes(arch: Architecture) -> Shapes:
    """Names and shapes of all weights, in the order in which the graph asks for them.

    A source is checked against them.
    """
    hidden, count = arch.hidden_size, len(arch.layers)
    shapes: Shapes = {"embed_tokens": (arch.vocab_size, hidden)}
    if arch.eagle3 is not None:
        shapes = {"fc": (hidden, 3 * hidden)}
    if arch.reads_hidden_states:
        shapes |= {"pre_fc_norm_embedding": (hidden,), "pre_fc_norm_hidden": (hidden,)}
        shapes["fc"] = (hidden, 2 * hidden)
    for index, layer in enumerate(arch.layers):
        own: Shapes = {}
        norms = arch.norms_of(index)
        for half, own_norms in ((layer.mixer, norms[:2]), (layer.mlp, norms[2:])):
            for norm in filter(None, own_norms if half is not None else ()):
                own |= _norm(arch, norm)
        mixers: tuple[Mixer | None, ...] = (layer.mixer, layer.recurrence)
        for mixer in mixers:
            own |= _mixer_shapes(mixer, hidden) if mixer is not None else {}
        if arch.eagle3 is not None:
            own["hidden_norm"] = (hidden,)
            for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"):
                own[name] = (own[name][0], 2 * hidden)
        if layer.mlp is not None:
            own |= _under("mlp", _mlp_shapes(layer.mlp, hidden))
        if layer.beside is not None:
            own |= {norm: (hidden,) for norm in NORMS_BESIDE}
            own |= _under("moe", _mlp_shapes(layer.beside, hidden))
            own |= {"moe.router_scale": (hidden,), "moe.expert_scales": (layer.beside.count,)}
        if layer.scaled:
            own["layer_scalar"] = (1,)
        if arch.per_layer_inputs is not None:
            size = arch.per_layer_inputs.size
            own["per_layer_input_gate"] = (size, hidden)
            own["per_layer_projection"] = (hidden, size)
            own["post_per_layer_input_norm"] = (hidden,)
        if arch.altup is not None:
            own |= _altup_shapes(arch.altup, hidden)
        shapes |= _under(f"layers.{index}", own)
    if arch.per_layer_inputs is not None:
        size, table = arch.per_layer_inputs.size, arch.per_layer_inputs.vocab_size
        shapes["embed_tokens_per_layer"] = (table, count * size)
        shapes["per_layer_model_projection"] = (count * size, hidden)
        shapes["per_layer_projection_norm"] = (size,)
    if arch.altup is not None:
        for stream in range(arch.altup.streams - 1):
            shapes[f"altup_projections.{stream}"] = (hidden, hidden)
            shapes[f"altup_unembed_projections.{stream}"] = (hidden, hidden)
    shapes |= _norm(arch, "norm")
    if not arch.tied_embeddings:
        shapes["lm_head"] = (arch.vocab_size, hidden)
    if arch.lm_head_bias:
        shapes["lm_head.bias"] = (arch.vocab_size,)
    if arch.eagle3 is not None and arch.eagle3.model_vocab_size > arch.vocab_size:
        shapes["d2t"] = (arch.vocab_size,)
    return shapes


def _under(prefix: str, shapes: Shapes) -> Shapes:
    return {f"{prefix}.{name}": shape for name, shape in shapes.items()}


def _norm(arch: Architecture, name: str) -> Shapes:
    bias = {f"{name}.bias": (arch.hidden_size,)} if arch.layer_norms else {}
    return {name: (arch.hidden_size,), **bias}


def _linear(name: str, rows: int, columns: int, bias: bool = False) -> Shapes:
    return {name: (rows, columns), **({f"{name}.bias": (rows,)} if bias else {})}


def _altup_shapes(altup: AltUp, hidden: int) -> Shapes:
    streams, rank = altup.streams, altup.laurel_rank
    return {
        "altup.modality_router": (streams, hidden),
        "altup.router_norm": (hidden,),
        "altup.prediction_coefs": (streams * streams, streams),
        "altup.correction_coefs": (streams, streams),
        "altup.correct_output_scale": (hidden,),
        "laurel.linear_left": (rank, hidden),
        "laurel.linear_right": (hidden, rank),
        "laurel.post_laurel_norm": (hidden,),
    }


def _mixer_shapes(mixer: Mixer, hidden: int) -> Shapes:
    if isinstance(mixer, Attention):
        return _under("self_attn", _attention_shapes(mixer, hidden))
    if isinstance(mixer, GatedDeltaNet):
        return _under("linear_attn", _delta_shapes(mixer, hidden))
    if isinstance(mixer, Mamba2):
        return _under("mamba", _mamba_shapes(mixer, hidden))
    return _under("conv", _convolution_shapes(mixer, hidden))


def _delta_shapes(net: GatedDeltaNet, hidden: int) -> Shapes:
    channels = 2 * net.key_width + net.value_width
    heads: tuple[int, ...] = (net.value_heads,)
    narrow, down = hidden, dict.fromkeys("az", Shapes())
    if net.decay_by_channel:
        narrow, heads = net.key_size, (1, 1, net.value_heads, 1)
        down = {each: _linear(f"in_proj_{each}_down", narrow, hidden) for each in "az"}
    return {
        **_linear("in_proj_qkv", channels, hidden),
        "conv1d": (channels, 1, net.length),
        **_linear("in_proj_b", net.value_heads, hidden),
        "A_log": heads,
        "dt_bias": (net.decay_width,),
        **down["a"],
        **_linear("in_proj_a", net.decay_width, narrow),
        "norm": (net.value_size,),
        **down["z"],
        **_linear("in_proj_z", net.value_width, narrow),
        **_linear("out_proj", hidden, net.value_width),
    }


def _attention_shapes(attention: Attention, hidden: int) -> Shapes:
    if attention.latent is not None:
        return _latent_shapes(attention, attention.latent, hidden)
    query, kv = (heads * attention.head_size for heads in (attention.heads, attention.kv_heads))
    own_cache, bias = attention.cache_of is None, attention.bias
    shapes = _linear("q_proj", query, hidden, bias)
    if own_cache:
        shapes |= _linear("k_proj", kv, hidden, bias)
    if own_cache and not attention.values_are_keys:
        shapes |= _linear("v_proj", kv, hidden, bias)
    if attention.output_gate:
        shapes |= _linear("gate_proj", query, hidden, bias)
    shapes |= _linear("o_proj", hidden, query, attention.output_bias)
    if attention.query_key_norm is not QueryKeyNorm.NONE:
        whole = attention.query_key_norm is QueryKeyNorm.WHOLE
        shapes["q_norm"] = (query if whole else attention.head_size,)
        if own_cache:
            shapes["k_norm"] = (kv if whole else attention.head_size,)
    if attention.sinks:
        shapes["sinks"] = (attention.heads,)
    return shapes


def _convolution_shapes(convolution: ShortConvolution, hidden: int) -> Shapes:
    return {
        **_linear("in_proj", 3 * hidden, hidden, convolution.bias),
        "conv": (hidden, 1, convolution.length),
        **({"conv.bias": (hidden,)} if convolution.bias else {}),
        **_linear("out_proj", hidden, hidden, convolution.bias),
    }


def _mamba_shapes(mamba: Mamba2, hidden: int) -> Shapes:
    inner, bias = mamba.inner_size, mamba.bias
    return {
        **_linear("gate_proj", inner, hidden, bias),
        **_linear("conv_proj", mamba.conv_size, hidden, bias),
        **_linear("dt_proj", mamba.heads, hidden, bias),
        "conv1d": (mamba.conv_size, 1, mamba.length),
        **({"conv1d.bias": (mamba.conv_size,)} if mamba.conv_bias else {}),
        **{name: (mamba.heads,) for name in ("A_log", "D", "dt_bias")},
        **({"norm": (inner,)} if mamba.norm else {}),
        **_linear("out_proj", hidden, inner, mamba.output_bias),
    }


def _latent_shapes(attention: Attention, latent: LatentKeys, hidden: int) -> Shapes:
    heads, bias = attention.heads, attention.bias
    columns, name = hidden, "q_proj"
    shapes: Shapes = {}
    if latent.query_rank:
        columns, name = latent.query_rank, "q_b_proj"
        shapes = {**_linear("q_a_proj", columns, hidden, bias), "q_a_layernorm": (columns,)}
    return {
        **shapes,
        **_linear(name, heads * attention.head_size, columns),
        **_linear("k_rope_proj", latent.rotated, hidden, bias),
        **_linear("kv_a_proj", latent.rank, hidden, bias),
        "kv_a_layernorm": (latent.rank,),
        **_linear("k_b_proj", heads * (attention.head_size - latent.rotated), latent.rank),
        **_linear("v_b_proj", heads * attention.value_size, latent.rank),
        **_linear("o_proj", hidden, heads * attention.value_size, attention.output_bias),
    }


def _mlp_shapes(mlp: Mlp | Experts, hidden: int) -> Shapes:
    if isinstance(mlp, Mlp):
        inner, bias = mlp.intermediate_size, mlp.bias
        shapes = _linear("gate_proj", inner, hidden, bias) if mlp.gated else {}
        shapes |= _linear("up_proj", inner, hidden, bias)
        return shapes | _linear("down_proj", hidden, inner, bias)
    shapes = _linear("gate", mlp.count, hidden, mlp.router_bias)
    if mlp.correction:
        shapes["gate.e_score_correction_bias"] = (mlp.count,)
    one = _under("experts", _mlp_shapes(mlp.mlp, hidden))
    shapes |= {name: (mlp.count, *shape) for name, shape in one.items()}
    if mlp.shared is not None:
        shapes |= _under("shared_experts", _mlp_shapes(mlp.shared, hidden))
    if mlp.shared_gate:
        shapes["shared_gate"] = (1, hidden)
    return shapes
