"""What the registry holds of an architecture: how each kind of source describes it.

A recipe says where a Hugging Face checkpoint keeps a weight: the parts of tensors that make it.
Most checkpoints keep every weight in a tensor of the same name. Some keep several in one tensor,
or the experts of a layer in a tensor each: their files here have a recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..decoder.architecture import Architecture, Experts
from .gguf_config import Config, GGUFConfig
from .reader import Reader

# Weights that are no layer's "weight": named in full.
_FULL_NAMES = (
    *(".bias", ".sinks", ".e_score_correction_bias"),
    *(".correct_output_scale", ".layer_scalar", ".A_log", ".D", ".dt_bias"),
)


@dataclass(frozen=True)
class Part:
    """A tensor, named without prefix, or some of its rows.

    `rows` are taken along `axis`, where the tensor must be `length` long. `transposed`: the
    last two dimensions are swapped first. `unsqueezed`: the tensor is the only row of a matrix.
    `scales`: what the part's rows are multiplied with and how many of them, one scale after the
    other; the only one is for all rows, whatever their number. `joined`: of several parts this one
    is so many rows, which the next one's follow; 0: parts are stacked.
    """

    tensor: str
    rows: slice | tuple[int, ...] | None = None
    length: int = 0
    axis: int = -2
    transposed: bool = False
    unsqueezed: bool = False
    scales: tuple[tuple[float, int], ...] = ()
    joined: int = 0

    def stored_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The tensor's shape where the part has `shape`."""
        result = list(shape)
        if self.rows is not None:
            result[self.axis] = self.length
        if self.transposed:
            result[-2:] = reversed(result[-2:])
        return (1, *result) if self.unsqueezed else tuple(result)


# One part, or one for each expert, or parts whose rows are joined.
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


@dataclass(frozen=True)
class ModelType:
    """A `model_type` of config.json.

    `defaults` are those of transformers' configuration class where they are not Llama's: a
    config leaves out what equals them. `recipe` says where the checkpoint keeps a weight; None:
    in a tensor of its name.
    """

    name: str
    read: Callable[[Reader], Architecture]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    recipe: Callable[[Architecture, str], Recipe | None] = lambda _arch, _name: None
    # Where other checkpoints keep it, if there are two kinds.
    other_recipe: Callable[[Architecture, str], Recipe | None] = lambda _arch, _name: None


@dataclass(frozen=True)
class FilePart:
    """Where a GGUF file keeps a layer's weight, named without the block.

    `rows` are taken from a tensor of `shape`; then blocks of columns, as many as `columns` are
    long, change their order. `negative_exponential`: the file holds -exp(weight). `below`: parts
    whose rows follow.
    """

    tensor: str
    shape: tuple[int, ...]
    rows: tuple[int, ...] | None = None
    columns: tuple[int, ...] | None = None
    negative_exponential: bool = False
    below: tuple[FilePart, ...] = ()


@dataclass(frozen=True)
class GGUFArchitecture:
    """A `general.architecture` of GGUF files, whose numbers `config` puts in a config.json."""

    name: str
    config: Callable[[GGUFConfig], Config]
    # Names of tensors in a layer, beside those of gguf/source.py or in their place.
    names: Mapping[str, str] = field(default_factory=dict)
    # llama.cpp has reordered the rows of queries and keys: channels 2i and 2i + 1 rotate together.
    interleaved: bool = False
    # The checkpoint holds norm weights - 1; llama.cpp adds the 1 when it writes a file.
    norms_with_offset: bool = False
    # Of weights that `names` do not describe.
    part: Callable[[Architecture, str], FilePart | None] = lambda _arch, _name: None
    # Rows that the checkpoint's recipe takes from a larger tensor are in such a tensor here too.
    fused_as_in_checkpoint: bool = False
    # rope_freqs.weight divides the frequencies; False: `config` has read it.
    frequency_divisors: bool = True


@dataclass(frozen=True)
class Family:
    """What one file adds to the registry. Several model types may share a GGUF architecture."""

    model_types: tuple[ModelType, ...]
    gguf: tuple[GGUFArchitecture, ...] = ()
