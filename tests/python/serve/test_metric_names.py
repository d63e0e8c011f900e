"""Names of metrics: those of the docs, of the Grafana dashboard and of routers are exported."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving import Served, serving, tiny_settings
from waiting import eventually

import pagewheel

ROOT = Path(__file__).parents[3]
# What llm-d's and KServe's endpoint pickers ask vLLM for, and the labels that they read.
ROUTERS_READ = {
    "num_requests_waiting": {"model_name"},
    "num_requests_running": {"model_name"},
    "kv_cache_usage_perc": {"model_name"},
    "cache_config_info": {"block_size", "num_gpu_blocks"},
}


@pytest.fixture(scope="module")
def served(tiny_folder: Path) -> Iterator[Served]:
    """Under vLLM's prefix, after one request."""
    with serving(tiny_settings(tiny_folder, metrics_prefix="vllm")) as served:
        body = {"prompt": "a b", "max_tokens": 20, "ignore_eos": True, "stream": True}
        assert served.post("/v1/completions", body).status_code == 200
        eventually(lambda: served.metric("vllm:request_decode_time_seconds_count") == 1)
        yield served


@pytest.fixture(scope="module")
def samples(served: Served) -> dict[str, set[str]]:
    """Labels by the names of samples."""
    text = served.http.get("/metrics").text
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_the_dashboard_asks_for_what_there_is(samples: dict[str, set[str]]) -> None:
    dashboard = json.loads((ROOT / "docs/grafana_dashboard.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [each["query"] for each in dashboard["templating"]["list"]]
    names = {name for text in asked for name in re.findall(r"\$\{prefix\}:(\w+)", text)}
    assert len(names) >= 15
    assert not [name for name in names if f"vllm:{name}" not in samples]
    for text in asked:
        labels = set(re.findall(r"by \((\w+)\)|\{(\w+)=", text))
        for label in {one or other for one, other in labels}:
            (name, *_) = re.findall(r"\$\{prefix\}:(\w+)", text)
            assert label in samples[f"vllm:{name}"], text


def test_the_documentation_has_every_name_and_no_other(samples: dict[str, set[str]]) -> None:
    section = (
        (ROOT / "docs/serving.md").read_text().partition("## Metrics")[2].partition("\n## ")[0]
    )
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    exported = {
        re.sub(r"_(bucket|count|sum)$", "", name.removeprefix("vllm:"))
        for name in samples
        if not name.endswith("_created")
    }
    assert documented == exported


def test_routers_find_what_they_read(samples: dict[str, set[str]]) -> None:
    for name, labels in ROUTERS_READ.items():
        assert labels <= samples[f"vllm:{name}"]


def test_times_in_the_engine_add_up(served: Served) -> None:
    def seconds(name: str) -> float:
        assert served.metric(f"vllm:{name}_count") == 1
        return served.metric(f"vllm:{name}_sum")

    queue, prefill = seconds("request_queue_time_seconds"), seconds("request_prefill_time_seconds")
    decode, whole = seconds("request_decode_time_seconds"), seconds("e2e_request_latency_seconds")
    first = seconds("time_to_first_token_seconds")
    assert min(queue, prefill, decode) > 0
    assert queue + prefill == pytest.approx(first)
    assert seconds("request_inference_time_seconds") == pytest.approx(prefill + decode)
    assert first + decode <= whole
    assert seconds("request_time_per_output_token_seconds") == pytest.approx(decode / 19)
    assert served.metric("vllm:request_params_max_tokens_sum") == 20
    assert served.metric("vllm:request_params_n_sum") == 1
    assert served.metric("vllm:request_max_num_generation_tokens_sum") == 20


def test_the_queue_is_timed(smollm2_folder: Path) -> None:
    """One sequence at a time: the second waits as long as the first one runs."""
    settings = tiny_settings(smollm2_folder, scheduler={"max_num_seqs": 1})
    with serving(settings) as served:
        body = {"max_tokens": 200, "ignore_eos": True}
        with ThreadPoolExecutor(2) as pool:
            bodies = [{**body, "prompt": prompt} for prompt in ("a", "b")]
            answers = list(pool.map(lambda one: served.post("/v1/completions", one), bodies))
        assert [answer.status_code for answer in answers] == [200, 200]
        name = "pagewheel:request_queue_time_seconds"
        eventually(lambda: served.metric(f"{name}_count") == 2)
        decode = served.metric("pagewheel:request_decode_time_seconds_sum") / 2
        assert served.metric(f"{name}_sum") > 0.5 * decode


def test_evicted_tokens_are_counted(tiny_folder: Path) -> None:
    eviction = pagewheel.CacheEvictionConfig(32, 32, 128, policy="streaming")
    scheduler = {"use_cache_eviction": True, "cache_eviction_config": eviction}
    with serving(tiny_settings(tiny_folder, scheduler=scheduler)) as served:
        body = {"prompt": "a", "max_tokens": 300, "ignore_eos": True}
        assert served.post("/v1/completions", body).status_code == 200
        # 300 tokens or so are computed, 128 stay.
        eventually(lambda: 160 <= served.metric("pagewheel:evicted_tokens_total") <= 200)
