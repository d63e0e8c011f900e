"""A GGUF file of the llama architecture as an Architecture and its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .architecture import Architecture, Mlp
from .config_reader import read_architecture
from .errors import ConversionError
from .gguf_blocks import decode
from .gguf_file import GGUFFile, GGUFTensor
from .rotary import RotaryEmbedding, inverse_frequencies
from .weights import Weight, dense_f32, take_rows

SUPPORTED_ARCHITECTURES = ("llama",)

# Far above any model's; keeps a damaged file from asking for that many rotary frequencies.
MAX_HEAD_SIZE = 65_536

# Keys that change what the model computes and that this graph does not know. A value
# in the tuple means "as if the key was not there".
_REFUSED_KEYS: Mapping[str, tuple[Any, ...]] = {
    "expert_count": (0,),
    "attention.sliding_window": (0,),
    "attention.scale": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.clamp_kqv": (0.0,),
    "logit_scale": (0.0, 1.0),
    "embedding_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
}


class Metadata:
    """Typed access to a GGUF file's keys; every error names the file and the key."""

    def __init__(self, file: GGUFFile) -> None:
        self.values = file.metadata
        self.path = file.path

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """The key's value, or `default` where the key is missing."""
        value = self.values.get(key)
        if value is None:
            return default
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            names = " or ".join(each.__name__ for each in kinds)
            raise ConversionError(f"{self.path}: {key} must be {names}, got {value!r:.80}")
        return value

    def require(self, key: str, kind: type | tuple[type, ...]) -> Any:
        value = self.get(key, kind)
        if value is None:
            raise ConversionError(f"{self.path}: the key {key} is missing")
        return value

    def uniform(self, key: str, layers: int, default: int | None = None) -> int:
        """An integer that some files give once and others once per layer."""
        value = self.get(key, (int, list), default)
        if value is None:
            raise ConversionError(f"{self.path}: the key {key} is missing")
        if isinstance(value, list):
            if len(value) != layers or len(set(value)) != 1 or not isinstance(value[0], int):
                raise ConversionError(
                    f"{self.path}: {key} differs between layers, not supported: {value!r:.80}"
                )
            return int(value[0])
        return int(value)


class GGUFSource:
    """Reads the architecture at once, each weight when it is asked for.

    Weight names are Hugging Face's without "model." and ".weight":
    "embed_tokens", "layers.0.self_attn.q_proj", "norm", "lm_head"...
    """

    def __init__(self, file: GGUFFile) -> None:
        self.file = file
        self.metadata = Metadata(file)
        name = self.metadata.require("general.architecture", str)
        if name not in SUPPORTED_ARCHITECTURES:
            raise ConversionError(
                f"{file.path}: the architecture {name!r} is not supported; "
                f"supported: {', '.join(SUPPORTED_ARCHITECTURES)}"
            )
        self.config, self.architecture = _read_architecture(self.metadata, file.tensors)
        self._shapes = _expected_shapes(self.architecture)
        self._check_tensors()

    def weight(self, name: str) -> Weight:
        """The weight in the row order Hugging Face's models use.

        Raises ConversionError for a type that is not supported.
        """
        gguf_name, shape = self._shapes[name]
        tensor = self.file.tensors[gguf_name]
        try:
            weight = decode(gguf_name, tensor.type, shape, tensor.data)
        except ConversionError as error:
            raise ConversionError(f"{self.file.path}: {error}") from None
        if name.endswith(("q_proj", "k_proj")):
            return take_rows(weight, _half_split_rows(shape[0], self.architecture))
        return weight

    def _check_tensors(self) -> None:
        for name, shape in self._shapes.values():
            tensor = self.file.tensors.get(name)
            if tensor is None:
                raise ConversionError(f"{self.file.path}: the tensor {name!r} is missing")
            if tensor.shape != shape:
                raise ConversionError(
                    f"{self.file.path}: tensor {name!r} has shape {list(tensor.shape)}, "
                    f"the metadata asks for {list(shape)}"
                )
        known = {name for name, _ in self._shapes.values()} | {"rope_freqs.weight"}
        # Leaving a weight out would give a model that runs and is wrong.
        unknown = sorted(self.file.tensors.keys() - known)
        if unknown:
            raise ConversionError(
                f"{self.file.path}: {len(unknown)} tensor(s) that a "
                f"{self.architecture.model_type} model does not have, first {unknown[0]!r}"
            )


