"""Per-layer inputs: a second embedding that enters after every layer's MLP (Gemma 3n, Gemma 4)."""

from __future__ import annotations

import openvino as ov
import openvino.opset13 as ops

from .attention import Inputs
from .nodes import Weighted, activated, i32, i64, scaled


class PerLayerEmbeddings:
    """What each layer gets of a token: its row of the second table and a projection of its
    first embedding, added and scaled.
    """

    def __init__(self, weighted: Weighted, inputs: Inputs, embedded: ov.Node) -> None:
        arch = weighted.arch
        assert arch.per_layer_inputs is not None
        self.weighted = weighted
        self.description = arch.per_layer_inputs
        size = self.description.size
        shape = i64([0, 0, len(arch.layers), size])
        table = weighted.constant("embed_tokens_per_layer")
        rows = weighted.rows(table, self._indices(inputs), "embed_tokens_per_layer")
        rows = ops.reshape(scaled(rows, size**0.5), shape, True)
        projected = weighted.linear(embedded, "per_layer_model_projection")
        projected = ops.reshape(scaled(projected, arch.hidden_size**-0.5), shape, True)
        projected = weighted.rms_norm(projected, "per_layer_projection_norm")
        self._all = scaled(ops.add(projected, rows), 2.0**-0.5)

    def _indices(self, inputs: Inputs) -> ov.Node:
        size = self.description.vocab_size
        if size >= self.weighted.arch.vocab_size:
            return inputs.tokens
        return ops.select(ops.less(inputs.tokens, i32(size)), inputs.tokens, i32(0))

    def gated(self, hidden: ov.Node, layer: int) -> ov.Node:
        """What is to be added to [batch, tokens, hidden] after the layer."""
        prefix = f"layers.{layer}"
        gate = self.weighted.linear(hidden, f"{prefix}.per_layer_input_gate")
        own = ops.gather(self._all, i64(layer), i64(2))
        product = ops.multiply(activated(gate, self.description.activation), own)
        projected = self.weighted.linear(product, f"{prefix}.per_layer_projection")
        return self.weighted.rms_norm(projected, f"{prefix}.post_per_layer_input_norm")
