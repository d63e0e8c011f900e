"""Short convolutions over tokens, and the state that they keep."""

from __future__ import annotations

import numpy as np
import openvino as ov
import openvino.opset13 as ops

from ..decoder.architecture import ShortConvolution
from ..weights.weight import dense_f32
from .attention import Inputs
from .nodes import Weighted, i64, named, slice_last


def build_convolution(
    weighted: Weighted, inputs: Inputs, x: ov.Node, convolution: ShortConvolution, layer: int
) -> ov.Node:
    """Builds a layer's short convolution of [batch, tokens, hidden], the same shape back."""
    prefix, hidden = f"layers.{layer}.conv", weighted.arch.hidden_size
    projected = weighted.linear(x, f"{prefix}.in_proj", convolution.bias)
    before, after, tokens = (
        slice_last(projected, 3, part * hidden, (part + 1) * hidden) for part in range(3)
    )
    bias = f"{prefix}.conv.bias" if convolution.bias else None
    product = ops.multiply(before, tokens)
    mixed = convolved(weighted, inputs, product, layer, f"{prefix}.conv", bias)
    gated = ops.multiply(after, ops.transpose(mixed, i64([0, 2, 1])))
    return weighted.linear(gated, f"{prefix}.out_proj", convolution.bias)


def convolved(
    weighted: Weighted, inputs: Inputs, x: ov.Node, layer: int, name: str, bias: str | None = None
) -> ov.Node:
    """The convolution of [batch, tokens, channels] with what came before, channels first.

    It is in the form that SDPAToPagedAttention knows. The state holds the last `length` tokens.
    `name` is that of the weights, [channels, 1, length].
    """
    channels = ops.transpose(x, i64([0, 2, 1]))
    weights = dense_f32(weighted.weight(name))
    width, _, length = weights.shape
    past, variable = inputs.state(
        f"cache_params.past.conv.{layer}", f"cache_params.present.conv.{layer}", [width, length]
    )
    whole = ops.concat([past, channels], -1)
    end = i64([np.iinfo(np.int64).max])
    kept = ops.slice(whole, i64([-length]), end, i64([1]), i64([2]))
    result = ops.group_convolution(
        whole, ops.constant(weights.reshape(width, 1, 1, length)), [1], [0], [0], [1]
    )
    result = ops.slice(named(result, f"model.{name}"), i64([1]), end, i64([1]), i64([2]))
    inputs.keep(kept, variable)
    if bias is not None:
        values = dense_f32(weighted.weight(bias))
        result = ops.add(result, ops.constant(values.reshape(1, width, 1)))
    return result
