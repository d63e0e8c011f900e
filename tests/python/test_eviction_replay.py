"""What eviction computes, against transformers with the same entries deleted from its cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import F32, greedy
from references import dequantised_llama
from transformers import DynamicCache, LlamaForCausalLM

import pagewheel

START, RECENT, BUDGET = 32, 32, 128
PROMPT = Path(__file__).read_text()


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


def turned_back(keys: torch.Tensor, inv_freq: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """keys [1, kv heads, tokens, d] moved to positions lower by `by` [tokens], in double."""
    angles = by.double()[:, None] * inv_freq.double()
    cos, sin = angles.cos(), angles.sin()
    a, b = keys.double().chunk(2, -1)
    return torch.cat([a * cos + b * sin, b * cos - a * sin], -1).float()


class Replay:
    """transformers' cache, evicted from as recorded."""

    def __init__(self, model: LlamaForCausalLM, rotation: bool) -> None:
        self.model = model
        self.rotation = rotation
        self.cache = DynamicCache()
        self.processed = 0

    @property
    def held(self) -> int:
        return self.cache.get_seq_length()

    def run(self, tokens: list[int]) -> torch.Tensor:
        """Logits [tokens, vocabulary]."""
        first = self.held if self.rotation else self.processed
        positions = torch.arange(first, first + len(tokens))[None]
        held = self.held
        with torch.no_grad():
            mask = torch.full((len(tokens), held + len(tokens)), -torch.inf).triu(held + 1)
            logits = self.model(
                torch.tensor([tokens]),
                past_key_values=self.cache,
                position_ids=positions,
                attention_mask=mask[None, None],
                cache_position=torch.arange(held, held + len(tokens)),
            ).logits[0]
        self.processed += len(tokens)
        return logits

    def evict(self, layer: int, slots: np.ndarray) -> None:
        entry = self.cache.layers[layer]
        kept = np.setdiff1d(np.arange(entry.keys.shape[2]), slots)
        keys = entry.keys[:, :, kept]
        if self.rotation:
            by = torch.from_numpy(kept - np.arange(len(kept)))
            keys = turned_back(keys, self.model.model.rotary_emb.inv_freq, by)
        entry.keys, entry.values = keys.contiguous(), entry.values[:, :, kept].contiguous()


@pytest.fixture(scope="module")
def llama(smollm2_gguf: Path) -> LlamaForCausalLM:
    return dequantised_llama(smollm2_gguf)


@pytest.mark.parametrize(
    ("granularity", "rotation", "during_prefill"),
    [("block", True, False), ("token", True, True), ("token", False, False)],
)
def test_evictions_equal_a_replay_in_transformers(
    smollm2_folder: Path,
    llama: LlamaForCausalLM,
    granularity: str,
    rotation: bool,
    during_prefill: bool,
) -> None:
    """300 greedy tokens; every logit that chose one within 1e-3 of the reference's best."""
    policy = Recorded()
    scheduler = pagewheel.SchedulerConfig()
    scheduler.num_kv_blocks = 40
    scheduler.use_cache_eviction = True
    scheduler.cache_eviction_config = pagewheel.CacheEvictionConfig(
        START,
        RECENT,
        BUDGET,
        apply_rotation=rotation,
        policy=policy,
        granularity=granularity,
        evict_during_prefill=during_prefill,
    )
    pipeline = pagewheel.ContinuousBatchingPipeline(smollm2_folder, scheduler, "CPU", F32)
    prompt = pipeline.get_tokenizer().encode(PROMPT).input_ids.data[0, :300].tolist()
    handle = pipeline.add_request(0, prompt, greedy(300, logprobs=1))
    while pipeline.has_non_finished_requests():
        pipeline.step()
    output = handle.read_all()[0]
    generated = output.generated_ids
    assert len(generated) == 300

    replay = Replay(llama, rotation)
    tokens = [*prompt, *generated[:-1]]
    decisions = iter(policy.decisions)
    logits = []
    pending = next(decisions, None)
    while replay.processed < len(tokens):
        # Up to the next decision, which falls when so many tokens are held.
        length = len(tokens) - replay.processed
        if pending is not None:
            length = min(length, pending[1] - replay.held)
        logits.append(replay.run(tokens[replay.processed : replay.processed + length]))
        if pending is None or replay.held != pending[1]:
            continue
        for layer in range(llama.config.num_hidden_layers):
            assert pending is not None and pending[0] == layer
            replay.evict(layer, pending[2])
            pending = next(decisions, None)
    assert pending is None and len(policy.decisions) > 8 * llama.config.num_hidden_layers

    log_probs = torch.cat(logits)[len(prompt) - 1 :].double().log_softmax(-1).numpy()
    assert log_probs.argmax(-1).tolist() == generated
    chosen = log_probs[np.arange(len(generated)), generated]
    np.testing.assert_allclose(output.generated_log_probs, chosen, atol=1e-3)
