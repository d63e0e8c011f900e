"""The decoder as an ov::Model, in the stateful form optimum-intel exports.

Inputs: see `attention.Inputs`; a head that guesses further tokens has hidden_states f32 [batch,
tokens, hidden], too, three times as wide for EAGLE-3. Output: logits f32 [batch, tokens, vocab],
and d2t i64 [vocab] where a head of EAGLE-3 has not all tokens of its model. Each layer's keys and
values, the tail of its convolution, and its matrices are state. The patterns are those that
SDPAToPagedAttention and OpenVINO's CPU plugin's fusions (RMS, RoPE, compressed MatMul
and Gather) recognise.
"""

from __future__ import annotations

import numpy as np
import openvino as ov
import openvino.opset13 as ops

from ..decoder.architecture import (
    NORMS_BESIDE,
    AltUp,
    Architecture,
    Attention,
    Experts,
    GatedDeltaNet,
    Mamba2,
    ShortConvolution,
)
from ..weights.weight import dense_i64, emit
from .attention import AttentionBuilder, Inputs
from .convolution import build_convolution
from .delta import build_delta
from .mamba2 import build_mamba
from .mlp import RoutedExperts, build_mlp
from .nodes import (
    Weighted,
    WeightReader,
    activated,
    f32,
    i32,
    i64,
    named,
    parameter,
    scaled,
    soft_capped,
)


class PerLayerEmbeddings:
    """Per-layer inputs of Gemma 3n and 4: a second embedding that enters after every layer's MLP.

    A layer gets a token's row of the second table and a projection of its first embedding, added
    and scaled.
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


class Streams:
    """Gemma 3n's several hidden states: alternating updates (AltUp) and LAuReL beside attention.

    Streams lie together: [batch, tokens, streams, hidden].
    """

    def __init__(self, weighted: Weighted, altup: AltUp) -> None:
        self.weighted = weighted
        self.altup = altup

    def spread(self, embedded: ov.Node) -> ov.Node:
        """Streams of [batch, tokens, hidden]: itself, then projections as large as itself."""
        others = [
            self._as_large_as(
                embedded, self.weighted.linear(embedded, f"altup_projections.{stream}")
            )
            for stream in range(self.altup.streams - 1)
        ]
        return ops.concat([ops.unsqueeze(each, i64(2)) for each in (embedded, *others)], 2)

    def joined(self, streams: ov.Node) -> ov.Node:
        """The mean of the first stream and the others projected back: [batch, tokens, hidden]."""
        first = self._stream(streams, 0)
        total = first
        for stream in range(1, self.altup.streams):
            name = f"altup_unembed_projections.{stream - 1}"
            projected = self.weighted.linear(self._stream(streams, stream), name)
            total = ops.add(total, self._as_large_as(first, projected))
        return scaled(total, 1.0 / self.altup.streams)

    def active(self, streams: ov.Node) -> ov.Node:
        return self._stream(streams, self.altup.active)

    def predicted(self, streams: ov.Node, layer: int) -> ov.Node:
        """Each stream plus a combination of all, by what the active one holds."""
        count = self.altup.streams
        modalities = self._modalities(self.active(streams), layer)
        mixing = self.weighted.linear(modalities, f"layers.{layer}.altup.prediction_coefs")
        mixing = ops.reshape(mixing, i64([0, 0, count, count]), True)
        return ops.add(ops.matmul(mixing, streams, False, False), streams)

    def corrected(self, predictions: ov.Node, activated: ov.Node, layer: int) -> ov.Node:
        """Every prediction moved by the active one's error, each by its share."""
        modalities = self._modalities(activated, layer)
        shares = self.weighted.linear(modalities, f"layers.{layer}.altup.correction_coefs")
        shares = ops.unsqueeze(ops.add(shares, f32(1.0)), i64(3))
        error = ops.unsqueeze(ops.subtract(activated, self.active(predictions)), i64(2))
        return ops.add(predictions, ops.multiply(error, shares))

    def scaled_active(self, streams: ov.Node, layer: int) -> ov.Node:
        active = self.active(streams)
        if not self.altup.scale_corrected:
            return active
        scale = self.weighted.vector(f"layers.{layer}.altup.correct_output_scale")
        return ops.multiply(active, scale)

    def with_update(self, streams: ov.Node, update: ov.Node) -> ov.Node:
        """`update` [batch, tokens, hidden] is added to all streams but the first."""
        others = np.ones((1, 1, self.altup.streams, 1), np.float32)
        others[:, :, 0] = 0
        return ops.add(streams, ops.multiply(ops.unsqueeze(update, i64(2)), ops.constant(others)))

    def laurel(self, normed: ov.Node, layer: int) -> ov.Node:
        prefix = f"layers.{layer}.laurel"
        narrow = self.weighted.linear(normed, f"{prefix}.linear_left")
        wide = self.weighted.linear(narrow, f"{prefix}.linear_right")
        return ops.add(normed, self.weighted.rms_norm(wide, f"{prefix}.post_laurel_norm"))

    def _modalities(self, x: ov.Node, layer: int) -> ov.Node:
        prefix = f"layers.{layer}.altup"
        normed = self.weighted.rms_norm(x, f"{prefix}.router_norm")
        normed = scaled(normed, 1.0 / self.weighted.arch.hidden_size)
        return ops.tanh(self.weighted.linear(normed, f"{prefix}.modality_router"))

    @staticmethod
    def _stream(streams: ov.Node, index: int) -> ov.Node:
        return ops.gather(streams, i64(index), i64(2))

    @staticmethod
    def _as_large_as(target: ov.Node, x: ov.Node) -> ov.Node:
        """x with the root mean square of `target`, token by token."""

        def mean_square(node: ov.Node) -> ov.Node:
            return ops.reduce_mean(ops.multiply(node, node), i64([-1]), True)

        wanted = ops.sqrt(mean_square(target))
        own = ops.sqrt(ops.maximum(mean_square(x), f32(1e-5)))
        return ops.multiply(x, ops.divide(wanted, own))


