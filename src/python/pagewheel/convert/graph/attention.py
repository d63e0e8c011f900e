"""Attention over cached keys and values, and what it needs: rotation and masks."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import openvino as ov
import openvino.opset6 as ops6
import openvino.opset13 as ops
from openvino.op.util import Variable, VariableInfo
from openvino.utils.node_factory import NodeFactory

from ..decoder.architecture import Attention, QueryKeyNorm
from ..decoder.rotary import RotaryEmbedding
from ..weights.weight import dense_f32
from .nodes import Weighted, f32, i64, named, parameter, repeated, slice_last, split_heads

# What a masked position adds to a logit: the lowest f16, as exporters write it.
_MASKED = -65504.0


class Inputs:
    """A decoder's parameters and what every layer reads off them.

    input_ids, attention_mask and position_ids are i64 [batch, tokens] (the mask as long as
    cache plus tokens), beam_idx is i32 [batch].
    """

    def __init__(self) -> None:
        self.input_ids = parameter("input_ids", [-1, -1], ov.Type.i64)
        self.attention_mask = parameter("attention_mask", [-1, -1], ov.Type.i64)
        self.position_ids = parameter("position_ids", [-1, -1], ov.Type.i64)
        self.beam_idx = parameter("beam_idx", [-1], ov.Type.i32)
        self.assigns: list[ov.Node] = []  # what states are after the tokens
        self._masks: dict[int, ov.Node] = {}

    @property
    def all(self) -> list[ov.Node]:
        return [self.input_ids, self.attention_mask, self.position_ids, self.beam_idx]

    @cached_property
    def tokens(self) -> ov.Node:
        """input_ids as indices: i32."""
        return ops.convert(self.input_ids, "i32")

    @cached_property
    def batch(self) -> ov.Node:
        return ops.gather(ops.shape_of(self.input_ids, "i64"), i64([0]), i64(0))

    def state(self, name: str, written_name: str, shape: list[int]) -> tuple[ov.Node, Variable]:
        """A state f32 [batch, *shape] in the order of beam_idx, and the variable that keeps it.

        It is zero before the first tokens; a dimension of -1 is empty then.
        """
        info = VariableInfo()
        info.variable_id = name + written_name
        info.data_type = ov.Type.f32
        info.data_shape = ov.PartialShape([-1, *shape])
        variable = Variable(info)
        first = ops.concat([self.batch, i64([max(size, 0) for size in shape])], 0)
        past = named(ops6.read_value(ops.broadcast(f32(0.0), first), variable), name)
        return ops.gather(past, self.beam_idx, i64(0)), variable

    def keep(self, value: ov.Node, variable: Variable) -> None:
        """The value is what the state is for the next tokens."""
        self.assigns.append(ops6.assign(value, variable))

    @cached_property
    def _columns(self) -> ov.Node:
        return ops.range(i64(0), self._total, i64(1), "i64")

    @cached_property
    def _total(self) -> ov.Node:
        return ops.gather(ops.shape_of(self.attention_mask, "i64"), i64(1), i64(0))

    @cached_property
    def _rows(self) -> ov.Node:
        """i64 [tokens, 1]: each token's place among the columns."""
        tokens = ops.gather(ops.shape_of(self.input_ids, "i64"), i64(1), i64(0))
        rows = ops.range(ops.subtract(self._total, tokens), self._total, i64(1), "i64")
        return ops.unsqueeze(rows, i64(1))

    @cached_property
    def _present(self) -> ov.Node:
        return ops.unsqueeze(ops.convert(self.attention_mask, "boolean"), i64([1, 2]))

    def mask(self, window: int) -> ov.Node:
        """f32 [batch, 1, tokens, cached + tokens]: 0 where a token may look, else -65504.

        A sliding window is written as in gpt-oss' export, which is the form that OpenVINO's
        SDPAToPagedAttention knows.
        """
        if window not in self._masks:
            mask = self._windowed_mask(window) if window else self._causal_mask()
            self._masks[window] = mask
        return self._masks[window]

    def _causal_mask(self) -> ov.Node:
        past_or_self = ops.unsqueeze(ops.less_equal(self._columns, self._rows), i64([0, 1]))
        seen = ops.logical_and(past_or_self, self._present)
        return named(ops.select(seen, f32(0.0), f32(_MASKED)), "model.causal_mask")

    def _windowed_mask(self, window: int) -> ov.Node:
        both = ops.bitwise_and
        true = ops.constant(np.array(True))
        columns, rows = self._columns, ops.unsqueeze(self._rows, i64([0, 1]))
        near = ops.greater(columns, ops.add(rows, i64(-window)))
        near_past = both(both(true, near), ops.less_equal(columns, rows))
        seen = both(both(true, near_past), self._present)
        seen = ops.broadcast(seen, ops.shape_of(seen, "i64"))
        values = ops.select(seen, f32(0.0), f32(_MASKED))
        whole = np.iinfo(np.int64).max
        mask = ops.slice(values, i64([0]), i64([whole]), i64([1]), i64([3]))
        return named(mask, f"model.mask_of_window_{window}")


