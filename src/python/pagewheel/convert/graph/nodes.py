"""Small pieces of OpenVINO graphs that every part of a decoder uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import openvino as ov
import openvino.opset13 as ops
from openvino.op import Parameter
from openvino.utils.node_factory import NodeFactory

from ..decoder.architecture import Activation, Architecture
from ..weights.weight import Weight, dense_f32, emit, interleave_rows, named as named

WeightReader = Callable[[str], Weight]


def i64(values: int | Sequence[int]) -> ov.Node:
    return ops.constant(np.array(values, np.int64))


def i32(values: int | Sequence[int]) -> ov.Node:
    return ops.constant(np.array(values, np.int32))


def f32(value: float) -> ov.Node:
    return ops.constant(np.array(value, np.float32))


def parameter(name: str, shape: list[int], element_type: ov.Type) -> ov.Node:
    node = Parameter(element_type, ov.PartialShape(shape))
    node.output(0).tensor.set_names({name})
    return named(node, name)


def scaled(x: ov.Node, factor: float) -> ov.Node:
    return x if factor == 1.0 else ops.multiply(x, f32(factor))


def split_heads(x: ov.Node, count: int, size: int) -> ov.Node:
    """[batch, tokens, count * size] -> [batch, tokens, count, size]."""
    return ops.reshape(x, i64([0, 0, count, size]), True)


def slice_last(x: ov.Node, rank: int, start: int, stop: int) -> ov.Node:
    """Channels start to stop of the last dimension of `rank`."""
    return ops.slice(x, i64([start]), i64([stop]), i64([1]), i64([rank - 1]))


def repeated(x: ov.Node, axis: int, count: int, shape: Sequence[int]) -> ov.Node:
    """Repeats each entry of the dimension before `axis` so often, in a row, and gives `shape`."""
    if count == 1:
        return x
    wide = ops.broadcast(
        ops.unsqueeze(x, i64(axis)),
        i64([count if each == axis else 1 for each in range(5)]),
        broadcast_spec="BIDIRECTIONAL",
    )
    return ops.reshape(wide, i64(shape), True)


def soft_capped(x: ov.Node, cap: float) -> ov.Node:
    """cap * tanh(x / cap); x itself for cap 0."""
    if cap == 0.0:
        return x
    return ops.multiply(ops.tanh(ops.multiply(x, f32(1.0 / cap))), f32(cap))


def activated(x: ov.Node, activation: Activation) -> ov.Node:
    if activation is Activation.SILU:
        # ops.swish would add a second input, 1. OpenVINO's patterns of experts have none.
        return NodeFactory("opset13").create("Swish", [x])
    if activation is Activation.SQUARED_RELU:
        return ops.power(ops.relu(x), f32(2.0))
    return ops.gelu(x, "tanh" if activation is Activation.GELU_TANH else "erf")


class Weighted:
    """Nodes that hold weights; each weight is asked for once."""

    def __init__(self, arch: Architecture, weight: WeightReader) -> None:
        self.arch = arch
        self.weight = weight

    def constant(self, name: str) -> ov.Node:
        """The weight as it is, f32, quantised ones behind their subgraph."""
        return emit(self.weight(name), f"model.{name}.weight")

    def rows(self, table: ov.Node, indices: ov.Node, name: str) -> ov.Node:
        """The rows of an embedding table; `indices` i32 [batch, tokens]."""
        return named(ops.gather(table, indices, i32(0)), f"model.{name}")

    def vector(self, name: str) -> ov.Node:
        """A small weight as one f32 constant."""
        return named(ops.constant(dense_f32(self.weight(name))), f"model.{name}")

    def interleaved_constant(self, first: str, second: str) -> ov.Node:
        """The rows of two weights, interleaved."""
        joined = interleave_rows(self.weight(first), self.weight(second))
        return emit(joined, f"model.{first}+{second.rpartition('.')[2]}.weight")

    def linear(self, x: ov.Node, name: str, bias: bool = False) -> ov.Node:
        product = named(ops.matmul(x, self.constant(name), False, True), f"model.{name}")
        if not bias:
            return product
        return named(ops.add(product, self.vector(f"{name}.bias")), f"model.{name}.biased")

    def norm(self, x: ov.Node, name: str) -> ov.Node:
        """The architecture's norm of a hidden state."""
        if not self.arch.layer_norms:
            return self.rms_norm(x, name)
        normed = ops.mvn(x, i64([-1]), True, self.arch.norm_eps, "inside_sqrt")
        scaled_by = ops.multiply(normed, self.vector(name))
        return named(ops.add(scaled_by, self.vector(f"{name}.bias")), f"model.{name}")

    def rms_norm(self, x: ov.Node, name: str, eps: float | None = None) -> ov.Node:
        gamma = dense_f32(self.weight(name)) + np.float32(self.arch.norm_offset)
        constant = named(ops.constant(gamma), f"model.{name}.weight")
        return named(ops.multiply(constant, self.unit_rms(x, eps)), f"model.{name}")

    def unit_rms(self, x: ov.Node, eps: float | None = None) -> ov.Node:
        """x / sqrt(mean(x^2) + eps) over the last dimension; the architecture's eps if none."""
        mean = ops.reduce_mean(ops.power(x, f32(2.0)), i64([-1]), True)
        root = ops.sqrt(ops.add(mean, f32(self.arch.norm_eps if eps is None else eps)))
        return ops.multiply(x, ops.divide(f32(1.0), root))