class DecoderBuilder:
    """Builds one model; `weight(name)` is asked for each weight once."""

    def __init__(self, arch: Architecture, weight: WeightReader) -> None:
        self.arch = arch
        self.weighted = Weighted(arch, weight)
        self.inputs = Inputs()
        self.attention = AttentionBuilder(self.weighted, self.inputs)

    def build(self) -> ov.Model:
        embeddings = self.embeddings()
        rows = self.weighted.rows(embeddings, self.inputs.tokens, "embed_tokens")
        self.embedded = hidden = scaled(rows, self.arch.embedding_scale)
        parameters = self.inputs.all
        eagle3 = self.arch.eagle3
        if self.arch.reads_hidden_states or eagle3 is not None:
            size = self.arch.hidden_size * (1 if eagle3 is None else 3)
            states = parameter("hidden_states", [-1, -1, size], ov.Type.f32)
            parameters.append(states)
            hidden = (
                self.joined(hidden, states)
                if eagle3 is None
                else self.weighted.linear(states, "fc")
            )
        hidden = self.weighted.norm(self.layers(hidden), "norm")
        logits = named(ops.matmul(hidden, self._head(embeddings), False, True), "lm_head")
        if self.arch.lm_head_bias:
            logits = ops.add(logits, self.weighted.vector("lm_head.bias"))
        logits = soft_capped(scaled(logits, self.arch.logits_scale), self.arch.logits_soft_cap)
        result = named(ops.result(logits), "logits")
        result.output(0).tensor.set_names({"logits"})
        results = [result]
        if eagle3 is not None and eagle3.model_vocab_size > self.arch.vocab_size:
            offsets = named(ops.constant(dense_i64(self.weighted.weight("d2t"))), "d2t")
            results.append(named(ops.result(offsets), "d2t"))
        # Keys and values come before the states of other mixers.
        assigns = sorted(self.inputs.assigns, key=_is_of_other_mixer)
        return ov.Model(results, assigns, parameters, self.arch.model_type)

    def embeddings(self) -> ov.Node:
        """A head of EAGLE-3 gets the model's when it is loaded."""
        if self.arch.eagle3 is None:
            return self.weighted.constant("embed_tokens")
        shape = i64([self.arch.eagle3.model_vocab_size, self.arch.hidden_size])
        return named(ops.broadcast(f32(0.0), shape), "model.embed_tokens.weight")

    def joined(self, embedded: ov.Node, states: ov.Node) -> ov.Node:
        """What a head's layers read."""
        normed = [
            self.weighted.norm(embedded, "pre_fc_norm_embedding"),
            self.weighted.norm(states, "pre_fc_norm_hidden"),
        ]
        return self.weighted.linear(ops.concat(normed, 2), "fc")

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
        if self.arch.layers[layer].mixer is not None:
            attended = self.attended(self.mixer_input(hidden, layer), layer)
            hidden = self._added(hidden, attended, f"model.layers.{layer}.self_attn.residual")
        if self.arch.layers[layer].mlp is None:
            return hidden
        return self._added(hidden, self.mlp(hidden, layer), f"model.layers.{layer}.residual")

    def mixer_input(self, hidden: ov.Node, layer: int) -> ov.Node:
        norm = self.arch.norms_of(layer)[0]
        if self.arch.eagle3 is None:
            return self.normed(hidden, layer, norm)
        normed = [
            self.normed(self.embedded, layer, norm),
            self.normed(hidden, layer, "hidden_norm"),
        ]
        return ops.concat(normed, 2)

    def attended(self, normed: ov.Node, layer: int) -> ov.Node:
        """What the layer's mixer of tokens gives."""
        mixer, recurrence = self.arch.layers[layer].mixer, self.arch.layers[layer].recurrence
        if isinstance(mixer, Attention):
            mixed = self.attention.build(normed, layer)
        elif isinstance(mixer, Mamba2):
            mixed = build_mamba(self.weighted, self.inputs, normed, mixer, layer)
        elif isinstance(mixer, GatedDeltaNet):
            mixed = build_delta(self.weighted, self.inputs, normed, mixer, layer)
        else:
            assert isinstance(mixer, ShortConvolution)
            mixed = build_convolution(self.weighted, self.inputs, normed, mixer, layer)
        if recurrence is not None:
            beside = build_mamba(self.weighted, self.inputs, normed, recurrence, layer)
            mixed = ops.add(beside, mixed)
        return self.normed(mixed, layer, self.arch.norms_of(layer)[1])

    def mlp(self, hidden: ov.Node, layer: int) -> ov.Node:
        _, _, before, after = self.arch.norms_of(layer)
        mlp, prefix = self.arch.layers[layer].mlp, f"layers.{layer}.mlp"
        assert mlp is not None
        output = build_mlp(self.weighted, self.normed(hidden, layer, before), mlp, prefix)
        beside = self.arch.layers[layer].beside
        if beside is not None:
            output = self.normed(output, layer, NORMS_BESIDE[0])
            output = ops.add(output, self.experts_beside(hidden, beside, layer))
        return self.normed(output, layer, after)

    def experts_beside(self, hidden: ov.Node, experts: Experts, layer: int) -> ov.Node:
        prefix = f"layers.{layer}.moe"
        scale = self.weighted.vector(f"{prefix}.router_scale")
        router_input = ops.multiply(self.weighted.unit_rms(hidden), scale)
        router_input = scaled(router_input, self.arch.hidden_size**-0.5)
        scales = self.weighted.vector(f"{prefix}.expert_scales")
        routed = RoutedExperts(self.weighted, experts, prefix, scales)
        output = routed.build(self.normed(hidden, layer, NORMS_BESIDE[1]), router_input)
        return self.normed(output, layer, NORMS_BESIDE[2])

    def layer_of_streams(
        self, hidden: ov.Node, layer: int, streams: Streams, extra: PerLayerEmbeddings | None
    ) -> ov.Node:
        """[batch, tokens, streams, hidden], the same shape back."""
        predictions = streams.predicted(hidden, layer)
        active = streams.active(predictions)
        normed = self.normed(active, layer, self.arch.norms_of(layer)[0])
        attended = ops.add(active, self.attended(normed, layer))
        beside = streams.laurel(normed, layer)
        joined = scaled(ops.add(attended, beside), 2.0**-0.5)
        activated = ops.add(joined, self.mlp(joined, layer))
        corrected = streams.corrected(predictions, activated, layer)
        assert extra is not None  # an Architecture makes sure
        update = extra.gated(streams.scaled_active(corrected, layer), layer)
        return streams.with_update(corrected, update)

    def normed(self, x: ov.Node, layer: int, norm: str | None) -> ov.Node:
        return x if norm is None else self.weighted.norm(x, f"layers.{layer}.{norm}")

    def _added(self, hidden: ov.Node, output: ov.Node, name: str) -> ov.Node:
        return named(ops.add(hidden, scaled(output, self.arch.residual_scale)), name)

    def _head(self, embeddings: ov.Node) -> ov.Node:
        # A tied head reads the embedding's own constant: one copy in the file and in memory.
        if self.arch.tied_embeddings:
            return embeddings
        return emit(self.weighted.weight("lm_head"), "lm_head.weight")


def _is_of_other_mixer(assign: ov.Node) -> bool:
    return str(assign.get_attributes()["variable_id"]).startswith("cache_params")


def build_model(arch: Architecture, weight: WeightReader) -> ov.Model:
    """Builds the decoder; `weight(name)` gives each weight, see GGUFSource."""
    return DecoderBuilder(arch, weight).build()
