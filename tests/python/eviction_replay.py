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
    """A model's cache, evicted from as recorded.

    With `rotation` positions close up before one reaches `limit`, when decisions fall at `next_end`
    tokens held at most; by default with each decision.
    """

    def __init__(self, model: Any, rotation: bool, limit: int = 0, next_end: int = 0) -> None:
        self.model = model
        self.rotation, self.limit, self.next_end = rotation, limit, next_end
        self.cache = DynamicCache()
        self.processed = self.next_position = self.times_closed = 0
        self.positions = [torch.empty(0)] * model.config.num_hidden_layers  # of the keys
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
        positions = torch.arange(self.next_position, self.next_position + len(tokens))
        with torch.no_grad():
            logits = self.model(
                torch.tensor([tokens]),
                past_key_values=self.cache,
                position_ids=positions[None],
                attention_mask=self.mask(len(tokens)),
                logits_to_keep=max(kept, 1),  # 0 is all of them
            ).logits[0]
        self.processed += len(tokens)
        self.next_position += len(tokens)
        self.positions = [torch.cat([before, positions]) for before in self.positions]
        return logits[len(logits) - kept :]

    def closes_positions(self, count: int) -> bool:
        """Whether positions close up as `count` tokens go."""
        until_next = self.next_end - (self.held - count)
        return self.rotation and self.next_position + until_next > self.limit

    def evict(self, layer: int, slots: np.ndarray, closes: bool) -> None:
        entry = self.cache.layers[layer]
        kept = np.setdiff1d(np.arange(entry.keys.shape[2]), slots)
        keys, positions = entry.keys[:, :, kept], self.positions[layer][kept]
        frequencies = self.inverse_frequencies(layer)
        if closes:
            if frequencies is not None:
                keys = rotated_back(keys, frequencies, positions - torch.arange(len(kept)))
            positions = torch.arange(len(kept))
        self.positions[layer] = positions
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
        closes = replay.closes_positions(count)
        for layer in range(replay.model.config.num_hidden_layers):
            if drops_oldest(layer):
                replay.evict(layer, np.arange(count), closes)
                continue
            asked, _, slots = remaining.pop(0)
            assert asked == layer and len(slots) == count
            replay.evict(layer, slots, closes)
        if closes:
            replay.next_position = replay.held
            replay.times_closed += 1
    assert not remaining
    return torch.cat(logits).double().log_softmax(-1).numpy()
