"""The decoder as an ov::Model, in the stateful form optimum-intel exports.

Inputs: input_ids, attention_mask, position_ids i64 [batch, tokens] (the mask as long as
cache plus tokens), beam_idx i32 [batch]. Output: logits f32 [batch, tokens, vocab]. Each
layer's keys and values are state. The patterns are those that SDPAToPagedAttention
and the CPU plugin's fusions (RMS, RoPE, compressed MatMul and Gather) recognise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import openvino as ov
import openvino.opset6 as ops6
import openvino.opset13 as ops
from openvino.op import Parameter
from openvino.op.util import Variable, VariableInfo

from .architecture import Architecture, RotaryEmbedding
from .weights import Weight, dense_f32, emit

WeightReader = Callable[[str], Weight]


def _i64(values: int | Sequence[int]) -> ov.Node:
    return ops.constant(np.array(values, np.int64))


def _i32(values: int | Sequence[int]) -> ov.Node:
    return ops.constant(np.array(values, np.int32))


def _f32(value: float) -> ov.Node:
    return ops.constant(np.array(value, np.float32))


def _named(node: ov.Node, name: str) -> ov.Node:
    node.set_friendly_name(name)
    return node


def _parameter(name: str, shape: list[int], element_type: ov.Type) -> ov.Node:
    node = Parameter(element_type, ov.PartialShape(shape))
    node.output(0).tensor.set_names({name})
    return _named(node, name)


class DecoderBuilder:
    """Builds one model; `weight(name)` is asked for each weight once."""

    def __init__(self, arch: Architecture, weight: WeightReader) -> None:
        self.arch = arch
        self.weight = weight
        self.input_ids = _parameter("input_ids", [-1, -1], ov.Type.i64)
        self.attention_mask = _parameter("attention_mask", [-1, -1], ov.Type.i64)
        self.position_ids = _parameter("position_ids", [-1, -1], ov.Type.i64)
        self.beam_idx = _parameter("beam_idx", [-1], ov.Type.i32)
        self.assigns: list[ov.Node] = []

    def build(self) -> ov.Model:
        arch = self.arch
        embeddings = emit(self.weight("embed_tokens"), "model.embed_tokens.weight")
        indices = ops.convert(self.input_ids, "i32")
        hidden = _named(ops.gather(embeddings, indices, _i32(0)), "model.embed_tokens")
        self.batch = self._batch_size()
        self.rotation = self._cos_and_sin(arch.rotary)
        self.mask = self._causal_mask()
        for layer in range(arch.layers):
            hidden = self._layer(hidden, layer)
        hidden = self._rms_norm(hidden, "norm")
        # A tied head reads the embedding's own constant: one copy in the file and in memory.
        head = embeddings
        if not arch.tied_embeddings:
            head = emit(self.weight("lm_head"), "lm_head.weight")
        logits = _named(ops.matmul(hidden, head, False, True), "lm_head")
        result = _named(ops.result(logits), "logits")
        result.output(0).tensor.set_names({"logits"})
        parameters = [self.input_ids, self.attention_mask, self.position_ids, self.beam_idx]
        return ov.Model([result], self.assigns, parameters, arch.model_type)

    def _layer(self, hidden: ov.Node, layer: int) -> ov.Node:
        prefix = f"layers.{layer}"
        attention = self._attention(self._rms_norm(hidden, f"{prefix}.input_layernorm"), layer)
        hidden = _named(ops.add(hidden, attention), f"model.{prefix}.self_attn.residual")
        normed = self._rms_norm(hidden, f"{prefix}.post_attention_layernorm")
        gate = ops.swish(self._linear(normed, f"{prefix}.mlp.gate_proj"))
        gate = _named(gate, f"model.{prefix}.mlp.act_fn")
        up = self._linear(normed, f"{prefix}.mlp.up_proj")
        product = _named(ops.multiply(gate, up), f"model.{prefix}.mlp.product")
        down = self._linear(product, f"{prefix}.mlp.down_proj")
        return _named(ops.add(hidden, down), f"model.{prefix}.residual")

    def _linear(self, x: ov.Node, name: str) -> ov.Node:
        weight = emit(self.weight(name), f"model.{name}.weight")
        return _named(ops.matmul(x, weight, False, True), f"model.{name}")

    def _rms_norm(self, x: ov.Node, name: str) -> ov.Node:
        gamma = ops.constant(dense_f32(self.weight(name)))
        gamma = _named(gamma, f"model.{name}.weight")
        mean = ops.reduce_mean(ops.power(x, _f32(2.0)), _i64([-1]), True)
        root = ops.sqrt(ops.add(mean, _f32(self.arch.rms_norm_eps)))
        normed = ops.multiply(x, ops.divide(_f32(1.0), root))
        return _named(ops.multiply(gamma, normed), f"model.{name}")

    def _attention(self, x: ov.Node, layer: int) -> ov.Node:
        arch = self.arch
        prefix = f"layers.{layer}.self_attn"
        query = self._heads(self._linear(x, f"{prefix}.q_proj"), arch.heads)
        key = self._heads(self._linear(x, f"{prefix}.k_proj"), arch.kv_heads)
        value = self._heads(self._linear(x, f"{prefix}.v_proj"), arch.kv_heads)
        query = self._rotate(query)
        key = self._rotate(key)
        key = self._repeat_kv(self._through_cache(key, layer, "key"))
        value = self._repeat_kv(self._through_cache(value, layer, "value"))
        attended = ops.scaled_dot_product_attention(
            query, key, value, self.mask, _f32(1.0 / math.sqrt(arch.head_size)), causal=False
        )
        attended = _named(attended, f"model.{prefix}.sdpa")
        merged = ops.reshape(
            ops.transpose(attended, _i64([0, 2, 1, 3])),
            _i64([0, 0, arch.heads * arch.head_size]),
            True,
        )
        return self._linear(merged, f"{prefix}.o_proj")

    def _heads(self, x: ov.Node, heads: int) -> ov.Node:
        """[batch, tokens, heads * d] -> [batch, heads, tokens, d]."""
        split = ops.reshape(x, _i64([0, 0, heads, self.arch.head_size]), True)
        return ops.transpose(split, _i64([0, 2, 1, 3]))

    def _cos_and_sin(self, rotary: RotaryEmbedding) -> tuple[ov.Node, ov.Node]:
        """f32 [batch, 1, tokens, dims] each; f32 whatever the inference precision,
        because the plugins know this subgraph as a rotary embedding's.
        """
        frequencies = np.array(rotary.inverse_frequencies, np.float32).reshape(1, -1, 1)
        spread = ops.broadcast(
            ops.constant(frequencies),
            ops.concat([self.batch, _i64([1]), _i64([1])], 0),
            broadcast_spec="BIDIRECTIONAL",
        )
        positions = ops.convert(ops.unsqueeze(self.position_ids, _i64(1)), "f32")
        angles = ops.transpose(ops.matmul(spread, positions, False, False), _i64([0, 2, 1]))
        angles = _named(ops.concat([angles, angles], -1), "model.rotary_emb.angles")

        def scaled(node: ov.Node, name: str) -> ov.Node:
            if rotary.attention_scaling != 1.0:
                node = ops.multiply(node, _f32(rotary.attention_scaling))
            return _named(ops.unsqueeze(node, _i64(1)), name)

        return (
            scaled(ops.cos(angles), "model.rotary_emb.cos"),
            scaled(ops.sin(angles), "model.rotary_emb.sin"),
        )

    def _rotate(self, x: ov.Node) -> ov.Node:
        """Rotates the first `rotary.dims` channels of [batch, heads, tokens, d]."""
        dims, head_size = self.arch.rotary.dims, self.arch.head_size
        if dims == head_size:
            return self._rotate_all(x)
        turned, kept = self._slice(x, 0, dims), self._slice(x, dims, head_size)
        return ops.concat([self._rotate_all(turned), kept], -1)

    def _rotate_all(self, x: ov.Node) -> ov.Node:
        dims = self.arch.rotary.dims
        cos, sin = self.rotation
        first, second = self._slice(x, 0, dims // 2), self._slice(x, dims // 2, dims)
        half_turned = ops.concat([ops.multiply(second, _f32(-1.0)), first], -1)
        return ops.add(ops.multiply(x, cos), ops.multiply(half_turned, sin))

    @staticmethod
    def _slice(x: ov.Node, start: int, stop: int) -> ov.Node:
        return ops.slice(x, _i64([start]), _i64([stop]), _i64([1]), _i64([3]))

    def _through_cache(self, current: ov.Node, layer: int, kind: str) -> ov.Node:
        """Appends [batch, kv_heads, tokens, d] to the layer's state and returns all of it."""
        arch = self.arch
        info = VariableInfo()
        info.variable_id = f"past_key_values.{layer}.{kind}present.{layer}.{kind}"
        info.data_type = ov.Type.f32
        info.data_shape = ov.PartialShape([-1, arch.kv_heads, -1, arch.head_size])
        variable = Variable(info)
        empty = ops.broadcast(
            _f32(0.0),
            ops.concat([self.batch, _i64([arch.kv_heads]), _i64([0]), _i64([arch.head_size])], 0),
        )
        past = _named(ops6.read_value(empty, variable), f"past_key_values.{layer}.{kind}")
        ordered = ops.gather(past, self.beam_idx, _i64(0))
        whole = _named(ops.concat([ordered, current], 2), f"present.{layer}.{kind}")
        self.assigns.append(ops6.assign(whole, variable))
        return whole

    def _repeat_kv(self, x: ov.Node) -> ov.Node:
        """[batch, kv_heads, tokens, d] -> [batch, heads, tokens, d]."""
        arch = self.arch
        if arch.queries_per_kv_head == 1:
            return x
        spread = ops.broadcast(
            ops.unsqueeze(x, _i64(2)),
            _i64([1, 1, arch.queries_per_kv_head, 1, 1]),
            broadcast_spec="BIDIRECTIONAL",
        )
        return ops.reshape(spread, _i64([0, arch.heads, -1, arch.head_size]), True)

    def _batch_size(self) -> ov.Node:
        return ops.gather(ops.shape_of(self.input_ids, "i64"), _i64([0]), _i64(0))

    def _causal_mask(self) -> ov.Node:
        """f32 [batch, 1, tokens, cached + tokens]: 0 where a token may look, else -65504."""
        tokens = ops.gather(ops.shape_of(self.input_ids, "i64"), _i64(1), _i64(0))
        total = ops.gather(ops.shape_of(self.attention_mask, "i64"), _i64(1), _i64(0))
        columns = ops.range(_i64(0), total, _i64(1), "i64")
        rows = ops.range(ops.subtract(total, tokens), total, _i64(1), "i64")
        past_or_self = ops.less_equal(columns, ops.unsqueeze(rows, _i64(1)))
        present = ops.unsqueeze(ops.convert(self.attention_mask, "boolean"), _i64([1, 2]))
        visible = ops.logical_and(ops.unsqueeze(past_or_self, _i64([0, 1])), present)
        return _named(ops.select(visible, _f32(0.0), _f32(-65504.0)), "model.causal_mask")


def build_model(arch: Architecture, weight: WeightReader) -> ov.Model:
    """Builds the decoder; `weight(name)` gives each weight, see GGUFSource."""
    return DecoderBuilder(arch, weight).build()
