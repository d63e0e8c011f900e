"""What a decoder is made of: the numbers a graph is built from, whoever wrote the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .errors import ConversionError


@dataclass(frozen=True)
class RotaryEmbedding:
    """Rotary position embedding of the first `dims` channels of every head.

    Channel i turns together with channel i + dims/2 ("half" pairing, as in Hugging
    Face's models), by position * inverse_frequencies[i] radians. Cosine and sine are
    multiplied by `attention_scaling`.
    """

    dims: int
    theta: float
    inverse_frequencies: tuple[float, ...]
    attention_scaling: float = 1.0
    # Hugging Face's `rope_scaling` entry of config.json; None for plain frequencies.
    scaling: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.dims <= 0 or self.dims % 2:
            raise ConversionError(f"rotary dimensions must be even and positive, got {self.dims}")
        if len(self.inverse_frequencies) != self.dims // 2:
            raise ConversionError(
                f"{self.dims} rotary dimensions need {self.dims // 2} inverse frequencies, "
                f"got {len(self.inverse_frequencies)}"
            )


def inverse_frequencies(dims: int, theta: float) -> tuple[float, ...]:
    """theta ** (-2i / dims) for i in [0, dims / 2), in double precision."""
    return tuple(theta ** (-2.0 * i / dims) for i in range(dims // 2))


@dataclass(frozen=True)
class Architecture:
    """A decoder-only transformer with RMSNorm, grouped queries and a gated SiLU MLP."""

    model_type: str
    layers: int
    hidden_size: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate_size: int
    vocab_size: int
    context_length: int
    rms_norm_eps: float
    rotary: RotaryEmbedding
    tied_embeddings: bool

    def __post_init__(self) -> None:
        sizes = (
            "layers",
            "hidden_size",
            "heads",
            "kv_heads",
            "head_size",
            "intermediate_size",
            "vocab_size",
            "context_length",
        )
        for name in sizes:
            if getattr(self, name) <= 0:
                raise ConversionError(f"{name} must be positive, got {getattr(self, name)}")
        if self.heads % self.kv_heads:
            raise ConversionError(
                f"{self.heads} attention heads are no multiple of {self.kv_heads} kv heads"
            )
        if self.rotary.dims > self.head_size:
            raise ConversionError(
                f"{self.rotary.dims} rotary dimensions exceed the head size {self.head_size}"
            )

    @property
    def queries_per_kv_head(self) -> int:
        return self.heads // self.kv_heads
