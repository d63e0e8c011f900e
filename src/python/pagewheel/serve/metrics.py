"""What /metrics says, under vLLM's names: dashboards for it need only another prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from pagewheel.serve.engine_metrics import EngineMetrics
from pagewheel.serve.request_times import RequestTimes

if TYPE_CHECKING:
    from pagewheel.serve.models.engine import Engine

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
class FinishedRequest:
    """What became of one, however it ended."""

    times: RequestTimes
    num_prompt: int
    generated: Sequence[int]  # tokens of each choice that has any
    between: Sequence[float]  # seconds between a choice's tokens, by the engine's clock
    num_choices: int
    max_tokens: int


class ModelMetrics:
    """Of one model's requests. Called on the event loop."""

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
        """So many have come."""
        self._num_generated.inc(count)

    def finished(self, reason: str) -> None:
        """One sequence has ended."""
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
        """For Retry-After: what a request takes, within a minute."""
        return max(1, min(60, round(self._mean_seconds)))


class Metrics:
    """Of a server. `engines` gives those in memory when they are asked for."""

    def __init__(
        self, prefix: str, engines: Callable[[], Iterable[Engine]], hides_prefixes: bool = False
    ) -> None:
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
        self._registry.register(EngineMetrics(prefix, engines, hides_prefixes))

    def model(self, name: str) -> ModelMetrics:
        if name not in self._models:
            self._models[name] = ModelMetrics(self, name)
        return self._models[name]

    def text(self) -> bytes:
        """In Prometheus' format."""
        return generate_latest(self._registry)
