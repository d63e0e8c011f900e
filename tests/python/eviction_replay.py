"""Eviction replayed in transformers: the same entries leave its cache, its keys are rotated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from conftest import F32, greedy
from transformers import DynamicCache

import pagewheel


class Recorded(pagewheel.EvictionPolicy):
    """Random choices, written down: (layer, tokens held, slots that go)."""

    def __init__(self) -> None:
        super().__init__()
        self.random = np.random.default_rng(5)
        self.decisions: list[tuple[int, int, np.ndarray]] = []

    def drop(self, view: pagewheel.EvictionView, count: int) -> list[int]:
        units = self.random.choice(np.arange(view.first_unit, view.last_unit), count, replace=False)
        slots = (units[:, None] * view.unit_size + np.arange(view.unit_size)).reshape(-1)
        self.decisions.append((view.layer, view.num_tokens, np.sort(slots)))
        return [int(unit) for unit in units]


def rotated_back(keys: torch.Tensor, inv_freq: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """keys [1, kv heads, tokens, d] moved to positions lower by `by` [tokens], in double."""
    angles = by.double()[:, None] * inv_freq.double()
    cos, sin = angles.cos(), angles.sin()
    half = len(inv_freq)
    a, b, rest = keys.double().split([half, half, keys.shape[-1] - 2 * half], -1)
    return torch.cat([a * cos + b * sin, b * cos - a * sin, rest], -1).float()


class Watching(Recorded):
    """Takes down what a policy that asks for queries sees, too: by decision, the view's arrays."""

    def __init__(self, **observed: Any) -> None:
        super().__init__()
        self.asked = pagewheel.ObservedQueries(**observed, queries=True)
        self.seen: list[dict[str, np.ndarray]] = []

    def observed(self) -> pagewheel.ObservedQueries:
        return self.asked

    def drop(self, view: pagewheel.EvictionView, count: int) -> list[int]:
        tokens = (0, view.num_tokens)
        self.seen.append(
            {
                "positions": view.positions,
                "keys": view.keys_before_rotation(*tokens),
                "values": view.values(*tokens),
                "count": np.array(view.num_queries),
                "mean_query": view.mean_query,
                "mean_amplitude": view.mean_amplitude,
                "frequencies": view.inverse_frequencies,
            }
        )
        return super().drop(view, count)


class Replay:
    """A model's cache, evicted from as recorded."""

    def __init__(self, model: Any, rotation: bool) -> None:
        self.model = model
        self.rotation = rotation
        self.cache = DynamicCache()
        self.processed = 0
        self.window = getattr(model.config, "sliding_window", None) or 0
        same = ["sliding_attention" if self.window else "full_attention"]
        layers = model.config.num_hidden_layers
        self.types = getattr(model.config, "layer_types", None) or same * layers

    @property
    def held(self) -> int:
        return self.cache.get_seq_length()

    def slides(self, layer: int) -> bool:
        return self.types[layer] == "sliding_attention"

    def inverse_frequencies(self, layer: int) -> torch.Tensor | None:
        uses_rotary = getattr(self.model.config, "no_rope_layers", None)
        if uses_rotary and not uses_rotary[layer]:
            return None
        rotary = self.model.model.rotary_emb
        own = f"{self.types[layer]}_inv_freq"  # of models with an embedding per layer type
        frequencies: torch.Tensor = getattr(rotary, own if hasattr(rotary, own) else "inv_freq")
        return frequencies

    def mask(self, count: int) -> Any:
        rows = torch.arange(self.held, self.held + count)[:, None]
        columns = torch.arange(self.held + count)[None]
        full = torch.zeros(count, self.held + count).masked_fill(columns > rows, -torch.inf)
        sliding = full.masked_fill(columns <= rows - self.window, -torch.inf)
        masks = {"full_attention": full[None, None], "sliding_attention": sliding[None, None]}
        kinds = set(self.types)
        if self.model.config.model_type in ("gemma2", "gemma3_text", "gpt_oss", "qwen2", "smollm3"):
            return masks
        assert len(kinds) == 1
        return masks[kinds.pop()]

    def run(self, tokens: list[int], kept: int) -> torch.Tensor:
        """Logits [kept, vocabulary] of the last tokens."""
        first = self.held if self.rotation else self.processed
        with torch.no_grad():
            logits = self.model(
                torch.tensor([tokens]),
                past_key_values=self.cache,
                position_ids=torch.arange(first, first + len(tokens))[None],
                attention_mask=self.mask(len(tokens)),
                logits_to_keep=max(kept, 1),  # 0 is all of them
            ).logits[0]
        self.processed += len(tokens)
        return logits[len(logits) - kept :]

    def evict(self, layer: int, slots: np.ndarray) -> None:
        entry = self.cache.layers[layer]
        kept = np.setdiff1d(np.arange(entry.keys.shape[2]), slots)
        keys = entry.keys[:, :, kept]
        frequencies = self.inverse_frequencies(layer)
        if self.rotation and frequencies is not None:
            keys = rotated_back(keys, frequencies, torch.from_numpy(kept - np.arange(len(kept))))
        entry.keys, entry.values = keys.contiguous(), entry.values[:, :, kept].contiguous()


def run_with_recorded_evictions(
    folder: Path,
    prompt: list[int],
    new_tokens: int,
    sizes: tuple[int, int, int],
    properties: dict[str, str] = F32,
    policy: Recorded | None = None,
    **options: Any,
) -> tuple[Recorded, list[int], list[float]]:
    """Greedy tokens and their log-probabilities."""
    policy = policy or Recorded()
    scheduler = pagewheel.SchedulerConfig()
    scheduler.num_kv_blocks = 40
    scheduler.use_cache_eviction = True
    scheduler.cache_eviction_config = pagewheel.CacheEvictionConfig(
        *sizes, policy=policy, **options
    )
    pipeline = pagewheel.ContinuousBatchingPipeline(folder, scheduler, "CPU", properties)
    handle = pipeline.add_request(0, prompt, greedy(new_tokens, logprobs=1))
    while pipeline.has_non_finished_requests():
        pipeline.step()
    output = handle.read_all()[0]
    assert len(output.generated_ids) == new_tokens
    return policy, output.generated_ids, output.generated_log_probs


def replayed(
    replay: Replay,
    prompt: list[int],
    generated: list[int],
    decisions: list[tuple[int, int, np.ndarray]],
    drops_oldest: Callable[[int], bool] = lambda _layer: False,
) -> np.ndarray:
    """Log-probabilities f64 [generated, vocabulary] after the same evictions. Layers of
    `drops_oldest` lose their oldest tokens with each decision, as many as the others."""
    tokens = [*prompt, *generated[:-1]]
    remaining = list(decisions)
    logits = []
    while replay.processed < len(tokens):
        # Up to the next decision, which falls when so many tokens are held.
        length = len(tokens) - replay.processed
        if remaining:
            length = min(length, remaining[0][1] - replay.held)
        end = replay.processed + length
        kept = min(max(end - len(prompt) + 1, 0), length)
        logits.append(replay.run(tokens[replay.processed : end], kept))
        if not remaining or replay.held != remaining[0][1]:
            continue
        count = len(remaining[0][2])
        for layer in range(replay.model.config.num_hidden_layers):
            if drops_oldest(layer):
                replay.evict(layer, np.arange(count))
                continue
            asked, _, slots = remaining.pop(0)
            assert asked == layer and len(slots) == count
            replay.evict(layer, slots)
    assert not remaining
    return torch.cat(logits).double().log_softmax(-1).numpy()
