"""Where a checkpoint of Hugging Face's keeps each weight, by model type.

Most keep every weight in a tensor of the same name. Some keep several in one, or the experts
of a layer in a tensor each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .architecture import Architecture, Experts, Mlp

# Weights that are no layer's "weight": named in full.
_FULL_NAMES = (
    ".bias",
    ".sinks",
    ".e_score_correction_bias",
    ".correct_output_scale",
    ".layer_scalar",
)


@dataclass(frozen=True)
class Part:
    """A tensor, named without prefix, or some of its rows.

    `rows` are taken along `axis`, where the tensor must be `length` long. `transposed`: the
    last two dimensions are swapped first.
    """

    tensor: str
    rows: slice | tuple[int, ...] | None = None
    length: int = 0
    axis: int = -2
    transposed: bool = False

    def stored_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The tensor's shape where the part has `shape`."""
        result = list(shape)
        if self.rows is not None:
            result[self.axis] = self.length
        if self.transposed:
            result[-2:] = reversed(result[-2:])
        return tuple(result)


# One part, or one for each expert.
Recipe = tuple[Part, ...]


def recipe(arch: Architecture, name: str) -> Recipe:
    """The parts that make the weight `name`."""
    found = _SPECIAL.get(arch.model_type, lambda _arch, _name: None)(arch, name)
    return found or (Part(_tensor(name)),)


def _tensor(name: str) -> str:
    return name if name.endswith(_FULL_NAMES) else f"{name}.weight"


def _experts_of(arch: Architecture, name: str) -> Experts:
    mlp = arch.layers[int(name.split(".")[1])].mlp
    assert isinstance(mlp, Experts)
    return mlp


def _each_expert(arch: Architecture, name: str) -> Recipe | None:
    """layers.0.mlp.experts.gate_proj -> layers.0.mlp.experts.0.gate_proj and so on."""
    before, found, after = name.partition(".experts.")
    if not found:
        return None
    count = _experts_of(arch, name).count
    return tuple(Part(_tensor(f"{before}.experts.{expert}.{after}")) for expert in range(count))


_MIXTRAL_NAMES = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}


def _mixtral(arch: Architecture, name: str) -> Recipe | None:
    moved = name.replace(".mlp.", ".block_sparse_moe.")
    moved = re.sub(r"(?<=\.experts\.)\w+", lambda match: _MIXTRAL_NAMES[match[0]], moved)
    if moved == name:
        return None
    return _each_expert(arch, moved) or (Part(_tensor(moved)),)


def _phi3(arch: Architecture, name: str) -> Recipe | None:
    prefix, _, last = name.rpartition(".")
    attention, mlp = arch.layers[0].attention, arch.layers[0].mlp
    assert isinstance(mlp, Mlp)
    query, kv = (heads * attention.head_size for heads in (attention.heads, attention.kv_heads))
    inner = mlp.intermediate_size
    fused = {
        "q_proj": ("qkv_proj", 0, query, query + 2 * kv),
        "k_proj": ("qkv_proj", query, kv, query + 2 * kv),
        "v_proj": ("qkv_proj", query + kv, kv, query + 2 * kv),
        "gate_proj": ("gate_up_proj", 0, inner, 2 * inner),
        "up_proj": ("gate_up_proj", inner, inner, 2 * inner),
    }
    if last not in fused:
        return None
    tensor, first, count, length = fused[last]
    return (Part(f"{prefix}.{tensor}.weight", slice(first, first + count), length),)


def _gpt_oss(arch: Architecture, name: str) -> Recipe | None:
    before, found, after = name.partition(".mlp.experts.")
    if not found:
        moved = name.replace(".mlp.gate", ".mlp.router")
        return None if moved == name else (Part(_tensor(moved)),)
    kind, bias = after.removesuffix(".bias"), after.endswith(".bias")
    suffix = "_bias" if bias else ""
    if kind == "down_proj":
        return (Part(f"{before}.mlp.experts.down_proj{suffix}", transposed=not bias),)
    length = 2 * _experts_of(arch, name).mlp.intermediate_size
    # Gate and up lie in turns.
    rows = slice(0 if kind == "gate_proj" else 1, None, 2)
    tensor = f"{before}.mlp.experts.gate_up_proj{suffix}"
    return (Part(tensor, rows, length, -1 if bias else -2, transposed=not bias),)


def _deepseek(arch: Architecture, name: str) -> Recipe | None:
    """Rotated channels come last there, in pairs (2i, 2i + 1); the graph wants them first and
    paired (i, i + half).
    """
    attention = arch.layers[0].attention
    latent = attention.latent
    prefix, _, last = name.removesuffix(".bias").rpartition(".")
    suffix = ".bias" if name.endswith(".bias") else ".weight"
    if latent is None or not prefix.endswith("self_attn"):
        return _each_expert(arch, name)
    size, turned = attention.head_size, latent.rotated
    kept = size - turned
    values = attention.value_size
    turned_order = (
        [*range(0, turned, 2), *range(1, turned, 2)]
        if arch.rotary_interleaved
        else (list(range(turned)))
    )

    def of_heads(width: int, order: list[int]) -> tuple[int, ...]:
        return tuple(head * width + each for head in range(attention.heads) for each in order)

    order = [kept + each for each in turned_order] + list(range(kept))
    both = kept + values
    rank = latent.rank
    parts: dict[str, tuple[str, tuple[int, ...], int]] = {
        "q_proj": ("q_proj", of_heads(size, order), attention.heads * size),
        "q_b_proj": ("q_b_proj", of_heads(size, order), attention.heads * size),
        "kv_a_proj": ("kv_a_proj_with_mqa", tuple(range(rank)), rank + turned),
        "k_rope_proj": (
            "kv_a_proj_with_mqa",
            tuple(rank + each for each in turned_order),
            rank + turned,
        ),
        "k_b_proj": ("kv_b_proj", of_heads(both, list(range(kept))), attention.heads * both),
        "v_b_proj": ("kv_b_proj", of_heads(both, list(range(kept, both))), attention.heads * both),
    }
    if last not in parts:
        return None
    tensor, rows, length = parts[last]
    axis = -1 if suffix == ".bias" else -2
    return (Part(f"{prefix}.{tensor}{suffix}", rows, length, axis),)


_SPECIAL: Mapping[str, Callable[[Architecture, str], Recipe | None]] = {
    "mixtral": _mixtral,
    "qwen3_moe": _each_expert,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "phi3": _phi3,
    "gpt_oss": _gpt_oss,
}
