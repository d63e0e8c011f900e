"""Qwen3-Next, and the text part of Qwen3.5 and 3.6: gated delta nets in most layers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ..decoder.architecture import (
    Architecture,
    Attention,
    Experts,
    GatedDeltaNet,
    Layer,
    Mlp,
    QueryKeyNorm,
)
from .entry import (
    Family,
    FilePart,
    GGUFArchitecture,
    ModelType,
    Part,
    Recipe,
    experts_of,
    tensor_name,
)
from .gguf_config import Config, GGUFConfig
from .qwen import experts_beside_shared, recipe_of_qwen2_moe, with_dense_layers
from .reader import Reader


def attending_layers(reader: Reader) -> list[bool]:
    """Says of each layer whether it attends: by default each fourth does."""
    config = reader.config
    kinds = ("full_attention", "linear_attention")
    interval = config.positive("full_attention_interval", 4)
    otherwise = [kinds[(layer + 1) % interval != 0] for layer in range(config.layers)]
    return [each == kinds[0] for each in config.layer_types(otherwise, kinds)]


def _hybrid(reader: Reader, mlp: Mlp | Experts) -> Architecture:
    config = reader.config
    net = GatedDeltaNet(
        config.positive("linear_num_key_heads", 16),
        config.positive("linear_num_value_heads", 32),
        config.positive("linear_key_head_dim", 128),
        config.positive("linear_value_head_dim", 128),
        config.positive("linear_conv_kernel_dim", 4),
    )
    attention = reader.attention(query_key_norm=QueryKeyNorm.HEAD, output_gate=True)
    arch = reader.architecture(attention, mlp, [0] * config.layers, norm_offset=1.0)
    return arch.with_mixer(net, attending_layers(reader))


def _with_head(reader: Reader, arch: Architecture, mlp: Mlp | Experts) -> Architecture:
    """The architecture with the head of one attending layer that checkpoints have as `mtp.`."""
    config = reader.config
    mixers = (layer.mixer for layer in arch.layers)
    attention = next((mixer for mixer in mixers if isinstance(mixer, Attention)), None)
    is_other = config.integer("mtp_num_hidden_layers", 1) != 1
    if attention is None or is_other or config.boolean("mtp_use_dedicated_embeddings"):
        return arch
    head = replace(arch, layers=(Layer(attention, mlp),), reads_hidden_states=True)
    return replace(arch, mtp=head)


def _dense(reader: Reader) -> Architecture:
    mlp = reader.mlp()
    return _with_head(reader, _hybrid(reader, mlp), mlp)


def _with_experts(reader: Reader) -> Architecture:
    experts = experts_beside_shared(reader, normalise=True)
    return _with_head(reader, with_dense_layers(reader, _hybrid(reader, experts)), experts)


def _rows(groups: int, size: int, begin: int, count: int) -> tuple[int, ...]:
    """Rows [begin, begin + count) of each of `groups` groups of `size`."""
    return tuple(group * size + begin + row for group in range(groups) for row in range(count))


def _attention_part(arch: Architecture, layer: int, name: str) -> Part | None:
    """q_proj has a head's queries and then its gates."""
    attention = arch.layers[layer].attention
    heads, size = attention.heads, attention.head_size
    weight, _, suffix = name.partition(".")
    begin = {"q_proj": 0, "gate_proj": size}.get(weight)
    if begin is None:
        return None
    tensor = tensor_name(f"layers.{layer}.self_attn.q_proj{suffix and '.' + suffix}")
    axis = -1 if suffix else -2
    return Part(tensor, _rows(heads, 2 * size, begin, size), 2 * heads * size, axis)


def _joined_part(net: GatedDeltaNet, layer: int, name: str) -> Part | None:
    """Qwen3-Next keeps, for each key head, its rows of q, k, v and z in one tensor, and those of b
    and a in another.
    """
    heads, key, repeats = net.key_heads, net.key_size, net.value_heads // net.key_heads
    values = repeats * net.value_size
    size = 2 * key + 2 * values

    def rows(begin: int, count: int) -> tuple[int, ...]:
        return _rows(heads, size, begin, count)

    prefix = f"layers.{layer}.linear_attn."
    of_qkvz: dict[str, Iterable[int]] = {
        "in_proj_qkv": (*rows(0, key), *rows(key, key), *rows(2 * key, values)),
        "in_proj_z": rows(2 * key + values, values),
    }
    of_ba = {
        "in_proj_b": _rows(heads, 2 * repeats, 0, repeats),
        "in_proj_a": _rows(heads, 2 * repeats, repeats, repeats),
    }
    if name in of_qkvz:
        return Part(f"{prefix}in_proj_qkvz.weight", tuple(of_qkvz[name]), heads * size)
    if name in of_ba:
        return Part(f"{prefix}in_proj_ba.weight", of_ba[name], 2 * net.value_heads)
    return None


def _recipe(arch: Architecture, name: str) -> Recipe | None:
    found = re.fullmatch(r"layers\.(\d+)\.(self_attn|linear_attn)\.(.*)", name)
    if found is None:
        return recipe_of_qwen2_moe(arch, name)
    layer, part = int(found[1]), None
    mixer = arch.layers[layer].mixer
    if found[2] == "self_attn":
        part = _attention_part(arch, layer, found[3])
    elif arch.model_type == "qwen3_next":
        assert isinstance(mixer, GatedDeltaNet)
        part = _joined_part(mixer, layer, found[3])
    return None if part is None else (part,)