def _read_architecture(
    metadata: Metadata, tensors: Mapping[str, GGUFTensor]
) -> tuple[dict[str, Any], Architecture]:
    """The model's config.json and the architecture it describes, with the file's own rotation."""

    def key(name: str) -> str:
        return f"llama.{name}"

    for name, neutral in _REFUSED_KEYS.items():
        value = metadata.values.get(key(name))
        if value is not None and value not in neutral:
            raise ConversionError(
                f"{metadata.path}: {key(name)} = {value!r:.80} is not supported yet"
            )
    layers = metadata.require(key("block_count"), int)
    if layers > len(tensors):  # before anything is made for each layer
        raise ConversionError(
            f"{metadata.path}: {key('block_count')} = {layers}, but there are {len(tensors)} tensors"
        )
    hidden_size = metadata.require(key("embedding_length"), int)
    heads = metadata.uniform(key("attention.head_count"), layers)
    if heads <= 0 or hidden_size <= 0:
        raise ConversionError(
            f"{metadata.path}: {heads} heads and hidden size {hidden_size} must be positive"
        )
    head_size = metadata.get(key("attention.key_length"), int, hidden_size // heads)
    value_size = metadata.get(key("attention.value_length"), int, head_size)
    if value_size != head_size:
        raise ConversionError(
            f"{metadata.path}: value heads of {value_size} beside key heads of {head_size} "
            "are not supported"
        )
    embedding = tensors.get("token_embd.weight")
    if embedding is None:
        raise ConversionError(f"{metadata.path}: the tensor 'token_embd.weight' is missing")
    try:
        rotary, scaling = _read_rotary(metadata, head_size, tensors.get("rope_freqs.weight"))
    except ConversionError as error:
        raise ConversionError(f"{metadata.path}: {error}") from None
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden_size,
        "intermediate_size": metadata.uniform(key("feed_forward_length"), layers),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.uniform(key("attention.head_count_kv"), layers, heads),
        "head_dim": head_size,
        "hidden_act": "silu",
        "rms_norm_eps": metadata.require(key("attention.layer_norm_rms_epsilon"), float),
        "rope_theta": rotary.theta,
        "partial_rotary_factor": rotary.dims / head_size,
        "max_position_embeddings": metadata.require(key("context_length"), int),
        "vocab_size": metadata.get(key("vocab_size"), int, embedding.shape[0]),
        "tie_word_embeddings": "output.weight" not in tensors,
        "attention_bias": False,
        "mlp_bias": False,
    }
    # The file holds the frequencies themselves; config.json only names what was done to them.
    arch = replace(read_architecture(config, str(metadata.path)), rotary=(rotary,))
    return {**config, "rope_scaling": scaling}, arch


