"""The MLP of a layer: one gated MLP, or routed experts."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import openvino as ov
import openvino.opset13 as ops

from ..decoder.architecture import Experts, Mlp, Routing
from ..weights.weight import dense_f32
from .nodes import Weighted, activated, f32, i64, named, scaled


def build_mlp(weighted: Weighted, x: ov.Node, mlp: Mlp | Experts, prefix: str) -> ov.Node:
    """`prefix` is the weights' without the last part: "layers.0.mlp"."""
    if isinstance(mlp, Mlp):
        return _gated(weighted, x, mlp, prefix)
    routed = RoutedExperts(weighted, mlp, prefix).build(x)
    if mlp.shared is None:
        return routed
    shared = _gated(weighted, x, mlp.shared, f"{prefix}.shared_experts")
    if mlp.shared_gate:
        shared = ops.multiply(shared, ops.sigmoid(weighted.linear(x, f"{prefix}.shared_gate")))
    return ops.add(routed, shared)


def _gated(weighted: Weighted, x: ov.Node, mlp: Mlp, prefix: str) -> ov.Node:
    if not mlp.gated:
        up = activated(weighted.linear(x, f"{prefix}.up_proj", mlp.bias), mlp.activation)
        return weighted.linear(up, f"{prefix}.down_proj", mlp.bias)
    gate = weighted.linear(x, f"{prefix}.gate_proj", mlp.bias)
    if mlp.sparsity > 0:
        gate = _largest(gate, mlp.sparsity)
    gate = named(activated(gate, mlp.activation), f"model.{prefix}.act_fn")
    up = weighted.linear(x, f"{prefix}.up_proj", mlp.bias)
    product = named(ops.multiply(gate, up), f"model.{prefix}.product")
    return weighted.linear(product, f"{prefix}.down_proj", mlp.bias)


def _largest(x: ov.Node, sparsity: float) -> ov.Node:
    """relu(x - cutoff): about `sparsity` of normally distributed channels become 0."""
    mean = ops.reduce_mean(x, i64([-1]), True)
    centred = ops.subtract(x, mean)
    variance = ops.reduce_mean(ops.multiply(centred, centred), i64([-1]), True)
    cutoff = ops.multiply(ops.sqrt(variance), f32(NormalDist().inv_cdf(sparsity)))
    return ops.relu(ops.subtract(centred, cutoff))