def _stacked_experts(arch: Architecture, name: str) -> Recipe | None:
    """Finds all experts of a layer in one tensor, gates before ups."""
    before, found, after = name.partition(".experts.")
    if not found:
        return None
    inner = experts_of(arch, name).mlp.intermediate_size
    first = {"gate_proj": 0, "up_proj": inner}.get(after)
    if first is None:
        return (Part(f"{before}.experts.{after}"),)
    return (Part(f"{before}.experts.gate_up_proj", slice(first, first + inner), 2 * inner),)


def _part_of_net(net: GatedDeltaNet, hidden: int, name: str, tiled: bool) -> FilePart:
    """`tiled`: value heads are not beside those of the same key head, but the first of each key
    head come first, then the second ones.
    """
    repeats = net.value_heads // net.key_heads
    order = tuple(h % repeats * net.key_heads + h // repeats for h in range(net.value_heads))
    columns = order if tiled and repeats > 1 else None

    def rows(size: int, before: int = 0) -> tuple[int, ...] | None:
        if columns is None:
            return None
        of_heads = (before + head * size + row for head in columns for row in range(size))
        return (*range(before), *of_heads)

    heads, keys = (net.value_heads,), 2 * net.key_width
    channels = keys + net.value_width
    of_ba: dict[str, FilePart] = {
        each: FilePart(f"ssm_{gate}.weight", (*heads, hidden), rows(1))
        for each, gate in (("in_proj_b", "beta"), ("in_proj_a", "alpha"))
    }
    if not tiled:
        for each, begin in (("in_proj_b", 0), ("in_proj_a", repeats)):
            part = _rows(net.key_heads, 2 * repeats, begin, repeats)
            of_ba[each] = FilePart("ssm_ba.weight", (2 * net.value_heads, hidden), part)
    return {
        **of_ba,
        "in_proj_qkv": FilePart("attn_qkv.weight", (channels, hidden), rows(net.value_size, keys)),
        "in_proj_z": FilePart("attn_gate.weight", (net.value_width, hidden), rows(net.value_size)),
        "conv1d": FilePart("ssm_conv1d.weight", (channels, net.length), rows(net.value_size, keys)),
        "A_log": FilePart("ssm_a", heads, columns=columns, negative_exponential=True),
        "dt_bias": FilePart("ssm_dt.bias", heads, columns=columns),
        "norm": FilePart("ssm_norm.weight", (net.value_size,)),
        "out_proj": FilePart("ssm_out.weight", (hidden, net.value_width), columns=columns),
    }[name]


def _file_part(tiled: bool) -> Callable[[Architecture, str], FilePart | None]:
    def part_of(arch: Architecture, name: str) -> FilePart | None:
        found = re.fullmatch(r"layers\.(\d+)\.(self_attn|linear_attn)\.(\w+)", name)
        if found is None:
            return None
        mixer = arch.layers[int(found[1])].mixer
        if isinstance(mixer, GatedDeltaNet):
            return _part_of_net(mixer, arch.hidden_size, found[3], tiled)
        part = _attention_part(arch, int(found[1]), found[3])
        if part is None or not isinstance(part.rows, tuple):
            return None
        return FilePart("attn_q.weight", (part.length, arch.hidden_size), part.rows)

    return part_of


def _config_of(class_name: str, model_type: str) -> Callable[[GGUFConfig], Config]:
    def config_of(file: GGUFConfig) -> Config:
        width, heads = file.integer("ssm.inner_size"), file.integer("ssm.time_step_rank")
        if heads <= 0 or width % heads:
            raise file.fail(f"{width} channels are no multiple of {heads} value heads")
        values: Config = {
            **file.common(class_name, model_type, ("expert_count",)),
            "linear_conv_kernel_dim": file.integer("ssm.conv_kernel"),
            "linear_key_head_dim": file.integer("ssm.state_size"),
            "linear_num_key_heads": file.integer("ssm.group_count"),
            "linear_num_value_heads": heads,
            "linear_value_head_dim": width // heads,
            "full_attention_interval": file.integer("full_attention_interval", 4),
            "mtp_num_hidden_layers": file.integer("nextn_predict_layers", 0),
        }
        if model_type == "qwen3_5_text":
            return values
        return {
            **values,
            **file.experts("num_experts", "moe_intermediate_size"),
            "shared_expert_intermediate_size": file.integer("expert_shared_feed_forward_length"),
        }

    return config_of


def _gguf(name: str, class_name: str, model_type: str, tiled: bool = True) -> GGUFArchitecture:
    return GGUFArchitecture(
        name,
        _config_of(class_name, model_type),
        names={
            "post_attention_layernorm": "post_attention_norm",
            "mlp.shared_gate": "ffn_gate_inp_shexp",
        },
        norms_with_offset=True,
        part=_file_part(tiled),
    )


_DEFAULTS: dict[str, Any] = {
    "max_position_embeddings": 32768,
    "partial_rotary_factor": 0.25,
    "head_dim": 256,
    "num_key_value_heads": 4,
}
_EXPERTS = {
    **_DEFAULTS,
    "num_key_value_heads": 2,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
}

FAMILY = Family(
    (
        ModelType(
            "qwen3_next",
            _with_experts,
            {**_EXPERTS, "num_experts": 512, "num_experts_per_tok": 10},
            _recipe,
            _stacked_experts,
        ),
        ModelType("qwen3_5_text", _dense, _DEFAULTS, _recipe),
        ModelType(
            "qwen3_5_moe_text",
            _with_experts,
            {**_EXPERTS, "num_experts": 256, "num_experts_per_tok": 8},
            _recipe,
            _stacked_experts,
        ),
    ),
    (
        _gguf("qwen3next", "Qwen3Next", "qwen3_next", tiled=False),
        _gguf("qwen35", "Qwen3_5", "qwen3_5_text"),
        _gguf("qwen35moe", "Qwen3_5Moe", "qwen3_5_moe_text"),
    ),
)
