"""Gemma 3n's several hidden states: alternating updates (AltUp) and LAuReL beside attention."""

from __future__ import annotations

import numpy as np
import openvino as ov
import openvino.opset13 as ops

from ..decoder.architecture import AltUp
from .nodes import Weighted, f32, i64, scaled


class Streams:
    """Streams lie together: [batch, tokens, streams, hidden]."""

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
