"""What /metrics says, under vLLM's names: dashboards for it need only another prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pagewheel import PipelineStatistics

# Gives the statistics of the engines in memory, by name.
Statistics = Callable[[], Mapping[str, PipelineStatistics]]

_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5)
_FIRST_TOKEN = (*_SECONDS, 10, 20, 40, 80, 160, 640)
_BETWEEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 5)
_WHOLE = (0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 60, 120, 240, 480, 960)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)
_CHOICES = (1, 2, 5, 10, 20, 50, 100)
_FROM = "From a request to its "
_HISTOGRAMS: dict[str, tuple[str, tuple[float, ...]]] = {
    "time_to_first_token_seconds": (_FROM + "first token.", _FIRST_TOKEN),
    "inter_token_latency_seconds": ("Between tokens of a request.", _BETWEEN),
    "request_time_per_output_token_seconds": ("A request's mean time per token.", _BETWEEN),
    "e2e_request_latency_seconds": (_FROM + "last token.", _WHOLE),
    "request_queue_time_seconds": (_FROM + "first step.", _WHOLE),
    "request_prefill_time_seconds": ("From the first step to the first token.", _WHOLE),
    "request_decode_time_seconds": ("From the first token to the last.", _WHOLE),
    "request_inference_time_seconds": ("From the first step to the last token.", _WHOLE),
    "request_prompt_tokens": ("Tokens of a request's prompts.", _TOKENS),
    "request_generation_tokens": ("Tokens generated for a request.", _TOKENS),
    "request_max_num_generation_tokens": ("Tokens of a request's longest choice.", _TOKENS),
    "request_params_n": ("Choices that a request asks for.", _CHOICES),
    "request_params_max_tokens": ("Tokens that a request asks for at most.", _TOKENS),
}
# max_new_tokens of a request that sets no bound.
_UNBOUNDED = 2**31
# How fast the mean duration of requests, for Retry-After, forgets.
_SMOOTHING = 0.1


@dataclass(frozen=True)
class RequestTimes:
    """Seconds since the request arrived; None: it did not come so far."""

    whole: float
    queue: float | None = None  # to its first step
    first_token: float | None = None
    last_token: float | None = None

    @property
    def prefill(self) -> float | None:
        return _between(self.queue, self.first_token)

    @property
    def decode(self) -> float | None:
        return _between(self.first_token, self.last_token)

    @property
    def inference(self) -> float | None:
        return _between(self.queue, self.last_token)


def _between(begin: float | None, end: float | None) -> float | None:
    """Not negative: both come from clocks that are read at different places."""
    return None if begin is None or end is None else max(0.0, end - begin)


@dataclass(frozen=True)
class FinishedRequest:
    times: RequestTimes
    num_prompt: int
    generated: Sequence[int]  # tokens of each choice that has any
    between: Sequence[float]  # seconds between a choice's tokens, by the engine's clock
    num_choices: int
    max_tokens: int


class ModelMetrics:
    """Counts one model's requests. On the event loop."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        self._metrics = metrics
        self._name = name
        labels = {"model_name": name, "engine": "0"}
        self._histograms = {
            each: histogram.labels(**labels) for each, histogram in metrics.histograms.items()
        }
        self._between = self._histograms["inter_token_latency_seconds"]
        self._num_generated = metrics.generated_tokens.labels(**labels)
        self._mean_seconds = 1.0

    def first_token(self, seconds: float) -> None:
        self._histograms["time_to_first_token_seconds"].observe(seconds)

    def tokens(self, count: int) -> None:
        self._num_generated.inc(count)

    def finished(self, reason: str) -> None:
        """Counts one sequence."""
        self._metrics.success.labels(
            model_name=self._name, engine="0", finished_reason=reason
        ).inc()

    def ended(self, request: FinishedRequest) -> None:
        for seconds in request.between:
            self._between.observe(seconds)
        times, longest = request.times, max(request.generated, default=0)
        per_token = None if times.decode is None or longest < 2 else times.decode / (longest - 1)
        found = {
            "e2e_request_latency_seconds": times.whole,
            "request_queue_time_seconds": times.queue,
            "request_prefill_time_seconds": times.prefill,
            "request_decode_time_seconds": times.decode,
            "request_inference_time_seconds": times.inference,
            "request_time_per_output_token_seconds": per_token,
            "request_prompt_tokens": request.num_prompt,
            "request_generation_tokens": sum(request.generated),
            "request_max_num_generation_tokens": longest,
            "request_params_n": request.num_choices,
            "request_params_max_tokens": (
                request.max_tokens if request.max_tokens < _UNBOUNDED else None
            ),
        }
        for name, value in found.items():
            if value is not None:
                self._histograms[name].observe(value)
        self._mean_seconds += _SMOOTHING * (times.whole - self._mean_seconds)

    def retry_seconds(self) -> int:
        """Gives what a request takes, within a minute."""
        return max(1, min(60, round(self._mean_seconds)))