class RoutedExperts:
    """Experts in the form that OpenVINO's plugins replace with gathered MatMuls.

    As written, every expert computes every token, and the router's zeros drop what is not
    wanted. OpenVINO's CPU and GPU plugins know the form (ConvertTiledMoeBlockToGatherMatmuls)
    and compute the chosen experts only.
    """

    def __init__(
        self,
        weighted: Weighted,
        experts: Experts,
        prefix: str,
        expert_scales: ov.Node | None = None,
    ) -> None:
        self.weighted = weighted
        self.experts = experts
        self.prefix = prefix
        self.expert_scales = expert_scales  # [experts]

    def build(self, x: ov.Node, router_input: ov.Node | None = None) -> ov.Node:
        """[batch, tokens, hidden], the same shape back. The router reads x if nothing else."""
        experts, hidden = self.experts, self.weighted.arch.hidden_size
        tokens = ops.reshape(x, i64([-1, hidden]), False)
        tiled = ops.tile(tokens, i64([experts.count, 1]))
        tiled = ops.reshape(tiled, i64([experts.count, -1, hidden]), False)
        down = self._linear(self._activated(tiled), "down_proj")
        batch = ops.gather(ops.shape_of(x, "i64"), i64([0]), i64(0))
        shape = ops.concat([i64([experts.count]), batch, i64([-1, hidden])], 0)
        outputs = ops.reshape(down, shape, False)
        routed = tokens
        if router_input is not None:
            routed = ops.reshape(router_input, i64([-1, hidden]), False)
        weights = ops.transpose(self._weights(routed), i64([1, 0]))
        shape = ops.concat([i64([experts.count]), batch, i64([-1])], 0)
        weights = ops.unsqueeze(ops.reshape(weights, shape, False), i64([-1]))
        total = ops.reduce_sum(ops.multiply(outputs, weights), i64([0]), False)
        # The shapes computed above hide what is static about the result's: say it again.
        total = ops.reshape(total, ops.shape_of(x, "i64"), False)
        return named(total, f"model.{self.prefix}.experts")

    def _linear(self, x: ov.Node, name: str) -> ov.Node:
        name = f"{self.prefix}.experts.{name}"
        product = ops.matmul(x, self.weighted.constant(name), False, True)
        if not self.experts.mlp.bias:
            return named(product, f"model.{name}")
        bias = dense_f32(self.weighted.weight(f"{name}.bias"))[:, None]  # [experts, 1, out]
        return named(ops.add(product, ops.constant(bias)), f"model.{name}")

    def _activated(self, x: ov.Node) -> ov.Node:
        if self.experts.clamp == 0.0:
            gate, up = self._linear(x, "gate_proj"), self._linear(x, "up_proj")
            return ops.multiply(activated(gate, self.experts.mlp.activation), up)
        return self._clamped(x)

    def _clamped(self, x: ov.Node) -> ov.Node:
        """gpt-oss': one MatMul with the rows of gate and up interleaved, as the form has it.

        One after the other they would need a VariadicSplit, which the form lacks.
        """
        names = [f"{self.prefix}.experts.{each}" for each in ("gate_proj", "up_proj")]
        both = ops.matmul(x, self.weighted.interleaved_constant(*names), False, True)
        biases = [dense_f32(self.weighted.weight(f"{name}.bias")) for name in names]
        bias = np.stack(biases, -1).reshape(self.experts.count, 1, -1)
        both = named(ops.add(both, ops.constant(bias)), f"model.{self.prefix}.experts.gate_up_proj")

        def every_other(first: int) -> ov.Node:
            end = 2 * self.experts.mlp.intermediate_size
            return ops.slice(both, i64([first]), i64([end]), i64([2]), i64([2]))

        limit = self.experts.clamp
        up = ops.add(ops.clamp(every_other(1), -limit, limit), f32(1.0))
        gate = ops.swish(ops.minimum(every_other(0), f32(limit)), f32(self.experts.alpha))
        return ops.multiply(up, gate)

    def _weights(self, tokens: ov.Node) -> ov.Node:
        """f32 [tokens, experts]: what each expert's output is multiplied with, mostly 0."""
        logits = self.weighted.linear(tokens, f"{self.prefix}.gate", self.experts.router_bias)
        values, indices = self._chosen(logits)
        if self.expert_scales is not None:
            values = ops.multiply(values, ops.gather(self.expert_scales, indices, i64(0)))
        values = scaled(values, self.experts.weights_scale)
        zeros = ops.broadcast(f32(0.0), ops.shape_of(logits, "i64"))
        return ops.scatter_elements_update(zeros, indices, values, i64(1))

    def _chosen(self, logits: ov.Node) -> tuple[ov.Node, ov.Node]:
        """Weights f32 and indices i64 of the active experts, [tokens, active] each."""
        routing = self.experts.routing
        if routing is Routing.SOFTMAX_OF_BEST:
            best = self._best(logits, self.experts.active)
            return ops.softmax(best.output(0), 1), best.output(1)
        if routing is Routing.SPARSE_MIXER:
            return self._sparsely_mixed(logits)
        softmax = routing is Routing.SOFTMAX
        probabilities = ops.softmax(logits, 1) if softmax else ops.sigmoid(logits)
        scores = probabilities
        if self.experts.correction:
            bias = self.weighted.vector(f"{self.prefix}.gate.e_score_correction_bias")
            scores = ops.add(probabilities, bias)
        if self.experts.groups > 1:
            scores = self._within_best_groups(scores)
        best = self._best(scores, self.experts.active)
        values = best.output(0)
        if scores is not probabilities:
            values = ops.gather_elements(probabilities, best.output(1), 1)
        if self.experts.normalise:
            values = ops.divide(values, ops.reduce_sum(values, i64([1]), True))
        return values, best.output(1)

    def _sparsely_mixed(self, logits: ov.Node) -> tuple[ov.Node, ov.Node]:
        left, values, indices = logits, [], []
        for _ in range(self.experts.active):
            best = self._best(left, 1)
            most, index = best.output(0), best.output(1)
            distance = ops.divide(
                ops.subtract(most, logits), ops.maximum(ops.absolute(logits), most)
            )
            is_far = ops.greater(distance, f32(self.experts.near))
            kept = ops.select(is_far, f32(-3e38), left)
            values.append(ops.gather_elements(ops.softmax(kept, 1), index, 1))
            indices.append(index)
            least = ops.broadcast(f32(-3e38), ops.shape_of(index, "i64"))
            left = ops.scatter_elements_update(left, index, least, i64(1))
        return ops.concat(values, 1), ops.concat(indices, 1)

    @staticmethod
    def _best(x: ov.Node, count: int) -> ov.Node:
        return ops.topk(x, i64(count), -1, "max", "value", "i64")

    def _within_best_groups(self, scores: ov.Node) -> ov.Node:
        """`scores`, the least where the expert's group is not among the best.

        A group's worth is its best score; with a correction bias (DeepSeek V3) the sum of its
        two best.
        """
        experts = self.experts
        size = experts.count // experts.groups
        grouped = ops.reshape(scores, i64([-1, experts.groups, size]), False)
        if experts.correction:
            worth = ops.reduce_sum(self._best(grouped, 2).output(0), i64([-1]), False)
        else:
            worth = ops.reduce_max(grouped, i64([-1]), False)
        chosen = self._best(worth, experts.active_groups).output(1)
        zeros = ops.broadcast(f32(0.0), ops.shape_of(worth, "i64"))
        ones = ops.broadcast(f32(1.0), ops.shape_of(chosen, "i64"))
        kept = ops.scatter_elements_update(zeros, chosen, ones, i64(1))
        chosen_groups = ops.unsqueeze(ops.greater(kept, f32(0.0)), i64([-1]))
        # A corrected score may be negative, so 0 would not do there.
        least = f32(-1e30 if experts.correction else 0.0)
        masked = ops.select(chosen_groups, grouped, least)
        return ops.reshape(masked, i64([-1, experts.count]), False)