def _read_rotary(
    metadata: Metadata, head_size: int, divisors: GGUFTensor | None
) -> tuple[RotaryEmbedding, dict[str, Any] | None]:
    """The rotation and the `rope_scaling` of config.json that names it."""
    dims = metadata.get("llama.rope.dimension_count", int, head_size)
    theta = metadata.get("llama.rope.freq_base", float, 10000.0)
    if not 0 < dims <= min(head_size, MAX_HEAD_SIZE) or dims % 2 or not 0 < theta < float("inf"):
        raise ConversionError(
            f"llama.rope.dimension_count = {dims} and llama.rope.freq_base = {theta} "
            f"do not fit heads of {head_size}"
        )
    frequencies = inverse_frequencies(dims, theta)
    kind = metadata.get("llama.rope.scaling.type", str, "none")
    factor = metadata.get("llama.rope.scaling.factor", float, 0.0)
    old_factor = metadata.get("llama.rope.scale_linear", float, 0.0)
    if old_factor and kind == "none":
        kind, factor = "linear", old_factor
    if kind not in ("none", "linear"):
        raise ConversionError(
            f"llama.rope.scaling.type = {kind!r} is not supported; supported: none, linear"
        )
    scaling: dict[str, Any] | None = None
    if kind == "linear" and factor not in (0.0, 1.0):
        if not 0 < factor < float("inf"):
            raise ConversionError(f"llama.rope.scaling.factor must be positive, got {factor}")
        frequencies = tuple(frequency / factor for frequency in frequencies)
        scaling = {"rope_type": "linear", "factor": factor}
    if divisors is not None:
        frequencies = _divide(frequencies, divisors)
        # Llama 3 stores the quotients, not the four numbers config.json would hold.
        scaling = {"rope_type": "llama3"}
    return RotaryEmbedding(dims, theta, frequencies), scaling


def _divide(frequencies: tuple[float, ...], divisors: GGUFTensor) -> tuple[float, ...]:
    if divisors.shape != (len(frequencies),):
        raise ConversionError(
            f"tensor 'rope_freqs.weight' has shape {list(divisors.shape)}, "
            f"the rotary dimensions ask for [{len(frequencies)}]"
        )
    values = dense_f32(decode(divisors.name, divisors.type, divisors.shape, divisors.data))
    if not (np.isfinite(values) & (values > 0)).all():
        raise ConversionError("tensor 'rope_freqs.weight' must hold positive numbers")
    return tuple(f / float(d) for f, d in zip(frequencies, values, strict=True))


def _expected_shapes(arch: Architecture) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Weight name -> (name in the file, shape)."""
    hidden = arch.hidden_size
    attention, mlp = arch.layers[0].attention, arch.layers[0].mlp
    assert isinstance(mlp, Mlp)  # no expert reaches this far
    query = attention.heads * attention.head_size
    kv = attention.kv_heads * attention.head_size
    per_layer: dict[str, tuple[str, tuple[int, ...]]] = {
        "input_layernorm": ("attn_norm", (hidden,)),
        "self_attn.q_proj": ("attn_q", (query, hidden)),
        "self_attn.k_proj": ("attn_k", (kv, hidden)),
        "self_attn.v_proj": ("attn_v", (kv, hidden)),
        "self_attn.o_proj": ("attn_output", (hidden, query)),
        "post_attention_layernorm": ("ffn_norm", (hidden,)),
        "mlp.gate_proj": ("ffn_gate", (mlp.intermediate_size, hidden)),
        "mlp.up_proj": ("ffn_up", (mlp.intermediate_size, hidden)),
        "mlp.down_proj": ("ffn_down", (hidden, mlp.intermediate_size)),
    }
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "embed_tokens": ("token_embd.weight", (arch.vocab_size, hidden)),
        "norm": ("output_norm.weight", (hidden,)),
    }
    for layer in range(len(arch.layers)):
        for name, (gguf_name, shape) in per_layer.items():
            shapes[f"layers.{layer}.{name}"] = (f"blk.{layer}.{gguf_name}.weight", shape)
    if not arch.tied_embeddings:
        shapes["lm_head"] = ("output.weight", (arch.vocab_size, hidden))
    return shapes


def _half_split_rows(rows: int, arch: Architecture) -> npt.NDArray[np.intp]:
    """Row order that undoes llama.cpp's.

    llama.cpp stores query and key rows so that channels 2i and 2i + 1 turn together;
    the graph pairs i with i + dims/2, as the model was trained. Channels past the
    rotary dimensions stay where they are.
    """
    dims, size = arch.rotary[0].dims, arch.layers[0].attention.head_size
    head = np.concatenate([np.arange(0, dims, 2), np.arange(1, dims, 2), np.arange(dims, size)])
    order: npt.NDArray[np.intp] = np.arange(rows // size)[:, None] * size + head
    return order.reshape(-1)
