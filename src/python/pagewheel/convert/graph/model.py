"""The decoder as an ov::Model, in the stateful form optimum-intel exports.

Inputs: see `attention_graph.Inputs`. Output: logits f32 [batch, tokens, vocab]. Each
layer's keys and values are state. The patterns are those that SDPAToPagedAttention
and OpenVINO's CPU plugin's fusions (RMS, RoPE, compressed MatMul and Gather) recognise.
"""

from __future__ import annotations

import openvino as ov
import openvino.opset13 as ops

from ..decoder.architecture import Architecture
from ..weights.weight import emit
from .attention import AttentionBuilder, Inputs
from .mlp import build_mlp
from .nodes import Weighted, WeightReader, named, scaled, soft_capped
from .per_layer import PerLayerEmbeddings
from .streams import Streams


class DecoderBuilder:
    """Builds one model; `weight(name)` is asked for each weight once."""

    def __init__(self, arch: Architecture, weight: WeightReader) -> None:
        self.arch = arch
        self.weighted = Weighted(arch, weight)
        self.inputs = Inputs()
        self.attention = AttentionBuilder(self.weighted, self.inputs)

    def build(self) -> ov.Model:
        embeddings = self.weighted.constant("embed_tokens")
        rows = self.weighted.rows(embeddings, self.inputs.tokens, "embed_tokens")
        hidden = scaled(rows, self.arch.embedding_scale)
        hidden = self.weighted.rms_norm(self.layers(hidden), "norm")
        logits = named(ops.matmul(hidden, self._head(embeddings), False, True), "lm_head")
        if self.arch.lm_head_bias:
            logits = ops.add(logits, self.weighted.vector("lm_head.bias"))
        logits = soft_capped(scaled(logits, self.arch.logits_scale), self.arch.logits_soft_cap)
        result = named(ops.result(logits), "logits")
        result.output(0).tensor.set_names({"logits"})
        return ov.Model([result], self.attention.assigns, self.inputs.all, self.arch.model_type)

    def layers(self, hidden: ov.Node) -> ov.Node:
        extra = None
        if self.arch.per_layer_inputs is not None:
            extra = PerLayerEmbeddings(self.weighted, self.inputs, hidden)
        streams = None
        if self.arch.altup is not None:
            streams = Streams(self.weighted, self.arch.altup)
            hidden = streams.spread(hidden)
        for layer in range(len(self.arch.layers)):
            if streams is not None:
                hidden = self.layer_of_streams(hidden, layer, streams, extra)
            else:
                hidden = self.layer(hidden, layer)
                if extra is not None:
                    hidden = ops.add(hidden, extra.gated(hidden, layer))
            if self.arch.layers[layer].scaled:
                scalar = self.weighted.vector(f"layers.{layer}.layer_scalar")
                hidden = ops.multiply(hidden, scalar)
        return hidden if streams is None else streams.joined(hidden)

    def layer(self, hidden: ov.Node, layer: int) -> ov.Node:
        attended = self.attended(self.normed(hidden, layer, self.arch.norms.value[0]), layer)
        hidden = self._added(hidden, attended, f"model.layers.{layer}.self_attn.residual")
        return self._added(hidden, self.mlp(hidden, layer), f"model.layers.{layer}.residual")

    def attended(self, normed: ov.Node, layer: int) -> ov.Node:
        return self.normed(self.attention.build(normed, layer), layer, self.arch.norms.value[1])

    def mlp(self, hidden: ov.Node, layer: int) -> ov.Node:
        _, _, before, after = self.arch.norms.value
        mlp, prefix = self.arch.layers[layer].mlp, f"layers.{layer}.mlp"
        output = build_mlp(self.weighted, self.normed(hidden, layer, before), mlp, prefix)
        return self.normed(output, layer, after)

    def layer_of_streams(
        self, hidden: ov.Node, layer: int, streams: Streams, extra: PerLayerEmbeddings | None
    ) -> ov.Node:
        """[batch, tokens, streams, hidden], the same shape back."""
        predictions = streams.predicted(hidden, layer)
        active = streams.active(predictions)
        normed = self.normed(active, layer, self.arch.norms.value[0])
        attended = ops.add(active, self.attended(normed, layer))
        beside = streams.laurel(normed, layer)
        joined = scaled(ops.add(attended, beside), 2.0**-0.5)
        activated = ops.add(joined, self.mlp(joined, layer))
        corrected = streams.corrected(predictions, activated, layer)
        assert extra is not None  # an Architecture makes sure
        update = extra.gated(streams.scaled_active(corrected, layer), layer)
        return streams.with_update(corrected, update)

    def normed(self, x: ov.Node, layer: int, norm: str | None) -> ov.Node:
        return x if norm is None else self.weighted.rms_norm(x, f"layers.{layer}.{norm}")

    def _added(self, hidden: ov.Node, output: ov.Node, name: str) -> ov.Node:
        return named(ops.add(hidden, scaled(output, self.arch.residual_scale)), name)

    def _head(self, embeddings: ov.Node) -> ov.Node:
        # A tied head reads the embedding's own constant: one copy in the file and in memory.
        if self.arch.tied_embeddings:
            return embeddings
        return emit(self.weighted.weight("lm_head"), "lm_head.weight")


def build_model(arch: Architecture, weight: WeightReader) -> ov.Model:
    """Builds the decoder; `weight(name)` gives each weight, see GGUFSource."""
    return DecoderBuilder(arch, weight).build()
