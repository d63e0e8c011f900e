"""The part that engines with openvino_genai's API share."""

from __future__ import annotations

import importlib
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.engine import Engine, Generated, common_prefix

_EVICTION = "eviction."


def eviction_config(api: Any, options: Mapping[str, Any]) -> Any:
    """A CacheEvictionConfig of module `api`; by default 32 first and 128 last tokens of 672 stay,
    and NORM_SUM chooses of the others.

    Raises TypeError for an option that the engine's has not.
    """
    sizes = {"start_size": 32, "recent_size": 128, "max_cache_size": 672}
    named = {"aggregation_mode": "NORM_SUM", **sizes, **options}
    named["aggregation_mode"] = getattr(api.AggregationMode, named["aggregation_mode"])
    return api.CacheEvictionConfig(**named)


class GenaiApiEngine(Engine):
    """Drives a ContinuousBatchingPipeline step by step.

    Options are SchedulerConfig fields, else device properties; `eviction.X`, which sets X of a
    CacheEvictionConfig and turns cache eviction on; and `prime_prefix`: what all prompts begin
    with is first, on the clock, sent as a request of its own, so that an engine with prefix
    caching that shares nothing among requests of one batch has it cached. `temperature` samples
    instead of decoding greedily, each request with a seed of its own: a random model repeats one
    token else, and a random mixture of experts the same experts.
    """

    module_name: str
    _api: Any
    _pipeline: Any

    def load(self, model: Path, device: str) -> None:
        self._api = importlib.import_module(self.module_name)
        config = self.scheduler_config()
        properties = {}
        eviction = {}
        self._primes = bool(self.options.get("prime_prefix", False))
        self._temperature = float(self.options.get("temperature", 0.0))
        for key, value in self.options.items():
            if key in ("prime_prefix", "temperature"):
                continue
            if key.startswith(_EVICTION):
                eviction[key.removeprefix(_EVICTION)] = value
            elif hasattr(config, key):
                setattr(config, key, value)
            else:
                properties[key] = value
        if eviction:
            config.use_cache_eviction = True
            config.cache_eviction_config = eviction_config(self._api, eviction)
        self._settings = {"device": device, "scheduler_config": config.to_string()}
        self._settings["prime_prefix"] = str(self._primes)
        self._settings["temperature"] = str(self._temperature)
        self._settings |= {f"{_EVICTION}{key}": str(value) for key, value in eviction.items()}
        self._settings |= {key: str(value) for key, value in properties.items()}
        self._pipeline = self.open_pipeline(model, config, device, properties)

    @abstractmethod
    def scheduler_config(self) -> Any:
        """The engine's best settings for these workloads."""

    @abstractmethod
    def open_pipeline(self, model: Path, config: Any, device: str, properties: Any) -> Any:
        """A ContinuousBatchingPipeline."""

    def settings(self) -> dict[str, str]:
        return self._settings

    def encode(self, text: str) -> list[int]:
        inputs = self._pipeline.get_tokenizer().encode(text, add_special_tokens=False)
        return [int(token) for token in np.asarray(inputs.input_ids.data).reshape(-1)]

    def _config(self, new_tokens: int, seed: int) -> Any:
        config = self._api.GenerationConfig()
        config.max_new_tokens = new_tokens
        config.ignore_eos = True
        config.do_sample = self._temperature > 0
        if config.do_sample:
            config.temperature = self._temperature
            config.rng_seed = seed
        return config

    def generate(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> Generated:
        tensor = importlib.import_module("openvino").Tensor
        tensors = [tensor(np.array([prompt], dtype=np.int64)) for prompt in prompts]
        pipeline = self._pipeline
        shared = common_prefix(prompts) if self._primes else 0
        started = time.perf_counter()
        if shared:
            prefix = tensor(np.array([prompts[0][:shared]], dtype=np.int64))
            primer = pipeline.add_request(len(prompts), prefix, self._config(1, 0))
            while pipeline.has_non_finished_requests():
                pipeline.step()
            self._check_counts([primer], 1)
        handles = [
            pipeline.add_request(i, ids, self._config(new_tokens, i))
            for i, ids in enumerate(tensors)
        ]
        steps: list[float] = []
        while pipeline.has_non_finished_requests():
            pipeline.step()
            if steps or any(handle.can_read() for handle in handles):
                steps.append(time.perf_counter() - started)
        last_token = time.perf_counter() - started
        self._check_counts(handles, new_tokens)
        return Generated(steps[0] if steps else last_token, last_token, steps)

    @staticmethod
    def _check_counts(handles: Sequence[Any], new_tokens: int) -> None:
        for number, handle in enumerate(handles):
            outputs = handle.read_all()
            count = len(outputs[0].generated_ids) if outputs else 0
            if count != new_tokens:
                raise RuntimeError(f"request {number} got {count} tokens, expected {new_tokens}")
