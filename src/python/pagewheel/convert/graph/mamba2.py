"""Mamba 2's mixer of tokens: a convolution and a selective state space model, and their states."""

from __future__ import annotations

import numpy as np
import openvino as ov
import openvino.opset13 as ops
from openvino.op import Parameter

from ..decoder.architecture import Activation, Mamba2
from ..weights.weight import dense_f32
from .attention import Inputs
from .convolution import convolved
from .nodes import Weighted, activated, f32, i32, i64, named, slice_last, split_heads


def build_mamba(
    weighted: Weighted, inputs: Inputs, x: ov.Node, mamba: Mamba2, layer: int
) -> ov.Node:
    """Builds a layer's mixer of [batch, tokens, hidden], the same shape back.

    It is in the form that SDPAToPagedAttention knows: optimum-intel's, in which a Loop runs over
    the tokens.
    """
    prefix, inner = f"layers.{layer}.mamba", mamba.inner_size
    gate, mixed, steps = (
        weighted.linear(x, f"{prefix}.{name}_proj", mamba.bias) for name in ("gate", "conv", "dt")
    )
    bias = f"{prefix}.conv1d.bias" if mamba.conv_bias else None
    mixed = convolved(weighted, inputs, mixed, layer, f"{prefix}.conv1d", bias)
    mixed = ops.transpose(activated(mixed, Activation.SILU), i64([0, 2, 1]))
    ends = np.cumsum([0, inner, *[mamba.groups * mamba.state_size] * 2])
    parts = [slice_last(mixed, 3, ends[i], ends[i + 1]) for i in range(3)]
    heads = split_heads(parts[0], mamba.heads, mamba.head_size)
    b, c = (split_heads(part, mamba.groups, mamba.state_size) for part in parts[1:])
    steps = ops.softplus(ops.add(steps, weighted.vector(f"{prefix}.dt_bias")))
    if mamba.dt_min > 0 or mamba.dt_max < np.inf:
        highest = min(mamba.dt_max, float(np.finfo(np.float32).max))
        steps = ops.clamp(steps, mamba.dt_min, highest)
    y = _scanned(weighted, inputs, mamba, layer, steps, b, heads, c)
    skip = dense_f32(weighted.weight(f"{prefix}.D")).reshape(mamba.heads, 1)
    y = ops.add(y, ops.multiply(heads, ops.constant(skip)))
    y = ops.reshape(y, i64([0, 0, inner]), True)
    gate = activated(gate, Activation.SILU)
    if not mamba.gate_after_norm:
        y = ops.multiply(y, gate)
    if mamba.norm:
        y = _normed(weighted, y, mamba, f"{prefix}.norm")
    if mamba.gate_after_norm:
        y = ops.multiply(y, gate)
    return weighted.linear(y, f"{prefix}.out_proj", mamba.output_bias)


def _normed(weighted: Weighted, y: ov.Node, mamba: Mamba2, name: str) -> ov.Node:
    if mamba.norm_groups == 1:
        gamma = ops.constant(dense_f32(weighted.weight(name)))
        return named(ops.multiply(gamma, weighted.unit_rms(y)), f"model.{name}")
    size = mamba.inner_size // mamba.norm_groups
    groups = weighted.unit_rms(split_heads(y, mamba.norm_groups, size))
    normed = ops.reshape(groups, i64([0, 0, mamba.inner_size]), True)
    return named(ops.multiply(normed, weighted.vector(name)), f"model.{name}")


def _scanned(
    weighted: Weighted,
    inputs: Inputs,
    mamba: Mamba2,
    layer: int,
    dt: ov.Node,
    b: ov.Node,
    x: ov.Node,
    c: ov.Node,
) -> ov.Node:
    """y [batch, tokens, heads, head_size]: token by token

    state = exp(A dt) state + dt x B^T, y = state C
    """
    past, variable = inputs.state(
        f"cache_params.past.ssm.{layer}",
        f"cache_params.present.ssm.{layer}",
        [mamba.heads, mamba.head_size, mamba.state_size],
    )
    a = ops.constant(-np.exp(dense_f32(weighted.weight(f"layers.{layer}.mamba.A_log"))))
    decay = ops.reshape(ops.exp(ops.multiply(a, dt)), i64([0, 0, 0, 1, 1]), True)
    scaled_b = ops.multiply(ops.unsqueeze(dt, i32([-1])), _each_head(b, mamba))
    added = ops.multiply(ops.unsqueeze(scaled_b, i32([-2])), ops.unsqueeze(x, i32([-1])))
    read = ops.unsqueeze(_each_head(c, mamba), i32([-2]))
    shape = ops.shape_of(x, "i64")
    tokens = ops.convert(ops.gather(shape, i64([1]), i64(0)), "i32")
    loop = _loop(mamba, tokens, decay, added, read, past, ops.broadcast(f32(0.0), shape))
    after = ops.reshape(loop.output(1), i64([0, 0, 0, 0]), True)  # a node, as assign takes
    inputs.keep(after, variable)
    return named(loop, f"model.layers.{layer}.mamba.scan").output(0)


def _each_head(x: ov.Node, mamba: Mamba2) -> ov.Node:
    """[batch, tokens, groups, state_size] -> [batch, tokens, heads, state_size]."""
    tiled = ops.tile(ops.unsqueeze(x, i32(3)), i64([1, 1, 1, mamba.heads // mamba.groups, 1]))
    return ops.reshape(tiled, i64([0, 0, mamba.heads, mamba.state_size]), True)


def _loop(
    mamba: Mamba2,
    tokens: ov.Node,
    decay: ov.Node,
    added: ov.Node,
    read: ov.Node,
    state: ov.Node,
    result: ov.Node,
) -> ov.Node:
    """Outputs: y and the state afterwards."""
    heads, size, state_size = mamba.heads, mamba.head_size, mamba.state_size

    def parameter(*shape: int, element_type: ov.Type = ov.Type.f32) -> Parameter:
        return Parameter(element_type, ov.PartialShape(list(shape)))

    step = parameter(element_type=ov.Type.i32)
    decay_now = parameter(-1, 1, heads, 1, 1)
    added_now = parameter(-1, 1, heads, size, state_size)
    read_now = parameter(-1, 1, heads, 1, state_size)
    before = parameter(-1, heads, size, state_size)
    written = parameter(-1, -1, heads, size)
    kept = ops.multiply(before, ops.squeeze(decay_now, i32(1)))
    after = ops.add(kept, ops.squeeze(added_now, i32(1)))
    y = ops.reduce_sum(ops.multiply(after, ops.squeeze(read_now, i32(1))), i32([-1]), False)
    rewritten = ops.scatter_update(
        written, ops.unsqueeze(step, i32([0])), ops.unsqueeze(y, i32(1)), i32(1)
    )
    going_on = ops.constant(np.array([True]))
    body = ov.Model(
        [going_on, after, rewritten],
        [step, decay_now, added_now, read_now, before, written],
        "selective_ssm",
    )
    loop = ops.loop(tokens, ops.constant(np.array([True])))
    loop.set_function(body)
    for inner, outer in ((decay_now, decay), (added_now, added), (read_now, read)):
        loop.set_sliced_input(inner, outer.output(0), 0, 1, 1, -1, 1)
    loop.set_merged_input(before, state.output(0), after.output(0))
    loop.set_merged_input(written, result.output(0), rewritten.output(0))
    loop.set_special_body_ports([0, 0])
    loop.get_iter_value(rewritten.output(0), -1)
    loop.get_iter_value(after.output(0), -1)
    return loop
