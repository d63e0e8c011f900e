"""A Hugging Face folder (config.json and safetensors) as an Architecture and its weights."""

from __future__ import annotations

import math
import re
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov

from ...errors import ConversionError
from ..architectures.entry import Part, Recipe
from ..architectures.reader import ModelConfig
from ..architectures.registry import other_recipe, read_architecture, recipe
from ..decoder.architecture import NAMES_IN_HEAD_BLOCK, weight_shapes
from ..files.mapped_file import MappedTensor, PagesInUse
from ..files.source_folder import SourceFolder
from ..weights.weight import DenseWeight, QuantizedWeight, Weight, dense_f32
from .safetensors_file import DECODED, DENSE_TYPES, dequantize, read_checkpoint

# Where the text decoder's weights are in models with more than a text part.
_PREFIXES = ("model.", "backbone.", "model.language_model.", "language_model.model.", "")
# Not part of the decoder, or computed from the config.
_IGNORED = re.compile(
    r"rotary_emb\.|(^|\.)masked_bias$|\.(k|v|input)_scale$"
    r"|(^|\.)(vision_tower|audio_tower|multi_modal_projector|embed_vision|embed_audio|visual)\."
)
# Of the head that guesses further tokens where it is no block behind the last layer.
_HEAD_PREFIX = "mtp."
_KEYS_AND_VALUES = ("k_proj", "v_proj", "k_norm", "v_norm")
_SCALE_SUFFIXES = ("_scale_inv", "_scale")  # of f8 tensors
# `quantization_config.quant_method` that are read: f8 with scales beside it, gpt-oss' MXFP4.
_QUANTIZED = ("fp8", "mxfp4")


