"""Gated delta nets, and the states that they keep."""

from __future__ import annotations

import numpy as np
import openvino as ov
import openvino.opset13 as ops

from ..decoder.architecture import GatedDeltaNet
from ..weights.weight import dense_f32
from .attention import Inputs
from .convolution import convolved
from .nodes import Weighted, f32, i32, i64, named, repeated, scaled

# It is added to the squared lengths of queries and keys, as in the paper's implementations.
_EPSILON = 1e-6


def build_delta(
    weighted: Weighted, inputs: Inputs, x: ov.Node, net: GatedDeltaNet, layer: int
) -> ov.Node:
    """Builds a layer's gated delta net of [batch, tokens, hidden], the same shape back.

    It is in the form that SDPAToPagedAttention knows: a Loop over tokens.
    """
    prefix = f"layers.{layer}.linear_attn"
    projected = weighted.linear(x, f"{prefix}.in_proj_qkv")
    mixed = convolved(weighted, inputs, projected, layer, f"{prefix}.conv1d")
    mixed = ops.transpose(ops.swish(mixed), i64([0, 2, 1]))
    sizes = [net.key_width, net.key_width, net.value_width]
    query, key, value = ops.variadic_split(mixed, i64(2), i64(sizes)).outputs()
    attended = _delta_rule(
        inputs,
        net,
        layer,
        _keys(query, net),
        _keys(key, net),
        ops.reshape(value, i64([0, 0, net.value_heads, net.value_size]), True),
        *_gates(weighted, x, net, prefix),
    )
    # Heads by themselves: OpenVINO's pass counts the key heads, of which there may be fewer.
    attended = ops.reshape(attended, i64([-1, net.value_size]), False)
    weight = dense_f32(weighted.weight(f"{prefix}.norm"))
    normed = ops.multiply(ops.constant(weight), weighted.unit_rms(attended, net.norm_eps))
    gates = _projected(weighted, x, net, f"{prefix}.in_proj_z")
    gate = ops.reshape(gates, i64([-1, net.value_size]), False)
    gate = ops.sigmoid(gate) if net.decay_by_channel else ops.swish(gate)
    gated = named(ops.multiply(normed, gate), f"model.{prefix}.norm")
    merged = ops.reshape(gated, ops.shape_of(gates, "i64"), False)
    return weighted.linear(merged, f"{prefix}.out_proj")


def _keys(x: ov.Output, net: GatedDeltaNet) -> ov.Node:
    """Queries or keys: [batch, tokens, value heads, key size], each of length 1."""
    heads = ops.reshape(x, i64([0, 0, net.key_heads, net.key_size]), True)
    repeats = net.value_heads // net.key_heads
    heads = repeated(heads, 3, repeats, [0, 0, net.value_heads, net.key_size])
    squares = ops.reduce_sum(ops.multiply(heads, heads), i64(-1), True)
    length = ops.sqrt(ops.add(squares, f32(_EPSILON)))
    return ops.multiply(heads, ops.divide(f32(1.0), length))


def _projected(weighted: Weighted, x: ov.Node, net: GatedDeltaNet, name: str) -> ov.Node:
    if net.decay_by_channel:
        x = weighted.linear(x, f"{name}_down")
    return weighted.linear(x, name)


def _gates(
    weighted: Weighted, x: ov.Node, net: GatedDeltaNet, prefix: str
) -> tuple[ov.Node, ov.Node]:
    """The logarithm of the decay, and beta: [batch, tokens, value heads] each; of decays by
    channel [batch, tokens, value heads, key size].
    """
    beta = ops.sigmoid(weighted.linear(x, f"{prefix}.in_proj_b"))
    rates = -np.exp(dense_f32(weighted.weight(f"{prefix}.A_log")))
    bias = ops.constant(dense_f32(weighted.weight(f"{prefix}.dt_bias")))
    steps = ops.softplus(ops.add(_projected(weighted, x, net, f"{prefix}.in_proj_a"), bias))
    if net.decay_by_channel:
        steps = ops.reshape(steps, i64([0, 0, net.value_heads, net.key_size]), True)
    return ops.multiply(ops.constant(rates), steps), scaled(beta, net.beta_scale)


