"""A generation's evictions as a file."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pagewheel

_FORMAT = 1


@dataclass
class Decision:
    """One layer's cache when something had to go. Lists are by token held, in order."""

    layer: int
    processed: int  # tokens computed so far
    positions: list[int]  # number of the token in the sequence
    deltas: list[int]  # by how much its key is turned back at this moment
    scores: list[float]
    dropped: list[int]  # numbers of the tokens that go


@dataclass
class Trace:
    """All decisions of one generation, layer by layer in their order."""

    prompt: list[int]
    generated: list[int]
    texts: list[str]  # of all tokens
    config: str
    decisions: list[Decision] = field(default_factory=list)

    @property
    def layers(self) -> list[int]:
        """Layers that decided, ascending."""
        return sorted({decision.layer for decision in self.decisions})

    def of_layer(self, layer: int) -> list[Decision]:
        """The layer's decisions in their order."""
        return [decision for decision in self.decisions if decision.layer == layer]

    def write(self, path: Path) -> None:
        """As gzipped JSON."""
        content = {"format": _FORMAT, **asdict(self)}
        path.write_bytes(gzip.compress(json.dumps(content).encode()))

    @classmethod
    def read(cls, path: Path) -> Trace:
        """What write() wrote; raises ValueError for anything else."""
        try:
            content = json.loads(gzip.decompress(path.read_bytes()))
        except (OSError, ValueError) as error:
            raise ValueError(f"{path} is no trace: {error}") from error
        if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
            raise ValueError(f"{path} is no trace of format {_FORMAT}")
        decisions = [Decision(**decision) for decision in content.pop("decisions")]
        return cls(**content, decisions=decisions)


class _Recorder(pagewheel.EvictionPolicy):
    """Asks the policy that was configured, and writes down what it says."""

    def __init__(self, config: pagewheel.CacheEvictionConfig) -> None:
        super().__init__()
        self._policy = pagewheel.make_policy(config)
        self._rotates = config.apply_rotation
        self._deltas: dict[int, dict[int, int]] = {}  # layer -> token -> delta
        self.decisions: list[Decision] = []

    def observed(self) -> pagewheel.ObservedQueries:
        return self._policy.observed()

    def drop(self, view: pagewheel.EvictionView, count: int) -> list[int]:
        units = sorted(self._policy.drop(view, count))
        positions = view.positions.tolist()
        gone = {unit * view.unit_size + i for unit in units for i in range(view.unit_size)}
        deltas = self._deltas.setdefault(view.layer, {})
        self.decisions.append(
            Decision(
                view.layer,
                positions[-1] + 1,
                positions,
                [deltas.get(token, 0) for token in positions],
                [round(float(score), 5) for score in view.scores],
                [positions[slot] for slot in sorted(gone)],
            )
        )
        before = 0
        turned = {}
        for slot, token in enumerate(positions):
            if slot in gone:
                before += 1
            elif self._rotates:
                turned[token] = deltas.get(token, 0) + before
        self._deltas[view.layer] = turned
        return units


def record(
    model: Path,
    prompt: str,
    config: pagewheel.CacheEvictionConfig,
    max_new_tokens: int,
    properties: dict[str, Any] | None = None,
) -> Trace:
    """Generate greedily with eviction by `config` and return what happened.

    `model` is a converted folder. Layers with a sliding window below the budget drop their
    oldest tokens without being asked, and do not appear.
    """
    recorder = _Recorder(config)
    text = config.to_string()
    config.policy = recorder
    scheduler = pagewheel.SchedulerConfig()
    scheduler.use_cache_eviction = True
    scheduler.cache_eviction_config = config
    pipeline = pagewheel.ContinuousBatchingPipeline(model, scheduler, "CPU", properties or {})
    tokenizer = pipeline.get_tokenizer()
    ids = tokenizer.encode(prompt).input_ids.data[0].tolist()
    options = pagewheel.GenerationConfig(max_new_tokens=max_new_tokens, ignore_eos=True)
    handle = pipeline.add_request(0, ids, options)
    while pipeline.has_non_finished_requests():
        pipeline.step()
    generated = handle.read_all()[0].generated_ids
    texts = [tokenizer.decode([token]) for token in [*ids, *generated]]
    return Trace(ids, generated, texts, text, recorder.decisions)