class Metrics:
    def __init__(self, prefix: str, statistics: Statistics, hides_prefixes: bool = False) -> None:
        """`hides_prefixes`: without what tells whether a prefix was cached."""
        self._registry = CollectorRegistry()
        self._models: dict[str, ModelMetrics] = {}
        labels = ("model_name", "engine")
        self.histograms = {
            name: Histogram(
                f"{prefix}:{name}", text, labels, buckets=buckets, registry=self._registry
            )
            for name, (text, buckets) in _HISTOGRAMS.items()
        }
        self.generated_tokens = Counter(
            f"{prefix}:generation_tokens", "Tokens generated.", labels, registry=self._registry
        )
        self.success = Counter(
            f"{prefix}:request_success",
            "Sequences that ended, by reason.",
            (*labels, "finished_reason"),
            registry=self._registry,
        )
        self.answers = Counter(
            f"{prefix}:http_requests",
            "HTTP requests, by path and status; 499: the client left.",
            ("path", "status"),
            registry=self._registry,
        )
        self._registry.register(EngineMetrics(prefix, statistics, hides_prefixes))

    def model(self, name: str) -> ModelMetrics:
        if name not in self._models:
            self._models[name] = ModelMetrics(self, name)
        return self._models[name]

    def text(self) -> bytes:
        return generate_latest(self._registry)


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
    (
        "spec_decode_num_draft_tokens",
        "Tokens that were drafted and checked by the model.",
        lambda s: s.all_steps.num_drafted_tokens,
    ),
    (
        "spec_decode_num_accepted_tokens",
        "Of them, those that were right.",
        lambda s: s.all_steps.num_accepted_tokens,
    ),
)
# What says, token by token or block by block, whether a request's beginning was cached.
_TELL_OF_PREFIXES = frozenset(
    {
        *("kv_cache_usage_perc", "prefix_cache_usage_perc", "prefix_cache_hits", "engine_steps"),
        *("spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens"),
    }
)


class EngineMetrics(Collector):
    """Reads pipelines' statistics whenever somebody scrapes.

    Counters begin at 0 again with each load of a model, as Prometheus expects of restarts.
    """

    def __init__(self, prefix: str, statistics: Statistics, hides_prefixes: bool) -> None:
        self._prefix = prefix
        self._statistics = statistics
        self._hidden = _TELL_OF_PREFIXES if hides_prefixes else frozenset()

    def describe(self) -> Iterable[Metric]:
        return []  # without it the registry would collect to find out

    def collect(self) -> Iterator[Metric]:
        found = self._statistics()
        for family, table in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
            for name, text, value in table:
                if name in self._hidden:
                    continue
                metric = family(f"{self._prefix}:{name}", text, labels=("model_name", "engine"))
                for model, statistics in found.items():
                    metric.add_metric((model, "0"), value(statistics))
                yield metric
        yield self._cache_config(found)

    def _cache_config(self, found: Mapping[str, PipelineStatistics]) -> Metric:
        """What routers ask to know which prefixes fit; vLLM's label for any device's blocks."""
        info = GaugeMetricFamily(
            f"{self._prefix}:cache_config_info",
            "The KV cache: tokens of a block, and how many blocks there are.",
            labels=("model_name", "engine", "block_size", "num_gpu_blocks"),
        )
        for model, statistics in found.items():
            sizes = (str(statistics.block_size), str(statistics.num_blocks))
            info.add_metric((model, "0", *sizes), 1)
        return info
