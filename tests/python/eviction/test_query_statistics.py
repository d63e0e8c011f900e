"""What policies see of queries, against transformers; TriAttention, against its definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import F32, greedy
from numpy.typing import NDArray

import pagewheel

SIZES = (4, 8, 64)


def scheduler(policy: Any, **options: Any) -> pagewheel.SchedulerConfig:
    config = pagewheel.SchedulerConfig()
    config.use_cache_eviction = True
    arguments = {"apply_rotation": True, "granularity": "token", **options}
    config.cache_eviction_config = pagewheel.CacheEvictionConfig(*SIZES, policy=policy, **arguments)
    return config


def as_defined(view: pagewheel.EvictionView) -> NDArray[np.float64]:
    """TriAttention's scores: every distance of every key to every query to come, head by head."""

    def pairs(parts: NDArray[np.float32]) -> NDArray[np.complex128]:
        return parts[..., 0, :].astype(np.complex128) + 1j * parts[..., 1, :]

    keys, centres = pairs(view.unrotated_keys(0, view.num_tokens)), pairs(view.query_mean)
    length = view.query_magnitude
    scores = []
    for head in range(len(centres)):
        k = keys[:, head // (len(centres) // keys.shape[1])]
        score = np.zeros(len(k))
        for i in range(len(k)):
            for offset in 2.0 ** np.arange(17):
                angle = view.inverse_frequencies * (view.num_tokens - 1 - i + offset)
                product = centres[head] * np.conj(k[i])
                score[i] += (np.abs(product) * np.cos(np.angle(product) + angle)).sum() / 17
            score[i] += ((length[head] - np.abs(centres[head])) * np.abs(k[i])).sum()
        scores.append((score - score.mean()) / score.std())
    return np.mean(scores, 0)


class Checked(pagewheel.EvictionPolicy):
    """Answers as a built-in policy does, and writes down what it sees."""

    def __init__(self, name: str) -> None:
        super().__init__()
        config = scheduler(name).cache_eviction_config
        self.policy = pagewheel.make_policy(config)
        self.seen: list[tuple[int, NDArray[Any], NDArray[Any], NDArray[Any]]] = []
        self.scores: list[tuple[NDArray[np.float64], set[int]]] = []

    def observed(self) -> pagewheel.ObservedQueries:
        return self.policy.observed()

    def drop(self, view: pagewheel.EvictionView, count: int) -> list[int]:
        units = self.policy.drop(view, count)
        keys = view.unrotated_keys(0, view.num_tokens)
        self.seen.append((view.layer, view.query_mean, view.query_magnitude, keys))
        self.scores.append((as_defined(view)[view.first_unit : view.last_unit], set(units)))
        return units


def run(folder: Path, policy: pagewheel.EvictionPolicy | str, new_tokens: int = 12) -> list[int]:
    pipeline = pagewheel.ContinuousBatchingPipeline(folder, scheduler(policy), "CPU", F32)
    prompt = np.random.default_rng(2).integers(10, 200, 90).tolist()
    return list(pipeline.generate([prompt], [greedy(new_tokens)])[0].m_generation_ids[0])


def test_query_means_and_keys_before_rotation_are_those_of_transformers(
    tiny_folder: Path, tiny_reference: Any
) -> None:
    policy = Checked("triattention")
    run(tiny_folder, policy, 1)
    outputs: dict[str, torch.Tensor] = {}
    for number, layer in enumerate(tiny_reference.model.layers):
        for name in ("q_proj", "k_proj"):
            getattr(layer.self_attn, name).register_forward_hook(
                lambda _module, _in, out, key=f"{name} {number}": outputs.__setitem__(key, out[0])
            )
    prompt = np.random.default_rng(2).integers(10, 200, 90)
    with torch.no_grad():
        tiny_reference(torch.from_numpy(prompt)[None])
    assert policy.seen
    for layer, mean, magnitude, keys in policy.seen:
        half = keys.shape[-1]
        q = outputs[f"q_proj {layer}"][-8:].view(8, -1, 2, half).double().numpy()
        k = outputs[f"k_proj {layer}"].view(90, -1, 2, half).numpy()
        np.testing.assert_allclose(mean, q.mean(0), atol=2e-3)
        np.testing.assert_allclose(magnitude, np.hypot(q[:, :, 0], q[:, :, 1]).mean(0), atol=2e-3)
        np.testing.assert_allclose(keys, k, atol=2e-3)


def test_triattention_drops_what_its_definition_scores_lowest(tiny_folder: Path) -> None:
    policy = Checked("triattention")
    tokens = run(tiny_folder, policy)
    assert len(policy.scores) > len({layer for layer, *_ in policy.seen})  # while generating, too
    for scores, units in policy.scores:
        gone = np.zeros(len(scores), bool)
        gone[[unit - SIZES[0] for unit in units]] = True
        assert scores[gone].max() <= scores[~gone].min() + 1e-4
    assert tokens == run(tiny_folder, "triattention")


def test_hybrid_keeps_what_one_of_its_scores_ranks_high(tiny_folder: Path) -> None:
    class Both(Checked):
        def drop(self, view: pagewheel.EvictionView, count: int) -> list[int]:
            units = super().drop(view, count)
            pooled = view.scores / np.maximum(view.lifetimes, 1)
            expected = self.scores[-1][0]
            attended = pooled[view.first_unit : view.last_unit]
            best = np.maximum(
                *(each.argsort(kind="stable").argsort() for each in (expected, attended))
            )
            gone = np.zeros(len(best), bool)
            gone[[unit - view.first_unit for unit in units]] = True
            # Ranks of nearly equal scores may be exchanged.
            assert best[gone].max() <= best[~gone].min() + 2
            return units

    run(tiny_folder, Both("hybrid"))


def test_policies_that_look_at_queries_name_what_they_need(tiny_folder: Path) -> None:
    for name in ("triattention", "hybrid"):
        with pytest.raises(ValueError, match="apply_rotation"):
            scheduler(name, apply_rotation=False)
    with pytest.raises(ValueError, match="attention_backend"):
        pagewheel.ContinuousBatchingPipeline(
            tiny_folder,
            scheduler("triattention"),
            "CPU",
            {"attention_backend": "openvino", "KV_CACHE_PRECISION": "f16"},
        )
