"""The decoder as an ov::Model, in the stateful form optimum-intel exports.

Inputs: see `attention_graph.Inputs`. Output: logits f32 [batch, tokens, vocab]. Each
layer's keys and values are state. The patterns are those that SDPAToPagedAttention
and the CPU plugin's fusions (RMS, RoPE, compressed MatMul and Gather) recognise.
"""

from __future__ import annotations

import openvino as ov
import openvino.opset13 as ops

from .architecture import Architecture
from .attention_graph import AttentionBuilder, Inputs
from .mlp_graph import build_mlp
from .nodes import Weighted, WeightReader, i32, named, scaled, soft_capped
from .weights import emit


class DecoderBuilder:
    """Builds one model; `weight(name)` is asked for each weight once."""

    def __init__(self, arch: Architecture, weight: WeightReader) -> None:
        self.arch = arch
        self.weighted = Weighted(arch, weight)
        self.inputs = Inputs()
        self.attention = AttentionBuilder(self.weighted, self.inputs)

    def build(self) -> ov.Model:
        embeddings = self.weighted.constant("embed_tokens")
        hidden = self.embedded(embeddings, "embed_tokens", self.arch.embedding_scale)
        hidden = self.layers(hidden)
        hidden = self.weighted.rms_norm(hidden, "norm")
        logits = named(ops.matmul(hidden, self._head(embeddings), False, True), "lm_head")
        if self.arch.lm_head_bias:
            logits = ops.add(logits, self.weighted.vector("lm_head.bias"))
        logits = soft_capped(scaled(logits, self.arch.logits_scale), self.arch.logits_soft_cap)
        result = named(ops.result(logits), "logits")
        result.output(0).tensor.set_names({"logits"})
        return ov.Model([result], self.attention.assigns, self.inputs.all, self.arch.model_type)

    def embedded(self, table: ov.Node, name: str, scale: float) -> ov.Node:
        """The tokens' rows of `table`, times `scale`."""
        indices = ops.convert(self.inputs.input_ids, "i32")
        rows = named(ops.gather(table, indices, i32(0)), f"model.{name}")
        return scaled(rows, scale)

    def layers(self, hidden: ov.Node) -> ov.Node:
        for layer in range(len(self.arch.layers)):
            hidden = self.layer(hidden, layer)
        return hidden

    def layer(self, hidden: ov.Node, layer: int) -> ov.Node:
        prefix = f"layers.{layer}"
        before_attention, after_attention, before_mlp, after_mlp = self.arch.norms.value
        attended = self.attention.build(self.normed(hidden, layer, before_attention), layer)
        attended = self.normed(attended, layer, after_attention)
        hidden = self._added(hidden, attended, f"model.{prefix}.self_attn.residual")
        mlp = self.arch.layers[layer].mlp
        output = build_mlp(
            self.weighted, self.normed(hidden, layer, before_mlp), mlp, f"{prefix}.mlp"
        )
        output = self.normed(output, layer, after_mlp)
        return self._added(hidden, output, f"model.{prefix}.residual")

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