def _delta_rule(
    inputs: Inputs,
    net: GatedDeltaNet,
    layer: int,
    query: ov.Node,
    key: ov.Node,
    value: ov.Node,
    decay: ov.Node,
    beta: ov.Node,
) -> ov.Node:
    """[batch, tokens, heads, size] of values, the same shape back."""
    heads_first, tokens_last = i64([0, 2, 1, 3]), i64([0, 2, 1])
    size = ops.gather(ops.shape_of(query, "i64"), i64(3), i64(0))
    scale = ops.power(ops.convert(size, "f32"), f32(0.5))
    query = ops.divide(ops.transpose(query, heads_first), scale)
    past, variable = inputs.state(
        f"cache_params.past.ssm.{layer}",
        f"cache_params.present.ssm.{layer}",
        [net.value_heads, net.key_size, net.value_size],
    )
    shape = ops.gather(ops.shape_of(value, "i64"), heads_first, i64(0))
    output, state = _loop(
        query,
        ops.transpose(key, heads_first),
        ops.transpose(value, heads_first),
        ops.transpose(decay, heads_first if net.decay_by_channel else tokens_last),
        ops.transpose(beta, tokens_last),
        past,
        shape,
    )
    inputs.keep(ops.reshape(state, i64([0, 0, 0, 0]), True), variable)
    return ops.transpose(output, heads_first)


def _loop(
    query: ov.Node,
    key: ov.Node,
    value: ov.Node,
    decay: ov.Node,
    beta: ov.Node,
    state: ov.Node,
    shape: ov.Node,
) -> tuple[ov.Output, ov.Output]:
    """The recurrence over [batch, heads, tokens, size], and [batch, heads, tokens] of gates. Decays
    may have channels of keys, too.

    Gives the outputs, of `shape`, and the last state [batch, heads, key size, value size].
    """

    def parameter(shape: list[int], kind: type = np.float32) -> ov.Node:
        return ops.parameter(shape, kind)

    at = parameter([], np.int32)
    q, k, v = (parameter([-1, -1, 1, -1]) for _ in range(3))
    by_channel = decay.get_output_partial_shape(0).rank.get_length() == 4
    g, b = parameter([-1, -1, 1, -1] if by_channel else [-1, -1, 1]), parameter([-1, -1, 1])
    before, outputs = (parameter([-1, -1, -1, -1]) for _ in range(2))

    def column(x: ov.Node) -> ov.Node:
        return ops.unsqueeze(ops.squeeze(x, i32(2)), i32(-1))

    rates = ops.exp(ops.squeeze(g, i32(2)) if by_channel else g)
    decayed = ops.multiply(before, ops.unsqueeze(rates, i32(-1)))
    known = ops.reduce_sum(ops.multiply(decayed, column(k)), i32(-2), False)
    update = ops.multiply(ops.subtract(ops.squeeze(v, i32(2)), known), b)
    after = ops.add(decayed, ops.multiply(column(k), ops.unsqueeze(update, i32(-2))))
    output = ops.reduce_sum(ops.multiply(after, column(q)), i32(-2), True)
    written = ops.scatter_update(outputs, ops.unsqueeze(at, i32(0)), output, i32(2))
    go_on = ops.constant(np.array([True]))
    parameters = [at, q, k, v, g, b, before, outputs]
    body = ov.Model([go_on, after, written], parameters, "delta_rule")

    tokens = ops.convert(ops.gather(shape, i32(2), i32(0)), "i32")
    loop = ops.loop(tokens, ops.constant(np.array(True)))
    loop.set_function(body)
    for inside, outside in ((q, query), (k, key), (v, value), (g, decay), (b, beta)):
        loop.set_sliced_input(inside, outside.output(0), 0, 1, 1, -1, 2)
    loop.set_merged_input(before, state.output(0), after.output(0))
    loop.set_merged_input(outputs, ops.broadcast(f32(0.0), shape).output(0), written.output(0))
    loop.set_special_body_ports([0, 0])
    written_last = loop.get_iter_value(written.output(0), -1)
    return written_last, loop.get_iter_value(after.output(0), -1)
