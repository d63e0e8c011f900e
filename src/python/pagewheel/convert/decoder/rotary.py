"""Rotary position embeddings: the frequencies a config's `rope_parameters` stand for.

Kinds: default, linear, llama3, yarn (Peng et al., 2023, arXiv 2309.00071), longrope (Ding et
al., 2024, arXiv 2402.13753), proportional (Gemma 4) and dynamic. Dynamic is read as default,
from which it differs beyond the context length only.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import ConversionError

_MAX_F32 = 3.4e38  # the graph's type of frequencies


@dataclass(frozen=True)
class RotaryEmbedding:
    """Rotary position embedding of the first `dims` channels of every head.

    Channel i rotates together with channel i + dims/2, by position * inverse_frequencies[i]
    radians ("half" pairing, as in Hugging Face's models). Cosine and sine are multiplied by
    `attention_scaling`. `theta` is the base, for information.
    """

    dims: int
    theta: float
    inverse_frequencies: tuple[float, ...]
    attention_scaling: float = 1.0

    def __post_init__(self) -> None:
        if self.dims <= 0 or self.dims % 2:
            raise ConversionError(f"rotary dimensions must be even and positive, got {self.dims}")
        if len(self.inverse_frequencies) != self.dims // 2:
            raise ConversionError(
                f"{self.dims} rotary dimensions need {self.dims // 2} inverse frequencies, "
                f"got {len(self.inverse_frequencies)}"
            )
        if not all(0 <= each <= _MAX_F32 for each in self.inverse_frequencies):
            raise ConversionError("inverse frequencies must be finite and not negative, in f32")


def inverse_frequencies(dims: int, theta: float) -> tuple[float, ...]:
    """theta ** (-2i / dims) for i in [0, dims / 2), in double precision."""
    return tuple(theta ** (-2.0 * i / dims) for i in range(dims // 2))


@dataclass(frozen=True)
class RotaryParameters:
    """`rope_parameters` (`rope_scaling` before transformers 5) with the numbers beside it.

    `values` holds rope_type, factor and so on; `head_size` are the channels of a head.
    """

    values: Mapping[str, Any]
    theta: float
    head_size: int
    partial: float  # the rotary part of a head, 1 for all of it
    context_length: int
    # Trained on so many positions, where the config says so outside of `values`.
    original_context_length: int | None = None
    # So many positions are to be used; None: the kind's own choice.
    served_length: int | None = None

    @property
    def kind(self) -> str:
        kind = self.values.get("rope_type", self.values.get("type")) or "default"
        return "longrope" if kind == "su" else str(kind)

    @property
    def dims(self) -> int:
        dims = self.head_size * self.partial
        if dims >= self.head_size + 1:
            raise ConversionError(
                f"{dims:.6g} rotary dimensions exceed the head size {self.head_size}"
            )
        return int(dims)

    def number(self, key: str, default: float | None = None) -> float:
        value: Any = self.values.get(key)
        if value is None:
            value = default
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not abs(value) <= sys.float_info.max:
            raise ConversionError(
                f"rope_parameters of type {self.kind!r} need the number {key!r}, got {value!r:.80}"
            )
        return float(value)

    def positive(self, key: str, default: float | None = None) -> float:
        value = self.number(key, default)
        if not 0 < value < math.inf:
            raise ConversionError(f"rope_parameters: {key!r} must be positive, got {value}")
        return value

    def original(self) -> float:
        """The context length the model was first trained on."""
        if self.original_context_length is not None:
            return float(self.original_context_length)
        return self.positive("original_max_position_embeddings", self.context_length)


def rotary_embedding(parameters: RotaryParameters) -> RotaryEmbedding:
    """Raises ConversionError for an unknown kind and for numbers that make no sense."""
    if parameters.kind not in _KINDS:
        raise ConversionError(
            f"rope_type {parameters.kind!r} is not supported; supported: {', '.join(_KINDS)}"
        )
    if not 0 < parameters.theta < math.inf:
        raise ConversionError(f"rope_theta must be positive, got {parameters.theta}")
    try:
        return _KINDS[parameters.kind](parameters)
    except ConversionError:
        raise
    except (ArithmeticError, ValueError) as error:  # of a theta of 1e-300, an original length of 1
        raise ConversionError(
            f"rope_parameters of type {parameters.kind!r} give no finite frequencies: {error}"
        ) from None


def _plain(parameters: RotaryParameters) -> RotaryEmbedding:
    frequencies = inverse_frequencies(parameters.dims, parameters.theta)
    return RotaryEmbedding(parameters.dims, parameters.theta, frequencies)


def _linear(parameters: RotaryParameters) -> RotaryEmbedding:
    factor = parameters.positive("factor")
    plain = inverse_frequencies(parameters.dims, parameters.theta)
    return RotaryEmbedding(parameters.dims, parameters.theta, tuple(f / factor for f in plain))


def _proportional(parameters: RotaryParameters) -> RotaryEmbedding:
    """Frequencies of a whole head. Past the rotary part they are 0."""
    factor = parameters.positive("factor", 1.0)
    rotated = int(parameters.partial * parameters.head_size // 2)
    plain = inverse_frequencies(parameters.head_size, parameters.theta)
    frequencies = tuple(f / factor if i < rotated else 0.0 for i, f in enumerate(plain))
    return RotaryEmbedding(parameters.head_size, parameters.theta, frequencies)


def _llama3(parameters: RotaryParameters) -> RotaryEmbedding:
    """Slow frequencies are divided, fast ones kept, those between are interpolated."""
    factor = parameters.positive("factor")
    low, high = parameters.positive("low_freq_factor"), parameters.positive("high_freq_factor")
    original = parameters.original()

    def scaled(frequency: float) -> float:
        rotations = original * frequency / (2 * math.pi)  # over the original context
        if rotations < low:
            return frequency / factor
        if rotations > high:
            return frequency
        kept = (rotations - low) / (high - low)
        return (1 - kept) * frequency / factor + kept * frequency

    plain = inverse_frequencies(parameters.dims, parameters.theta)
    return RotaryEmbedding(parameters.dims, parameters.theta, tuple(map(scaled, plain)))


def _yarn(parameters: RotaryParameters) -> RotaryEmbedding:
    dims, theta = parameters.dims, parameters.theta
    original = parameters.original()
    factor = parameters.positive("factor", parameters.context_length / original)

    def channel_of(rotations: float) -> float:
        """The channel that makes so many full rotations over the original context."""
        return dims * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = channel_of(parameters.positive("beta_fast", 32.0))
    high = channel_of(parameters.positive("beta_slow", 1.0))
    if parameters.values.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    width = high - low or 0.001

    def scaled(channel: int, frequency: float) -> float:
        divided = min(max((channel - low) / width, 0.0), 1.0)
        return divided * frequency / factor + (1 - divided) * frequency

    plain = inverse_frequencies(dims, theta)
    frequencies = tuple(scaled(i, f) for i, f in enumerate(plain))
    return RotaryEmbedding(dims, theta, frequencies, _yarn_scaling(parameters, factor))


def _yarn_scaling(parameters: RotaryParameters, factor: float) -> float:
    if parameters.values.get("attention_factor") is not None:
        return parameters.positive("attention_factor")

    def scaling(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    above, below = parameters.values.get("mscale"), parameters.values.get("mscale_all_dim")
    if above and below:
        return scaling(parameters.number("mscale")) / scaling(parameters.number("mscale_all_dim"))
    return scaling(1.0)


def served_length(parameters: RotaryParameters) -> int:
    """So many positions the frequencies are right for."""
    if parameters.served_length is not None:
        return min(parameters.served_length, parameters.context_length)
    if parameters.kind == "longrope":
        return min(int(parameters.original()), parameters.context_length)
    return parameters.context_length


def _longrope(parameters: RotaryParameters) -> RotaryEmbedding:
    """The short factors up to the original context length, the long ones to serve more.

    Transformers changes over when a text outgrows the original length and computes its
    cache anew; with a cache that stays, one set must serve the whole context.
    """
    dims, original = parameters.dims, parameters.original()
    key = "long_factor" if served_length(parameters) > original else "short_factor"
    factors = parameters.values.get(key)
    if (
        not isinstance(factors, list)
        or len(factors) != dims // 2
        or not all(isinstance(each, (int, float)) and each > 0 for each in factors)
    ):
        raise ConversionError(
            f"rope_parameters: {key!r} must be {dims // 2} positive numbers, got {factors!r:.80}"
        )
    plain = inverse_frequencies(dims, parameters.theta)
    frequencies = tuple(f / d for f, d in zip(plain, factors, strict=True))
    return RotaryEmbedding(dims, parameters.theta, frequencies, _longrope_scaling(parameters))


def _longrope_scaling(parameters: RotaryParameters) -> float:
    if parameters.values.get("attention_factor") is not None:
        return parameters.positive("attention_factor")
    original = parameters.original()
    # Phi-MoE says what it is in either case.
    key = "long_mscale" if served_length(parameters) > original else "short_mscale"
    if parameters.values.get(key) is not None:
        return parameters.positive(key)
    factor = parameters.positive("factor", parameters.context_length / original)
    return math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0


_KINDS: Mapping[str, Callable[[RotaryParameters], RotaryEmbedding]] = {
    "default": _plain,
    "linear": _linear,
    "dynamic": _plain,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "proportional": _proportional,
}
