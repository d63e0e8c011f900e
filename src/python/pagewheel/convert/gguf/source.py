"""A GGUF file as an Architecture and its weights."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov

from ...errors import ConversionError
from ..architectures.entry import FilePart, Part
from ..architectures.gguf_config import GGUFConfig, Metadata
from ..architectures.registry import (
    gguf_architecture,
    read_architecture,
    recipe,
)
from ..decoder.architecture import NAMES_IN_HEAD_BLOCK, Architecture, weight_shapes
from ..decoder.rotary import RotaryEmbedding
from ..files.mapped_file import MappedTensor, PagesInUse
from ..weights.weight import (
    DenseWeight,
    QuantizedWeight,
    Weight,
    dense_f32,
    with_column_blocks,
)
from .blocks import decode, decode_joined, decode_transposed
from .file import GGUFFile

_OUTSIDE_LAYERS = {
    "embed_tokens": "token_embd.weight",
    "norm": "output_norm.weight",
    "norm.bias": "output_norm.bias",
    "lm_head": "output.weight",
    "lm_head.bias": "output.bias",
    "embed_tokens_per_layer": "per_layer_token_embd.weight",
    "per_layer_model_projection": "per_layer_model_proj.weight",
    "per_layer_projection_norm": "per_layer_proj_norm.weight",
}
# One tensor for several matrices, whose names end with a point and their number.
_STACKED = {
    "altup_projections": "altup_proj.weight",
    "altup_unembed_projections": "altup_unembd_proj.weight",
}
# What only one architecture has is named in its file.
_IN_LAYERS = {
    **{f"self_attn.{each}_proj": f"attn_{each}" for each in "qkv"},
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.sinks": "attn_sinks",
    **{
        f"mlp.{which}{part}_proj": f"ffn_{part}{suffix}"
        for which, suffix in (("", ""), ("experts.", "_exps"), ("shared_experts.", "_shexp"))
        for part in ("gate", "up", "down")
    },
    "mlp.gate": "ffn_gate_inp",
    "layer_scalar": "layer_output_scale",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}
# In the order of NormPlacement's values.
_NORMS = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
# They are read into the rotary embedding and are no weights of the graph.
_ROTARY_TENSORS = frozenset(
    {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}
)
_KEYS_AND_VALUES = ("attn_k", "attn_v", "attn_k_norm")


@dataclass(frozen=True)
class _Place:
    """Where a weight is: a tensor of `shape`, of which `rows` are the weight's, in their order.

    Rows are counted over all dimensions but the last. `transposed`: the tensor's last two
    dimensions are swapped first. `below` are tensors whose rows follow.
    """

    tensor: str
    shape: tuple[int, ...]
    rows: slice | npt.NDArray[np.intp] | None = None
    transposed: bool = False
    below: tuple[_Place, ...] = ()


@dataclass(frozen=True)
class _ExpertStack:
    """What a tensor of all experts would be, of files with one for each (llama.cpp's before
    2024-04).
    """

    experts: tuple[MappedTensor, ...]

    @property
    def type(self) -> Any:
        return self.experts[0].type

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.experts), *self.experts[0].shape)

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        return np.concatenate([each.data for each in self.experts])


class GGUFSource:
    """Reads the architecture at once, each weight when it is asked for.

    Weight names are Hugging Face's without "model." and ".weight":
    "embed_tokens", "layers.0.self_attn.q_proj", "norm", "lm_head"...
    """

    def __init__(self, file: GGUFFile) -> None:
        self.file = file
        self._tensors = _with_expert_stacks(file)
        self.numbers = GGUFConfig(
            Metadata(file.metadata, file.path),
            {name: tensor.shape for name, tensor in self._tensors.items()},
            self._vector,
        )
        self.kind = gguf_architecture(self.numbers)
        self.config = self.kind.config(self.numbers)
        self.architecture = self._read_architecture()
        self._first_block = 0
        self._describe_weights()

    def head(self) -> GGUFSource | None:
        """The head that guesses further tokens as a source of its own, if there is one."""
        mtp = self.architecture.mtp
        if mtp is None or self._of_head("fc") not in self._tensors:
            return None
        head = copy(self)
        head._first_block = self.numbers.layers
        shares = all(self._of_head(n) not in self._tensors for n in ("embed_tokens", "lm_head"))
        head.architecture = replace(
            self.architecture,
            layers=mtp.layers,
            reads_hidden_states=True,
            tied_embeddings=shares and mtp.tied_embeddings,
            mtp=None,
        )
        head._describe_weights()
        return head

    def _describe_weights(self) -> None:
        self._shapes = weight_shapes(self.architecture)
        self._places = self._find_weights()
        self._check_tensors()
        self._pages = PagesInUse()

    def weight(self, name: str) -> Weight:
        """The weight in the row order Hugging Face's models use.

        Raises ConversionError for a type that is not supported.
        """
        place, shape = self._places[name], self._shapes[name]
        tensors = [self._tensors[each.tensor] for each in (place, *place.below)]
        tensor = tensors[0]
        self._pages.give_back()
        for one in tensors:
            for each in one.experts if isinstance(one, _ExpertStack) else (one,):
                self._pages.hold(each.pages)
        weight: Weight
        try:
            if place.below:
                weight = decode_joined(name, shape, [(each.type, each.data) for each in tensors])
            elif place.transposed:
                weight = decode_transposed(place.tensor, tensor.type, place.shape, tensor.data)
            else:
                data = tensor.data if place.rows is None else tensor.data[place.rows]
                weight = decode(place.tensor, tensor.type, shape, data)
            weight = self._restored(name, weight)
        except ConversionError as error:
            raise ConversionError(f"{self.file.path}: {error}") from None
        if isinstance(weight, QuantizedWeight):  # no view of the file
            self._pages.give_back()
        return weight

    def _restored(self, name: str, weight: Weight) -> Weight:
        part = self.kind.part(self.architecture, name)
        if part is not None and part.columns is not None:
            weight = with_column_blocks(weight, part.columns)
        if part is not None and part.negative_exponential:
            values = -dense_f32(weight)
            if not (values > 0).all():
                raise ConversionError(f"tensor {part.tensor!r} must hold negative numbers")
            weight = DenseWeight(np.log(values), ov.Type.f32)
        return weight

    def _vector(self, name: str) -> list[float]:
        tensor = self._tensors[name]
        values = dense_f32(decode(name, tensor.type, tensor.shape, tensor.data))
        return [float(each) for each in values]

    def _read_architecture(self) -> Architecture:
        arch = read_architecture(self.config, str(self.file.path))
        if self.kind.norms_with_offset:
            arch = replace(arch, norm_offset=0.0)
        if "rope_freqs.weight" in self.file.tensors and self.kind.frequency_divisors:
            # Llama 3's file holds quotients, not the four numbers config.json would.
            self.config["rope_scaling"] = {"rope_type": "llama3"}
            arch = replace(arch, rotary=(self._divided(arch.rotary[0]), *arch.rotary[1:]))
        return arch

    def _divided(self, rotary: RotaryEmbedding) -> RotaryEmbedding:
        name = "rope_freqs.weight"
        divisors = self.numbers.vector(name)
        if len(divisors) != len(rotary.inverse_frequencies):
            raise ConversionError(
                f"{self.file.path}: tensor {name!r} has shape [{len(divisors)}], the rotary "
                f"dimensions ask for [{len(rotary.inverse_frequencies)}]"
            )
        pairs = zip(rotary.inverse_frequencies, divisors, strict=True)
        return replace(rotary, inverse_frequencies=tuple(f / d for f, d in pairs))

    def _find_weights(self) -> dict[str, _Place]:
        norms = zip(self.architecture.norms.value, _NORMS, strict=True)
        own_norms = {name: tensor for name, tensor in norms if name is not None}
        in_layers = {**_IN_LAYERS, **own_norms, **self.kind.names}
        places = self._fused_places(in_layers) if self.kind.fused_as_in_checkpoint else {}
        for name, shape in self._shapes.items():
            if name in places:
                continue
            if name.startswith("layers."):
                _, layer, part = name.split(".", 2)
                block = f"blk.{self._first_block + int(layer)}."
                own = self.kind.part(self.architecture, name)
                if own is not None:
                    places[name] = _place_of_part(own, block)
                    continue
                places[name] = _Place(block + _tensor_name(part, in_layers), shape)
            elif name in {**_OUTSIDE_LAYERS, **NAMES_IN_HEAD_BLOCK}:
                places[name] = _Place(self._outside_layers(name), shape)
            else:
                places[name] = self._stacked_place(name, shape)
            if self._is_interleaved(name):
                rows = self._half_split_rows(name, shape[0])
                places[name] = replace(places[name], rows=rows)
        return places

    def _of_head(self, name: str) -> str:
        tensor = NAMES_IN_HEAD_BLOCK[name].replace(".", "_")
        return f"blk.{self.numbers.layers}.nextn.{tensor}.weight"

    def _outside_layers(self, name: str) -> str:
        model = self.kind.names.get(name) or _OUTSIDE_LAYERS.get(name)
        if self.architecture.reads_hidden_states and name in NAMES_IN_HEAD_BLOCK:
            if model is None or name == "norm" or self._of_head(name) in self._tensors:
                return self._of_head(name)
            if name == "lm_head" and self.config["tie_word_embeddings"]:
                return _OUTSIDE_LAYERS["embed_tokens"]
        assert model is not None
        return model

    def _is_interleaved(self, name: str) -> bool:
        """Without rotation the order of channels, alike in queries and keys, is no matter."""
        if not self.kind.interleaved or not name.endswith(("self_attn.q_proj", "self_attn.k_proj")):
            return False
        return self.architecture.layers[int(name.split(".")[1])].attention.rotary is not None

    def _stacked_place(self, name: str, shape: tuple[int, ...]) -> _Place:
        stem, _, index = name.rpartition(".")
        count = sum(each.startswith(f"{stem}.") for each in self._shapes)
        rows = slice(int(index) * shape[0], (int(index) + 1) * shape[0])
        return _Place(_STACKED[stem], (count, *shape), rows)

    def _fused_places(self, in_layers: Mapping[str, str]) -> dict[str, _Place]:
        """Weights that are rows of a larger tensor, in the checkpoint's order.

        DeepSeek's files since 2025-04 have the keys' and values' second projection in tensors
        of their own.
        """
        places = {}
        for name, shape in self._shapes.items():
            part = recipe(self.architecture, name)[0]
            if part.rows is None:
                continue
            layer = int(name.split(".")[1])
            block = f"blk.{self._first_block + layer}."
            own = f"{block}attn_{name.rsplit('.', 1)[1].removesuffix('_proj')}.weight"
            if own in self.file.tensors and name.endswith(("k_b_proj", "v_b_proj")):
                places[name] = self._place_of_heads(name, own, shape, layer)
            else:
                places[name] = _place_of_rows(part, shape, block, in_layers)
        return places

    def _place_of_heads(self, name: str, tensor: str, shape: tuple[int, ...], layer: int) -> _Place:
        """A matrix for each head; those of keys are transposed."""
        heads = self.architecture.layers[layer].attention.heads
        rows, columns = shape[0] // heads, shape[1]
        if name.endswith("k_b_proj"):
            return _Place(tensor, (heads, columns, rows), transposed=True)
        return _Place(tensor, (heads, rows, columns))

    def _check_tensors(self) -> None:
        places = [each for one in self._places.values() for each in (one, *one.below)]
        for place in places:
            tensor = self._tensors.get(place.tensor)
            if tensor is None:
                raise ConversionError(f"{self.file.path}: the tensor {place.tensor!r} is missing")
            if _without_ones(tensor.shape) != _without_ones(place.shape):
                raise ConversionError(
                    f"{self.file.path}: tensor {place.tensor!r} has shape {list(tensor.shape)}, "
                    f"the metadata asks for {list(place.shape)}"
                )
        # Without a weight, a model would run and be wrong.
        known = {place.tensor for place in places} | _ROTARY_TENSORS
        for index, attention in self.architecture.attentions.items():
            if attention.cache_of is not None:  # its own keys and values are never read
                known |= {f"blk.{index}.{each}.weight" for each in _KEYS_AND_VALUES}
        of_heads = self._of_heads()
        unknown = sorted(
            each
            for each in self._tensors.keys() - known
            if (each in of_heads) == self.architecture.reads_hidden_states
        )
        if unknown:
            raise ConversionError(
                f"{self.file.path}: {len(unknown)} tensor(s) that a {self.kind.name} model does "
                f"not have, first {unknown[0]!r}"
            )

    def _of_heads(self) -> set[str]:
        """The tensors of blocks behind the last layer, each of which must be a head's."""
        blocks = defaultdict(set)
        for each in self._tensors:
            block = re.match(r"blk\.(\d{1,9})\.", each)
            if block is not None:
                blocks[int(block[1])].add(each)
        behind = range(self.numbers.layers, self.numbers.integer("block_count"))
        heads = (names for block, names in blocks.items() if block in behind)
        return {each for names in heads if any(".nextn." in n for n in names) for each in names}

    def _half_split_rows(self, name: str, rows: int) -> npt.NDArray[np.intp]:
        """Row order that undoes llama.cpp's.

        llama.cpp stores query and key rows so that channels 2i and 2i + 1 rotate together. The
        graph pairs i with i + dims/2, as the model was trained. Channels past the rotary
        dimensions stay where they are.
        """
        arch = self.architecture
        layer = arch.layers[int(name.split(".")[1])]
        size = layer.attention.head_size
        dims = arch.rotary[layer.attention.rotary or 0].dims
        head = np.concatenate([np.arange(0, dims, 2), np.arange(1, dims, 2), np.arange(dims, size)])
        order: npt.NDArray[np.intp] = np.arange(rows // size)[:, None] * size + head
        return order.reshape(-1)


def _with_expert_stacks(file: GGUFFile) -> dict[str, MappedTensor | _ExpertStack]:
    tensors: dict[str, MappedTensor | _ExpertStack] = {}
    stacks: dict[str, dict[int, MappedTensor]] = defaultdict(dict)
    for name, tensor in file.tensors.items():
        expert = re.fullmatch(r"(blk\.\d+\.ffn_(?:gate|up|down))\.(0|[1-9]\d{0,5})\.weight", name)
        if expert:
            stacks[f"{expert[1]}_exps.weight"][int(expert[2])] = tensor
        else:
            tensors[name] = tensor
    for name, experts in stacks.items():
        stack = tuple(experts[number] for number in sorted(experts))
        if (
            name in tensors
            or max(experts) >= len(experts)
            or any((each.type, each.shape) != (stack[0].type, stack[0].shape) for each in stack)
        ):
            raise ConversionError(
                f"{file.path}: {len(stack)} tensors like {stack[0].name!r} are no stack: "
                "experts must be numbered 0, 1, 2..., their types and shapes equal"
            )
        tensors[name] = _ExpertStack(stack)
    return tensors


def _tensor_name(part: str, in_layers: Mapping[str, str]) -> str:
    """A layer's weight or bias, without the layer's own name: self_attn.q_proj -> attn_q.weight."""
    stem = part.removesuffix(".bias").removesuffix("_bias")
    name = in_layers[stem]
    return name if "." in name else f"{name}.{'bias' if stem != part else 'weight'}"


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """llama.cpp writes a matrix of one row as a vector, and others with dimensions of 1."""
    return (*(each for each in shape[:-1] if each != 1), shape[-1])


def _place_of_part(part: FilePart, block: str) -> _Place:
    rows = None if part.rows is None else np.array(part.rows, np.intp)
    below = tuple(_place_of_part(each, block) for each in part.below)
    return _Place(block + part.tensor, part.shape, rows, below=below)


def _place_of_rows(
    part: Part, shape: tuple[int, ...], block: str, in_layers: Mapping[str, str]
) -> _Place:
    """Rows of a tensor that is named as in Hugging Face's checkpoint."""
    name = part.tensor.split(".", 2)[2]
    tensor = _tensor_name(name.removesuffix(".weight"), in_layers)
    rows = part.rows if isinstance(part.rows, slice) else np.array(part.rows, np.intp)
    if len(shape) == 3:  # of each matrix of a stack
        each = np.arange(shape[0] * part.length).reshape(shape[0], part.length)
        rows = each[:, rows].reshape(-1)
    return _Place(block + tensor, (*shape[:-2], part.length, shape[-1]), rows)
