"""Several models in one server: loaded when asked for, unloaded when idle, within a budget."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from serving import Served, serving, tiny_settings
from waiting import eventually

from pagewheel.errors import InvalidArgumentError
from pagewheel.serve.metrics import Metrics
from pagewheel.serve.models.engine import Engine, load
from pagewheel.serve.settings import ModelSettings, ServerSettings

COMPLETIONS = "/v1/completions"


def settings(
    folder: Path, unpinned: tuple[str, str] = ("one", "two"), **others: Any
) -> ServerSettings:
    """One that is in memory from the start, two that are not, and one that does not exist."""
    pinned = replace(tiny_settings(folder).models[0], name="pinned")
    models = [pinned]
    models += [replace(pinned, name=name, is_pinned=False) for name in unpinned]
    models.append(ModelSettings("broken", folder / "nothing"))
    return ServerSettings(tuple(models), {"nickname": unpinned[0]}, port=0, **others)


@pytest.fixture(scope="module")
def served(tiny_folder: Path) -> Iterator[Served]:
    with serving(settings(tiny_folder, idle_unload_seconds=1.0)) as one:
        yield one


def in_memory(served: Served) -> set[str]:
    return {engine.name for engine in served.server.service.registry.loaded()}


def complete(served: Served, model: str | None, **fields: Any) -> Any:
    body = {"prompt": "a", "max_tokens": 4, "ignore_eos": True, **fields}
    return served.post(COMPLETIONS, body if model is None else {**body, "model": model})


def test_a_model_is_loaded_once_by_those_who_ask_first_and_unloaded_when_idle(
    served: Served,
) -> None:
    assert "pinned" in in_memory(served)
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda _: complete(served, "one"), range(8)))
    assert [each.status_code for each in answers] == [200] * 8
    assert len({each.json()["choices"][0]["text"] for each in answers}) == 1
    assert "one" in in_memory(served)
    eventually(lambda: in_memory(served) == {"pinned"})
    assert complete(served, "one").status_code == 200


def test_an_alias_is_answered_under_its_own_name(served: Served) -> None:
    answer = complete(served, "nickname").json()
    assert answer["model"] == "nickname"
    assert served.http.get("/v1/models/nickname").json()["root"] == "one"


def test_a_model_in_use_is_not_unloaded(served: Served) -> None:
    # So many that a fast machine is not done.
    answer = complete(served, "two", n=64, temperature=1.0, max_tokens=3900, timeout=2.5)
    assert 0 < answer.json()["usage"]["completion_tokens"] < 64 * 3900


def test_a_request_must_name_one_of_several_models(served: Served) -> None:
    answer = complete(served, None)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "model"


def test_a_model_that_cannot_be_loaded_says_so_without_its_path(served: Served) -> None:
    for _ in range(2):
        answer = complete(served, "broken")
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        assert answer.json()["error"]["code"] == "model_load_failed"
        assert "nothing" not in answer.text
    assert complete(served, "pinned").status_code == 200


@pytest.mark.all_cores
def test_a_load_does_not_hold_the_tokens_of_others(served: Served) -> None:
    eventually(lambda: in_memory(served) == {"pinned"})
    arrived: list[float] = []
    body = {"model": "pinned", "prompt": "a", "max_tokens": 1500, "ignore_eos": True}
    with ThreadPoolExecutor(1) as other:
        with served.http.stream("POST", COMPLETIONS, json={**body, "stream": True}) as answer:
            for number, _ in enumerate(answer.iter_lines()):
                if number == 10:
                    loaded = other.submit(complete, served, "two")
                arrived.append(time.monotonic())
        assert loaded.result().status_code == 200
    assert max(after - before for before, after in pairwise(arrived)) < 1.0


def test_models_make_room_for_each_other_within_a_budget(tiny_folder: Path) -> None:
    engine = load(tiny_settings(tiny_folder).models[0], tiny_folder)
    size = engine.num_bytes
    engine.close()
    models = tuple(
        replace(tiny_settings(tiny_folder).models[0], name=name, is_pinned=name == "pinned")
        for name in ("pinned", "one", "two")
    )
    # Before it is loaded a model is taken for its files and a GB of cache.
    budget = 2 * size + (1 << 30) + (64 << 20)
    with serving(ServerSettings(models, port=0, memory_budget=budget)) as served:
        assert complete(served, "one").status_code == 200
        assert complete(served, "two").status_code == 200
        assert {"pinned", "two"} <= in_memory(served)


def test_a_model_beyond_the_budget_is_refused(tiny_folder: Path) -> None:
    model = replace(tiny_settings(tiny_folder).models[0], is_pinned=False)
    with serving(ServerSettings((model,), port=0, memory_budget=1 << 20)) as served:
        answer = complete(served, "tiny")
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "model_too_large"


def test_metrics_count_what_was_served_under_vllms_names(served: Served) -> None:
    def read() -> dict[str, float]:
        names = {
            "prompt_tokens_total": {},
            "generation_tokens_total": {},
            "prefix_cache_queries_total": {},
            "prefix_cache_hits_total": {},
            "request_success_total": {"finished_reason": "length"},
            "time_to_first_token_seconds_count": {},
            "inter_token_latency_seconds_count": {},
            "e2e_request_latency_seconds_count": {},
            "request_prompt_tokens_sum": {},
            "num_requests_running": {},
            "num_requests_waiting": {},
            "kv_cache_usage_perc": {},
            "num_preemptions_total": {},
        }
        return {
            name: served.metric(f"pagewheel:{name}", model_name="pinned", **labels)
            for name, labels in names.items()
        }

    before = read()
    tokens = [5 + number for number in range(70)]
    for _ in range(2):
        assert complete(served, "pinned", prompt=tokens, max_tokens=40).status_code == 200
    eventually(
        lambda: (
            read()["e2e_request_latency_seconds_count"]
            > before["e2e_request_latency_seconds_count"] + 1
        )
    )
    more = {name: value - before[name] for name, value in read().items()}
    assert more["prompt_tokens_total"] == more["request_prompt_tokens_sum"] == 140
    assert more["generation_tokens_total"] == 80
    assert more["prefix_cache_hits_total"] == 69
    assert more["request_success_total"] == 2
    assert more["time_to_first_token_seconds_count"] == 2
    # Tokens that were read together with the first one have no time between them.
    assert more["inter_token_latency_seconds_count"] <= 78
    assert read()["num_requests_running"] == read()["num_requests_waiting"] == 0


def test_metrics_have_the_prefix_that_was_chosen() -> None:
    assert b"vllm:num_requests_running" in Metrics("vllm", dict).text()
    with pytest.raises(InvalidArgumentError, match="prefix"):
        ServerSettings((), metrics_prefix="a b")


def test_an_engine_that_cannot_be_closed_is_logged_and_others_are_still_unloaded(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    close = Engine.close
    names = ("stubborn", "other")  # the other tests' server may close a "one" meanwhile

    def close_with_an_error(self: Engine) -> None:
        close(self)
        if self.name == "stubborn":
            raise RuntimeError("no disk")

    monkeypatch.setattr(Engine, "close", close_with_an_error)
    with serving(settings(tiny_folder, names, idle_unload_seconds=0.5)) as served:
        for name in names:
            assert complete(served, name).status_code == 200
            eventually(lambda: in_memory(served) == {"pinned"})
    (failed,) = [each for each in caplog.records if each.message == "closing failed"]
    assert vars(failed)["model"] == "stubborn"
    assert failed.exc_info
