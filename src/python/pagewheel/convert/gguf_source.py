"""A GGUF file as an Architecture and its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from .architecture import Architecture, NormPlacement
from .checkpoint_names import Part, recipe
from .config_reader import read_architecture
from .errors import ConversionError
from .gguf_blocks import decode, decode_transposed
from .gguf_config import GGUFConfig
from .gguf_file import GGUFFile
from .gguf_metadata import Metadata
from .gguf_readers import read_config
from .mapped_pages import PagesInUse
from .rotary import RotaryEmbedding
from .weight_shapes import weight_shapes
from .weights import QuantizedWeight, Weight

# Architectures whose query and key rows llama.cpp reorders, see `_half_split_rows`.
_INTERLEAVED = frozenset({"llama", "granite", "smollm3"})
# Their checkpoints hold norm weights - 1; llama.cpp adds the 1 when it writes a file.
_NORMS_WITH_OFFSET = frozenset({"gemma", "gemma2", "gemma3"})

_OUTSIDE_LAYERS = {
    "embed_tokens": "token_embd.weight",
    "norm": "output_norm.weight",
    "lm_head": "output.weight",
    "embed_tokens_per_layer": "per_layer_token_embd.weight",
    "per_layer_model_projection": "per_layer_model_proj.weight",
    "per_layer_projection_norm": "per_layer_proj_norm.weight",
}
# Of several matrices in one tensor, numbered behind a point.
_STACKED = {
    "altup_projections": "altup_proj.weight",
    "altup_unembed_projections": "altup_unembd_proj.weight",
}
_IN_LAYERS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.sinks": "attn_sinks",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
    "mlp.gate.e_score_correction": "exp_probs_b",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
    "layer_scalar": "layer_output_scale",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
    "altup.modality_router": "altup_router",
    "altup.router_norm": "altup_router_norm",
    "altup.prediction_coefs": "altup_predict_coef",
    "altup.correction_coefs": "altup_correct_coef",
    "altup.correct_output_scale": "altup_correct_scale",
    "laurel.linear_left": "laurel_l",
    "laurel.linear_right": "laurel_r",
    "laurel.post_laurel_norm": "laurel_post_norm",
}
_NORMS: Mapping[NormPlacement, Mapping[str, str]] = {
    NormPlacement.PRE: {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    },
    NormPlacement.POST: {
        "post_attention_layernorm": "post_attention_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    },
    NormPlacement.SANDWICH: {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    },
}
# What one architecture calls differently.
_OWN_NAMES: Mapping[str, Mapping[str, str]] = {
    "gpt-oss": {"post_attention_layernorm": "post_attention_norm"}
}
# Read into the rotary embedding, no weights of the graph.
_ROTARY_TENSORS = frozenset(
    {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}
)
_KEYS_AND_VALUES = ("attn_k", "attn_v", "attn_k_norm")


@dataclass(frozen=True)
class _Place:
    """Where a weight is: a tensor of `shape`, of which `rows` are the weight's, in their order.

    Rows are counted over all dimensions but the last. `transposed`: the tensor's last two
    dimensions are swapped first.
    """

    tensor: str
    shape: tuple[int, ...]
    rows: slice | npt.NDArray[np.intp] | None = None
    transposed: bool = False


class GGUFSource:
    """Reads the architecture at once, each weight when it is asked for.

    Weight names are Hugging Face's without "model." and ".weight":
    "embed_tokens", "layers.0.self_attn.q_proj", "norm", "lm_head"...
    """

    def __init__(self, file: GGUFFile) -> None:
        self.file = file
        self.metadata = Metadata(file)
        self.config = read_config(self.metadata, file.tensors)
        self.name: str = self.metadata.values["general.architecture"]
        self.architecture = self._read_architecture()
        self._shapes = weight_shapes(self.architecture)
        self._places = self._find_weights()
        self._check_tensors()
        self._pages = PagesInUse()

    def weight(self, name: str) -> Weight:
        """The weight in the row order Hugging Face's models use.

        Raises ConversionError for a type that is not supported.
        """
        place, shape = self._places[name], self._shapes[name]
        tensor = self.file.tensors[place.tensor]
        self._pages.give_back()
        self._pages.hold(tensor.pages)
        weight: Weight
        try:
            if place.transposed:
                weight = decode_transposed(place.tensor, tensor.type, place.shape, tensor.data)
            else:
                data = tensor.data if place.rows is None else tensor.data[place.rows]
                weight = decode(place.tensor, tensor.type, shape, data)
        except ConversionError as error:
            raise ConversionError(f"{self.file.path}: {error}") from None
        if isinstance(weight, QuantizedWeight):  # no view of the file
            self._pages.give_back()
        return weight

    def _read_architecture(self) -> Architecture:
        arch = read_architecture(self.config, str(self.file.path))
        if self.name in _NORMS_WITH_OFFSET:
            arch = replace(arch, norm_offset=0.0)
        if "rope_freqs.weight" in self.file.tensors and self.name != "gemma4":
            # Llama 3's file holds quotients, not the four numbers config.json would.
            self.config["rope_scaling"] = {"rope_type": "llama3"}
            arch = replace(arch, rotary=(self._divided(arch.rotary[0]), *arch.rotary[1:]))
        return arch

    def _divided(self, rotary: RotaryEmbedding) -> RotaryEmbedding:
        name = "rope_freqs.weight"
        divisors = GGUFConfig(self.metadata, self.file.tensors).vector(name)
        if divisors.shape != (len(rotary.inverse_frequencies),):
            raise ConversionError(
                f"{self.file.path}: tensor {name!r} has shape {list(divisors.shape)}, the rotary "
                f"dimensions ask for [{len(rotary.inverse_frequencies)}]"
            )
        pairs = zip(rotary.inverse_frequencies, divisors.tolist(), strict=True)
        return replace(rotary, inverse_frequencies=tuple(f / d for f, d in pairs))

    def _find_weights(self) -> dict[str, _Place]:
        arch = self.architecture
        in_layers = {**_IN_LAYERS, **_NORMS[arch.norms], **_OWN_NAMES.get(self.name, {})}
        places = self._latent_places() if self.name == "deepseek2" else {}
        for name, shape in self._shapes.items():
            if name in places:
                continue
            if name.startswith("layers."):
                _, layer, part = name.split(".", 2)
                places[name] = _Place(f"blk.{layer}.{_tensor_name(part, in_layers)}", shape)
            elif name in _OUTSIDE_LAYERS:
                places[name] = _Place(_OUTSIDE_LAYERS[name], shape)
            else:
                places[name] = self._stacked_place(name, shape)
            if self.name in _INTERLEAVED and name.endswith(("q_proj", "k_proj")):
                rows = self._half_split_rows(name, shape[0])
                places[name] = replace(places[name], rows=rows)
        if self.name == "phi3":
            places.update(self._fused_places())
        return places

    def _stacked_place(self, name: str, shape: tuple[int, ...]) -> _Place:
        stem, _, index = name.rpartition(".")
        count = sum(each.startswith(f"{stem}.") for each in self._shapes)
        rows = slice(int(index) * shape[0], (int(index) + 1) * shape[0])
        return _Place(_STACKED[stem], (count, *shape), rows)

    def _latent_places(self) -> dict[str, _Place]:
        """DeepSeek's rows are in the order of its checkpoints; files since 2025-04 have keys'
        and values' second projection apart, the keys' transposed.
        """
        places = {}
        for name, shape in self._shapes.items():
            if ".self_attn." not in name:
                continue
            part = recipe(self.architecture, name)[0]
            if part.rows is None:
                continue
            layer = int(name.split(".")[1])
            own = f"blk.{layer}.attn_{name.rsplit('.', 1)[1].removesuffix('_proj')}.weight"
            if own in self.file.tensors and name.endswith(("k_b_proj", "v_b_proj")):
                places[name] = self._place_of_heads(name, own, shape, layer)
            else:
                places[name] = _place_of_rows(part, shape)
        return places

    def _place_of_heads(self, name: str, tensor: str, shape: tuple[int, ...], layer: int) -> _Place:
        heads = self.architecture.layers[layer].attention.heads
        rows, columns = shape[0] // heads, shape[1]
        if name.endswith("k_b_proj"):
            return _Place(tensor, (heads, columns, rows), transposed=True)
        return _Place(tensor, (heads, rows, columns))

    def _fused_places(self) -> dict[str, _Place]:
        """Phi-3 keeps query, key and value in one matrix, and gate and up in another."""
        places = {}
        for layer in range(len(self.architecture.layers)):
            for tensor, names in (
                ("attn_qkv", [f"self_attn.{each}_proj" for each in "qkv"]),
                ("ffn_up", ["mlp.gate_proj", "mlp.up_proj"]),
            ):
                full = [f"layers.{layer}.{name}" for name in names]
                total = sum(self._shapes[name][0] for name in full)
                start = 0
                for name in full:
                    rows, columns = self._shapes[name]
                    place = _Place(
                        f"blk.{layer}.{tensor}.weight", (total, columns), slice(start, start + rows)
                    )
                    places[name] = place
                    start += rows
        return places

    def _check_tensors(self) -> None:
        for place in self._places.values():
            tensor = self.file.tensors.get(place.tensor)
            if tensor is None:
                raise ConversionError(f"{self.file.path}: the tensor {place.tensor!r} is missing")
            if tensor.shape != place.shape:
                raise ConversionError(
                    f"{self.file.path}: tensor {place.tensor!r} has shape {list(tensor.shape)}, "
                    f"the metadata asks for {list(place.shape)}"
                )
        # Leaving a weight out would give a model that runs and is wrong.
        known = {place.tensor for place in self._places.values()} | _ROTARY_TENSORS
        for index, layer in enumerate(self.architecture.layers):
            if layer.attention.cache_of is not None:  # its own keys and values are never read
                known |= {f"blk.{index}.{each}.weight" for each in _KEYS_AND_VALUES}
        unknown = sorted(self.file.tensors.keys() - known)
        if unknown:
            raise ConversionError(
                f"{self.file.path}: {len(unknown)} tensor(s) that a {self.name} model does not "
                f"have, first {unknown[0]!r}"
            )

    def _half_split_rows(self, name: str, rows: int) -> npt.NDArray[np.intp]:
        """Row order that undoes llama.cpp's.

        llama.cpp stores query and key rows so that channels 2i and 2i + 1 turn together;
        the graph pairs i with i + dims/2, as the model was trained. Channels past the
        rotary dimensions stay where they are.
        """
        arch = self.architecture
        layer = arch.layers[int(name.split(".")[1])]
        size = layer.attention.head_size
        dims = arch.rotary[layer.attention.rotary or 0].dims
        head = np.concatenate([np.arange(0, dims, 2), np.arange(1, dims, 2), np.arange(dims, size)])
        order: npt.NDArray[np.intp] = np.arange(rows // size)[:, None] * size + head
        return order.reshape(-1)


def _tensor_name(part: str, in_layers: Mapping[str, str]) -> str:
    """A layer's weight or bias, without the layer's own name: self_attn.q_proj -> attn_q.weight."""
    stem = part.removesuffix(".bias").removesuffix("_bias")
    return f"{in_layers[stem]}.{'bias' if stem != part else 'weight'}"


def _place_of_rows(part: Part, shape: tuple[int, ...]) -> _Place:
    """Rows of a tensor that is named as in Hugging Face's checkpoint."""
    _, layer, name = part.tensor.split(".", 2)
    tensor = _tensor_name(name.removesuffix(".weight"), _IN_LAYERS)
    rows = part.rows if isinstance(part.rows, slice) else np.array(part.rows, np.intp)
    return _Place(f"blk.{layer}.{tensor}", (part.length, *shape[1:]), rows)
