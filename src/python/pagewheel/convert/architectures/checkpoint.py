"""Where a Hugging Face checkpoint keeps a weight: the parts of tensors that make it.

Most keep every weight in a tensor of the same name. Some keep several in one tensor, or the
experts of a layer in a tensor each: their files here have a recipe.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..decoder.architecture import Architecture, Experts

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


def tensor_name(name: str) -> str:
    """The tensor of the weight `name` where the checkpoint gives it one of its own."""
    return name if name.endswith(_FULL_NAMES) else f"{name}.weight"


def experts_of(arch: Architecture, name: str) -> Experts:
    """The experts of the layer that the weight `name` is in."""
    mlp = arch.layers[int(name.split(".")[1])].mlp
    assert isinstance(mlp, Experts)
    return mlp


def each_expert(arch: Architecture, name: str) -> Recipe | None:
    """layers.0.mlp.experts.gate_proj -> layers.0.mlp.experts.0.gate_proj and so on."""
    before, found, after = name.partition(".experts.")
    if not found:
        return None
    count = experts_of(arch, name).count
    return tuple(Part(tensor_name(f"{before}.experts.{expert}.{after}")) for expert in range(count))
