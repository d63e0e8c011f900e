"""A generation's evictions as a file."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pagewheel
from pagewheel.model_info import ModelInfo, read_info

_FORMAT = 2


@dataclass
class Setup:
    """What was run, for titles."""

    model: str  # name of the folder
    policy: str
    unit_size: int  # tokens that go at a time
    start_size: int
    recent_size: int
    max_cache_size: int
    rotation: bool
    layers_without_pages: list[int] = field(default_factory=list)  # they keep states


@dataclass
class Decision:
    """One layer's cache when something had to go. Lists are by token held, in order."""

    layer: int
    processed: int  # tokens computed so far
    positions: list[int]  # number of the token in the sequence
    deltas: list[int]  # by how many positions its key is rotated back at this moment
    scores: list[float]
    dropped: list[int]  # numbers of the tokens that go


@dataclass
class Trace:
    """All decisions of one generation, layer by layer in their order."""

    prompt: list[int]
    generated: list[int]
    texts: list[str]  # of all tokens
    config: str
    decisions: list[Decision]
    setup: Setup

    @property
    def layers(self) -> list[int]:
        """Layers that decided, ascending."""
        return sorted({decision.layer for decision in self.decisions})

    def of_layer(self, layer: int) -> list[Decision]:
        """The layer's decisions in their order."""
        return [decision for decision in self.decisions if decision.layer == layer]

    def write(self, path: Path) -> None:
        """Writes gzipped JSON."""
        content = {"format": _FORMAT, **asdict(self)}
        path.write_bytes(gzip.compress(json.dumps(content).encode()))

    @classmethod
    def read(cls, path: Path) -> Trace:
        """Reads what write() wrote; raises ValueError for anything else."""
        try:
            content = json.loads(gzip.decompress(path.read_bytes()))
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise ValueError(f"{path} is no trace: {error}") from error
        if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
            raise ValueError(f"{path} is no trace of format {_FORMAT}")
        try:
            decisions = [Decision(**decision) for decision in content.pop("decisions")]
            return cls(**content | {"setup": Setup(**content["setup"])}, decisions=decisions)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} is no trace: {error}") from error


class _Recorder(pagewheel.EvictionPolicy):
    """Asks the policy that was configured, and writes down what it says."""

    def __init__(self, config: pagewheel.CacheEvictionConfig, info: ModelInfo) -> None:
        super().__init__()
        without = info.layers_without_pages
        # Policies know the layers that attend, by their number among these.
        self._layers = [layer for layer in range(info.layers or 0) if layer not in without]
        self._policy = pagewheel.make_policy(config)
        self.unit_size = 1  # of the latest decision
        self.decisions: list[Decision] = []
        self._latest: dict[int, Decision] = {}  # by layer

    def observed(self) -> pagewheel.ObservedQueries:
        return self._policy.observed()

    def drop(self, view: pagewheel.EvictionView, count: int) -> list[int]:
        units = sorted(self._policy.drop(view, count))
        self.unit_size = view.unit_size
        positions = view.positions.tolist()
        gone = {unit * view.unit_size + i for unit in units for i in range(view.unit_size)}
        layer = self._layers[view.layer] if self._layers else view.layer
        # What left a sliding window since the decision before went without a question.
        if before := self._latest.get(layer):
            unseen = set(before.positions) - set(before.dropped) - set(positions)
            before.dropped = sorted([*before.dropped, *unseen])
        self._latest[layer] = Decision(
            layer,
            positions[-1] + 1,
            positions,
            view.rotations.tolist(),
            [round(float(score), 5) for score in view.scores],
            [positions[slot] for slot in sorted(gone)],
        )
        self.decisions.append(self._latest[layer])
        return units


def _observe(
    scheduler: pagewheel.SchedulerConfig,
    config: pagewheel.CacheEvictionConfig,
    recorder: _Recorder,
) -> str:
    """Gives the scheduler `config` with the recorder as its policy; returns the policy's name.

    What a built-in policy takes for granularity "auto" and score_pooling 0 is written out, as
    it is not what a policy of the caller's takes.
    """
    resolved = re.search(
        r"policy: (\w+), granularity: (\w+), score_pooling: (\d+)", config.to_string()
    )
    assert resolved is not None
    given = config.policy, config.granularity, config.score_pooling
    config.granularity, config.score_pooling = resolved[2].lower(), int(resolved[3])
    config.policy = recorder
    scheduler.cache_eviction_config = config  # a copy
    config.policy, config.granularity, config.score_pooling = given
    return resolved[1]


def record(
    model: Path,
    prompt: str,
    config: pagewheel.CacheEvictionConfig,
    max_new_tokens: int,
    properties: dict[str, Any] | None = None,
) -> Trace:
    """Generate greedily with eviction by `config` and return what happened.

    `model` is a converted folder. Layers with a sliding window below the budget drop their
    oldest tokens without being asked, and do not appear. In the last decision of a layer with a
    wider one tokens that its window has passed are missing.
    """
    info = read_info(model)
    recorder = _Recorder(config, info)
    text = config.to_string()
    scheduler = pagewheel.SchedulerConfig()
    scheduler.use_cache_eviction = True
    policy = _observe(scheduler, config, recorder)
    pipeline = pagewheel.ContinuousBatchingPipeline(model, scheduler, "CPU", properties or {})
    tokenizer = pipeline.get_tokenizer()
    ids = tokenizer.encode(prompt).input_ids.data[0].tolist()
    options = pagewheel.GenerationConfig(max_new_tokens=max_new_tokens, ignore_eos=True)
    handle = pipeline.add_request(0, ids, options)
    while pipeline.has_non_finished_requests():
        pipeline.step()
    generated = handle.read_all()[0].generated_ids
    texts = [tokenizer.decode([token]) for token in [*ids, *generated]]
    setup = Setup(
        model.name,
        policy,
        recorder.unit_size,
        config.get_start_size(),
        config.get_recent_size(),
        config.get_max_cache_size(),
        config.apply_rotation,
        info.layers_without_pages,
    )
    return Trace(ids, generated, texts, text, recorder.decisions, setup)