class HuggingFaceSource:
    """Checks config, names and shapes at once; reads each weight when it is asked for."""

    def __init__(self, folder: SourceFolder, *, context_length: int | None = None) -> None:
        self.folder = folder
        config = folder.read_json("config.json")
        if config is None:
            raise ConversionError(f"{folder.path} holds no config.json")
        where = str(folder.path / "config.json")
        self.config = _text_config(config)
        self._check_quantization(where)
        self.architecture = read_architecture(self.config, where, context_length=context_length)
        self.tensors = read_checkpoint(folder)
        self._shapes = weight_shapes(self.architecture)
        self._layers = len(self.architecture.layers)  # the model's, also where this is its head
        # Blocks behind the last layer that guess further tokens.
        default = int(self.architecture.mtp is not None)
        self._heads = ModelConfig(self.config, where).integer("num_nextn_predict_layers", default)
        self._prefix = self._find_prefix()
        self._pages = PagesInUse()
        self._check_tensors()

    def head(self) -> HuggingFaceSource | None:
        """The head that guesses further tokens as a source of its own, if there is one."""
        arch = self.architecture.mtp
        if arch is None or self._name_of_head("fc.weight") not in self.tensors:
            return None
        head = copy(self)
        head.architecture, head._shapes = arch, weight_shapes(arch)
        head._pages = PagesInUse()
        head._check_tensors()
        return head

    def weight(self, name: str) -> Weight:
        """The weight as the checkpoint holds it; f8 as f32."""
        self._pages.give_back()
        parts = self._recipe(name)
        if self._is_packed(parts[0]):
            return self._packed(parts[0])
        return self._part(parts[0]) if len(parts) == 1 else self._stack(name, parts)

    def give_back_pages(self) -> None:
        """Gives back the last weight's pages, for who has made something else of it."""
        self._pages.give_back()

    @property
    def num_parameters(self) -> int:
        return sum(math.prod(shape) for shape in self._shapes.values())

    def _recipe(self, name: str) -> Recipe:
        parts = recipe(self.architecture, name)
        if self._stored_name(parts[0].tensor) in self.tensors:
            return parts
        return other_recipe(self.architecture, name) or parts

    def _find_prefix(self) -> str:
        name = recipe(self.architecture, next(iter(self._shapes)))[0].tensor
        for prefix in _PREFIXES:
            if f"{prefix}{name}" in self.tensors:
                return prefix
        raise ConversionError(f"{self.folder.path}: no tensor is named '*{name}'")

    def _check_quantization(self, where: str) -> None:
        quantization = self.config.get("quantization_config")
        if quantization is None:
            return
        method = quantization.get("quant_method") if isinstance(quantization, dict) else None
        if method not in _QUANTIZED:
            raise ConversionError(
                f"{where}: checkpoints quantised by {method!r} are not supported; supported: "
                f"{', '.join(_QUANTIZED)} and not quantised ones"
            )

    def _stored_name(self, tensor: str) -> str:
        if self.architecture.reads_hidden_states:
            own = self._name_of_head(tensor)
            if own in self.tensors or not tensor.startswith(("embed_tokens.", "lm_head.")):
                return own
        return tensor if tensor.startswith(("lm_head.", "d2t")) else self._prefix + tensor

    @property
    def _head_block(self) -> str:
        """How names of the layer behind the model's last one begin."""
        return f"{self._prefix}layers.{self._layers}."

    def _name_of_head(self, tensor: str) -> str:
        if f"{self._head_block}eh_proj.weight" not in self.tensors:
            return _HEAD_PREFIX + tensor
        weight = tensor.removesuffix(".weight")
        if weight in NAMES_IN_HEAD_BLOCK:
            return f"{self._head_block}{NAMES_IN_HEAD_BLOCK[weight]}.weight"
        return self._head_block + tensor.removeprefix("layers.0.")

    def _stored(self, part: Part) -> MappedTensor:
        name = self._stored_name(part.tensor)
        if name not in self.tensors:
            raise ConversionError(f"{self.folder.path}: the tensor {name!r} is missing")
        return self.tensors[name]

    def _part(self, part: Part) -> DenseWeight:
        tensor = self._stored(part)
        self._pages.hold(tensor.pages)
        weight = self._dense(tensor)
        values = weight.values[0] if part.unsqueezed else weight.values
        if part.transposed:
            values = values.swapaxes(-1, -2)
        if part.rows is not None:
            values = values[(..., part.rows) + (slice(None),) * (-1 - part.axis)]
        if part.scales:
            return _scaled(DenseWeight(values, weight.element_type), part.scales)
        return DenseWeight(values, weight.element_type)

    def _stack(self, name: str, parts: Recipe) -> DenseWeight:
        """Filled part by part: beside the stack there is one of them at a time."""
        stack: npt.NDArray[Any] | None = None
        element_type, begin = ov.Type.f32, 0
        for part in parts:
            each = self._part(part)
            if stack is None:
                stack = np.empty(self._shapes[name], each.values.dtype)
                element_type = each.element_type
            if each.element_type != element_type:
                raise ConversionError(
                    f"{self.folder.path}: the parts of {name!r} must be stored in one type, got "
                    f"{element_type.to_string()} and {each.element_type.to_string()}"
                )
            end = begin + (part.joined or 1)
            stack[begin:end] = each.values
            begin = end
            self._pages.give_back()
        assert stack is not None
        return DenseWeight(stack, element_type)

    def _is_packed(self, part: Part) -> bool:
        return f"{self._stored_name(part.tensor)}_blocks" in self.tensors

    def _blocks_and_scales(self, part: Part) -> tuple[MappedTensor, MappedTensor]:
        """MXFP4: u8 [experts, out, in / 32, 16] with two values a byte, the first one low, and
        exponents u8 [experts, out, in / 32]. It is not transposed, as unpacked weights are.
        """
        names = [f"{self._stored_name(part.tensor)}_{each}" for each in ("blocks", "scales")]
        for name in names:
            if name not in self.tensors:
                raise ConversionError(f"{self.folder.path}: the tensor {name!r} is missing")
        return self.tensors[names[0]], self.tensors[names[1]]

    def _packed(self, part: Part) -> QuantizedWeight:
        blocks, scales = self._blocks_and_scales(part)
        self._pages.hold(blocks.pages)
        self._pages.hold(scales.pages)
        rows = slice(None) if part.rows is None else part.rows
        values = blocks.data.reshape(blocks.shape)[:, rows]
        exponents = scales.data.reshape(scales.shape)[:, rows].astype(np.int32)
        scale = np.ldexp(np.float32(1), exponents - 127).astype(np.float32)
        values = values.reshape(*values.shape[:2], -1)
        return QuantizedWeight(values, ov.Type.f4e2m1, scale, None)

    def _dense(self, tensor: MappedTensor) -> DenseWeight:
        if tensor.type in DENSE_TYPES:
            dtype, element_type = DENSE_TYPES[tensor.type]
            values: npt.NDArray[Any] = tensor.data.view(dtype).reshape(tensor.shape)
            return DenseWeight(values, element_type)
        if (tensor.type, tensor.name) == ("I64", "d2t"):
            return DenseWeight(tensor.data.view("<i8").reshape(tensor.shape), ov.Type.i64)
        if tensor.type == "F64":
            values = tensor.data.view("<f8").reshape(tensor.shape).astype(np.float32)
            return DenseWeight(values, ov.Type.f32)
        if tensor.type in DECODED:
            return DenseWeight(dequantize(tensor, self._scale_of(tensor)), ov.Type.f32)
        raise ConversionError(
            f"{self.folder.path}: tensor {tensor.name!r} has type {tensor.type}, not supported"
        )

    def _scale_of(self, tensor: MappedTensor) -> MappedTensor | None:
        for suffix in _SCALE_SUFFIXES:
            found = self.tensors.get(tensor.name + suffix)
            if found is not None:
                return found
        return None

    def _check_tensors(self) -> None:
        used: set[str] = set()
        for name, shape in self._shapes.items():
            parts = self._recipe(name)
            for part in parts:
                own = shape if len(parts) == 1 else shape[1:]
                used |= self._check_part(part, (part.joined, *own) if part.joined else own)
        if self.architecture.tied_embeddings:
            # Copies of the embeddings.
            used |= {"lm_head.weight", self._name_of_head("lm_head.weight")}
        if self.architecture.eagle3 is not None:  # the model's embeddings, and maps of tokens
            used |= {f"{self._prefix}embed_tokens.weight", "t2d", "d2t"}
        for index, attention in self.architecture.attentions.items():
            if attention.cache_of is not None:  # its own keys and values are never read
                prefix = f"{self._prefix}layers.{index}.self_attn"
                used |= {f"{prefix}.{each}.weight" for each in _KEYS_AND_VALUES}
        # Leaving a weight out would give a model that runs and is wrong.
        behind = range(self._layers, self._layers + min(self._heads, 64))
        of_heads = (_HEAD_PREFIX, *(f"{self._prefix}layers.{layer}." for layer in behind))
        unknown = sorted(
            each
            for each in self.tensors.keys() - used
            if each.startswith(of_heads) == self.architecture.reads_hidden_states
            and not _IGNORED.search(each)
        )
        if unknown:
            raise ConversionError(
                f"{self.folder.path}: {len(unknown)} tensor(s) that a "
                f"{self.architecture.model_type} model of this config does not have, "
                f"first {unknown[0]!r}"
            )

    def _check_part(self, part: Part, shape: tuple[int, ...]) -> set[str]:
        """The names of the tensors the part reads, whose shapes are right."""
        stored = part.stored_shape(shape)
        if not self._is_packed(part):
            tensor = self._stored(part)
            self._check_shape(tensor, stored)
            return {tensor.name + suffix for suffix in ("", *_SCALE_SUFFIXES)}
        experts, columns, rows = stored
        blocks, scales = self._blocks_and_scales(part)
        self._check_shape(blocks, (experts, rows, columns // 32, 16))
        self._check_shape(scales, (experts, rows, columns // 32))
        return {blocks.name, scales.name}

    def _check_shape(self, tensor: MappedTensor, expected: tuple[int, ...]) -> None:
        if tensor.shape != expected:
            raise ConversionError(
                f"{self.folder.path}: tensor {tensor.name!r} has shape {list(tensor.shape)}, "
                f"config.json asks for {list(expected)}"
            )


def _scaled(weight: DenseWeight, scales: tuple[tuple[float, int], ...]) -> DenseWeight:
    """In f32: the products are not rounded."""
    factors = np.array([factor for factor, _ in scales], np.float32)
    if len(scales) > 1:
        factors = np.repeat(factors, [count for _, count in scales])
    values = dense_f32(weight)
    return DenseWeight(values * factors.reshape(-1, *[1] * (values.ndim - 1)), ov.Type.f32)


def _text_config(config: dict[str, Any]) -> dict[str, Any]:
    """The config of the text decoder of a model with more parts."""
    text = config.get("text_config")
    if not isinstance(text, dict):
        return config
    shared = ("bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings")
    outer = {key: config[key] for key in (*shared, "quantization_config") if key in config}
    return {**outer, **text}