class Rotation:
    """Cosines and sines of one rotary embedding at every token's position."""

    def __init__(self, rotary: RotaryEmbedding, inputs: Inputs, name: str) -> None:
        self.rotary = rotary
        self.cos, self.sin = self._cos_and_sin(inputs, name)

    def _cos_and_sin(self, inputs: Inputs, name: str) -> tuple[ov.Node, ov.Node]:
        """f32 [batch, 1, tokens, dims] each.

        They stay f32 in any inference precision: OpenVINO's plugins know the subgraph as a
        rotary embedding's.
        """
        frequencies = np.array(self.rotary.inverse_frequencies, np.float32).reshape(1, -1, 1)
        spread = ops.broadcast(
            ops.constant(frequencies),
            ops.concat([inputs.batch, i64([1]), i64([1])], 0),
            broadcast_spec="BIDIRECTIONAL",
        )
        positions = ops.convert(ops.unsqueeze(inputs.position_ids, i64(1)), "f32")
        angles = ops.transpose(ops.matmul(spread, positions, False, False), i64([0, 2, 1]))
        angles = named(ops.concat([angles, angles], -1), f"{name}.angles")

        def finished(node: ov.Node, part: str) -> ov.Node:
            if self.rotary.attention_scaling != 1.0:
                node = ops.multiply(node, f32(self.rotary.attention_scaling))
            return named(ops.unsqueeze(node, i64(1)), f"{name}.{part}")

        return finished(ops.cos(angles), "cos"), finished(ops.sin(angles), "sin")

    def __call__(self, x: ov.Node, head_size: int) -> ov.Node:
        """Rotates the first `rotary.dims` channels of [batch, heads, tokens, head_size]."""
        dims = self.rotary.dims
        if dims == head_size:
            return self._rotate_all(x)
        rotary, kept = slice_last(x, 4, 0, dims), slice_last(x, 4, dims, head_size)
        return ops.concat([self._rotate_all(rotary), kept], -1)

    def _rotate_all(self, x: ov.Node) -> ov.Node:
        dims = self.rotary.dims
        first, second = slice_last(x, 4, 0, dims // 2), slice_last(x, 4, dims // 2, dims)
        half_rotated = ops.concat([ops.multiply(second, f32(-1.0)), first], -1)
        return ops.add(ops.multiply(x, self.cos), ops.multiply(half_rotated, self.sin))


class AttentionBuilder:
    """Builds the attention of one layer after the other and keeps their caches."""

    def __init__(self, weighted: Weighted, inputs: Inputs) -> None:
        self.weighted = weighted
        self.inputs = inputs
        kinds = weighted.arch.rotary
        self.rotations = [
            Rotation(kind, inputs, f"model.rotary_emb{'' if len(kinds) == 1 else f'.{index}'}")
            for index, kind in enumerate(kinds)
        ]
        self._caches: dict[int, tuple[ov.Node, ov.Node]] = {}

    def build(self, x: ov.Node, layer: int) -> ov.Node:
        """The layer's attention of x, [batch, tokens, hidden], projected back to hidden."""
        attention = self.weighted.arch.layers[layer].attention
        prefix = f"layers.{layer}.self_attn"
        query = self._query(x, attention, prefix)
        if attention.cache_of is None:
            self._caches[layer] = self._keys_and_values(x, attention, layer)
        owner = layer if attention.cache_of is None else attention.cache_of
        key, value = (
            self._repeat_kv(each, attention, size)
            for each, size in zip(
                self._caches[owner], (attention.head_size, attention.value_size), strict=True
            )
        )
        arguments = [query, key, value, self.inputs.mask(attention.window), f32(attention.scale)]
        if attention.sinks:
            sinks = dense_f32(self.weighted.weight(f"{prefix}.sinks"))
            arguments.append(ops.constant(sinks.reshape(1, attention.heads, 1, 1)))
        attended = NodeFactory("opset13").create(
            "ScaledDotProductAttention", arguments, {"causal": False}
        )
        attended = named(attended, f"model.{prefix}.sdpa")
        merged = ops.reshape(
            ops.transpose(attended, i64([0, 2, 1, 3])),
            i64([0, 0, attention.heads * attention.value_size]),
            True,
        )
        if attention.output_gate:
            gate = self.weighted.linear(x, f"{prefix}.gate_proj", attention.bias)
            merged = ops.multiply(merged, ops.sigmoid(gate))
        return self.weighted.linear(merged, f"{prefix}.o_proj", attention.output_bias)

    def _query(self, x: ov.Node, attention: Attention, prefix: str) -> ov.Node:
        name = "q_proj"
        if attention.latent is not None and attention.latent.query_rank:
            x = self.weighted.linear(x, f"{prefix}.q_a_proj", attention.bias)
            eps = attention.latent.norm_eps
            x, name = self.weighted.rms_norm(x, f"{prefix}.q_a_layernorm", eps), "q_b_proj"
        bias = attention.bias and attention.latent is None
        query = self.weighted.linear(x, f"{prefix}.{name}", bias)
        return self._heads(query, attention, attention.heads, f"{prefix}.q_norm")

    def _keys_and_values(
        self, x: ov.Node, attention: Attention, layer: int
    ) -> tuple[ov.Node, ov.Node]:
        """All of the layer's keys and values, [batch, kv_heads, cached + tokens, d] each."""
        new = self._new_keys_and_values
        if attention.latent is not None:
            new = self._new_latent_keys_and_values
        key, value = new(x, attention, f"layers.{layer}.self_attn")
        sizes = (attention.head_size, attention.value_size)
        return (
            self._through_cache(key, attention.kv_heads, sizes[0], layer, "key"),
            self._through_cache(value, attention.kv_heads, sizes[1], layer, "value"),
        )

    def _new_keys_and_values(
        self, x: ov.Node, attention: Attention, prefix: str
    ) -> tuple[ov.Node, ov.Node]:
        """Keys and values of the tokens in x, [batch, kv_heads, tokens, d] each."""
        kv_heads = attention.kv_heads
        projected = self.weighted.linear(x, f"{prefix}.k_proj", attention.bias)
        key = self._heads(projected, attention, kv_heads, f"{prefix}.k_norm")
        value = projected
        if not attention.values_are_keys:
            value = self.weighted.linear(x, f"{prefix}.v_proj", attention.bias)
        value = split_heads(value, kv_heads, attention.head_size)
        if attention.value_norm:
            value = self.weighted.unit_rms(value)
        return key, ops.transpose(value, i64([0, 2, 1, 3]))

    def _new_latent_keys_and_values(
        self, x: ov.Node, attention: Attention, prefix: str
    ) -> tuple[ov.Node, ov.Node]:
        latent, heads = attention.latent, attention.kv_heads
        assert latent is not None

        def split(x: ov.Node, count: int, size: int) -> ov.Node:
            return ops.transpose(split_heads(x, count, size), i64([0, 2, 1, 3]))

        shared = self.weighted.linear(x, f"{prefix}.k_rope_proj", attention.bias)
        rotated = split(shared, 1, latent.rotated)
        if attention.rotary is not None:
            rotated = self.rotations[attention.rotary](rotated, latent.rotated)
        rotated = ops.broadcast(rotated, i64([1, heads, 1, 1]), broadcast_spec="BIDIRECTIONAL")
        narrow = self.weighted.linear(x, f"{prefix}.kv_a_proj", attention.bias)
        narrow = self.weighted.rms_norm(narrow, f"{prefix}.kv_a_layernorm", latent.norm_eps)
        kept = self.weighted.linear(narrow, f"{prefix}.k_b_proj")
        kept = split(kept, heads, attention.head_size - latent.rotated)
        value = self.weighted.linear(narrow, f"{prefix}.v_b_proj")
        return ops.concat([rotated, kept], -1), split(value, heads, attention.value_size)

    def _heads(self, x: ov.Node, attention: Attention, heads: int, norm: str) -> ov.Node:
        """[batch, tokens, heads * d] -> [batch, heads, tokens, d], normed and rotated."""
        if attention.query_key_norm is QueryKeyNorm.WHOLE:
            x = self.weighted.rms_norm(x, norm)
        x = split_heads(x, heads, attention.head_size)
        if attention.query_key_norm is QueryKeyNorm.HEAD:
            x = self.weighted.rms_norm(x, norm)
        x = ops.transpose(x, i64([0, 2, 1, 3]))
        if attention.rotary is not None:
            x = self.rotations[attention.rotary](x, attention.head_size)
        if attention.query_key_norm is QueryKeyNorm.ROTATED_HEAD:
            x = self.weighted.rms_norm(x, norm)
        return x

    def _through_cache(
        self, current: ov.Node, heads: int, size: int, layer: int, kind: str
    ) -> ov.Node:
        """Appends [batch, heads, tokens, size] to the layer's state and returns all of it."""
        name = f"present.{layer}.{kind}"
        past, variable = self.inputs.state(
            f"past_key_values.{layer}.{kind}", name, [heads, -1, size]
        )
        whole = named(ops.concat([past, current], 2), name)
        self.inputs.keep(whole, variable)
        return whole

    @staticmethod
    def _repeat_kv(x: ov.Node, attention: Attention, size: int) -> ov.Node:
        """[batch, kv_heads, tokens, size] -> [batch, heads, tokens, size], of keys or values."""
        return repeated(x, 2, attention.queries_per_kv_head, [0, attention.heads, -1, size])
