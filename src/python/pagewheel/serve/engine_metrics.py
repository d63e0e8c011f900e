"""What pipelines say of themselves, as metrics: the tables of names and the reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pagewheel._pagewheel import PipelineStatistics

if TYPE_CHECKING:
    from pagewheel.serve.models.engine import Engine

# Name, help, and the value of a pipeline's statistics.
_Row = tuple[str, str, Callable[[Any], float]]
_GAUGES: tuple[_Row, ...] = (
    (
        "num_requests_running",
        "Requests that were begun, preempted ones too.",
        lambda s: max(0, s.num_requests - s.num_queued),
    ),
    ("num_requests_waiting", "Requests in the queue.", lambda s: s.num_queued),
    (
        "kv_cache_usage_perc",
        "Blocks that running requests hold; 1 is all.",
        lambda s: s.num_used_blocks / max(1, s.num_blocks),
    ),
    (
        "prefix_cache_usage_perc",
        "Blocks that are kept for prefixes; 1 is all.",
        lambda s: s.num_cached_blocks / max(1, s.num_blocks),
    ),
)
_COUNTERS: tuple[_Row, ...] = (
    ("num_preemptions", "Sequences preempted for others.", lambda s: s.num_preemptions),
    ("prompt_tokens", "Tokens of prompts that were begun.", lambda s: s.num_prompt_tokens),
    (
        "prefix_cache_queries",
        "Tokens of prompts that were looked up.",
        lambda s: s.num_prompt_tokens,
    ),
    (
        "prefix_cache_hits",
        "Tokens of prompts that were cached.",
        lambda s: s.num_prefix_cache_hit_tokens,
    ),
    ("evicted_tokens", "Tokens that left caches by eviction.", lambda s: s.num_evicted_tokens),
    ("engine_steps", "Steps of the engine.", lambda s: s.num_steps),
)
# What says, token by token or block by block, whether a request's beginning was cached.
_TELL_OF_PREFIXES = frozenset(
    {"kv_cache_usage_perc", "prefix_cache_usage_perc", "prefix_cache_hits", "engine_steps"}
)


class EngineMetrics(Collector):
    """Reads pipelines' statistics whenever somebody scrapes.

    Counters begin at 0 again with each load of a model, as Prometheus expects of restarts.
    """

    def __init__(
        self, prefix: str, engines: Callable[[], Iterable[Engine]], hides_prefixes: bool
    ) -> None:
        self._prefix = prefix
        self._engines = engines
        self._hidden = _TELL_OF_PREFIXES if hides_prefixes else frozenset()

    def describe(self) -> Iterable[Metric]:
        return []  # without it the registry would collect to find out

    def collect(self) -> Iterator[Metric]:
        found = [(engine.name, engine.statistics()) for engine in self._engines()]
        for name, text, value in self._shown(_GAUGES):
            gauge = GaugeMetricFamily(
                f"{self._prefix}:{name}", text, labels=("model_name", "engine")
            )
            for model, statistics in found:
                gauge.add_metric((model, "0"), value(statistics))
            yield gauge
        for name, text, value in self._shown(_COUNTERS):
            counter = CounterMetricFamily(
                f"{self._prefix}:{name}", text, labels=("model_name", "engine")
            )
            for model, statistics in found:
                counter.add_metric((model, "0"), value(statistics))
            yield counter
        yield self._cache_config(found)

    def _shown(self, table: Sequence[_Row]) -> Iterator[_Row]:
        return (row for row in table if row[0] not in self._hidden)

    def _cache_config(self, found: Sequence[tuple[str, PipelineStatistics]]) -> Metric:
        """What routers ask to know which prefixes fit; vLLM's label for any device's blocks."""
        info = GaugeMetricFamily(
            f"{self._prefix}:cache_config_info",
            "The KV cache: tokens of a block, and how many blocks there are.",
            labels=("model_name", "engine", "block_size", "num_gpu_blocks"),
        )
        for model, statistics in found:
            sizes = (str(statistics.block_size), str(statistics.num_blocks))
            info.add_metric((model, "0", *sizes), 1)
        return info
