"""One answer of /metrics from those of all replicas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from pagewheel.ray_serve.front import Front


def merged(replicas: Mapping[str, bytes], front: bytes, prefix: str, of: Front) -> bytes:
    """Replicas' samples have their tag as the label `engine`, which vLLM has for the same."""
    families: dict[str, Metric] = {}
    # What clients were answered is what the front says: replicas know of attempts.
    own = f"{prefix}:http_requests"
    for family in _parsed(front):
        if family.name == own:
            families[own] = family
    for tag, text in sorted(replicas.items()):
        for family in _parsed(text):
            if family.name.startswith(own):
                continue
            into = families.setdefault(
                family.name, Metric(family.name, family.documentation, family.type)
            )
            for sample in family.samples:
                into.samples.append(sample._replace(labels={**sample.labels, "engine": tag}))
    registry = CollectorRegistry()
    registry.register(_Families([*families.values(), *_of_front(prefix, of)]))
    return generate_latest(registry)


def _parsed(text: bytes) -> Iterable[Metric]:
    return text_string_to_metric_families(text.decode())


def _of_front(prefix: str, front: Front) -> Iterable[Metric]:
    if not front.keys.share_prefixes:  # else they tell of a prompt whether others began alike
        yield from _of_routes(prefix, front)
    running = GaugeMetricFamily(
        f"{prefix}:router_requests_running", "Requests per replica.", labels=["engine"]
    )
    loads = front.routes.loads()
    for tag in front.routes.replicas():
        running.add_metric([tag], loads[tag])
    yield running
    yield CounterMetricFamily(
        f"{prefix}:router_retries",
        "Requests handed to another replica because one had failed.",
        value=front.num_retries,
    )


def _of_routes(prefix: str, front: Front) -> Iterable[Metric]:
    decisions = CounterMetricFamily(
        f"{prefix}:router_requests", "Requests by why they went where they did.", labels=["reason"]
    )
    for reason, count in front.routes.decisions().items():
        decisions.add_metric([reason], count)
    yield decisions
    yield GaugeMetricFamily(
        f"{prefix}:router_prefix_blocks",
        "Blocks of prompts that routes remember.",
        value=front.routes.num_blocks(),
    )


class _Families(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        return self._families
