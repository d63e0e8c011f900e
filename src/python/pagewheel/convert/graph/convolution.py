"""Short convolutions over tokens, and the state that they keep."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import openvino as ov
import openvino.opset6 as ops6
import openvino.opset13 as ops

from ..decoder.architecture import ShortConvolution
from ..weights.weight import dense_f32
from .attention import Inputs
from .nodes import Weighted, i64, named, slice_last


class ConvolutionBuilder:
    """Builds the short convolutions of one layer after the other, in the form that
    SDPAToPagedAttention knows.
    """

    def __init__(self, weighted: Weighted, inputs: Inputs) -> None:
        self.weighted = weighted
        self.inputs = inputs
        self.assigns: list[ov.Node] = []

    def build(self, x: ov.Node, layer: int) -> ov.Node:
        """[batch, tokens, hidden], the same shape back."""
        convolution = self.weighted.arch.layers[layer].mixer
        assert isinstance(convolution, ShortConvolution)
        prefix, hidden = f"layers.{layer}.conv", self.weighted.arch.hidden_size
        projected = self.weighted.linear(x, f"{prefix}.in_proj", convolution.bias)
        before, after, tokens = (
            slice_last(projected, 3, part * hidden, (part + 1) * hidden) for part in range(3)
        )
        channels = ops.transpose(ops.multiply(before, tokens), i64([0, 2, 1]))
        weights = dense_f32(self.weighted.weight(f"{prefix}.conv"))
        mixed, kept = convolved(channels, weights, self.inputs, layer, f"{prefix}.conv")
        self.assigns.append(kept)
        if convolution.bias:
            bias = dense_f32(self.weighted.weight(f"{prefix}.conv.bias"))
            mixed = ops.add(mixed, ops.constant(bias.reshape(1, hidden, 1)))
        gated = ops.multiply(after, ops.transpose(mixed, i64([0, 2, 1])))
        return self.weighted.linear(gated, f"{prefix}.out_proj", convolution.bias)


def convolved(
    channels: ov.Node, weights: npt.NDArray[np.float32], inputs: Inputs, layer: int, name: str
) -> tuple[ov.Node, ov.Node]:
    """The convolution of [batch, channels, tokens] with what came before, the same shape back, and
    the node that keeps its state.

    The state holds the last `length` tokens. `weights` are [channels, 1, length].
    """
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
    return result, ops6.assign(kept, variable)
