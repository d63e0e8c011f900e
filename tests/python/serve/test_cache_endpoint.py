"""GET /cache and the page's files: what they give, to whom, and that they can be off."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from raw_http import connect, request_bytes
from serving import Served, serving, tiny_settings
from waiting import eventually

from pagewheel import AggregationMode, CacheEvictionConfig, CacheView
from pagewheel.serve.models.engine import Engine
from pagewheel.serve.page.cache import CacheViews, run_lengths
from pagewheel.serve.settings import Limits

SECRET = "zebra"


@pytest.fixture(scope="module")
def served(tiny_folder: Path) -> Iterator[Served]:
    scheduler = {
        "use_cache_eviction": True,
        "cache_eviction_config": CacheEvictionConfig(
            32, 64, 256, AggregationMode.NORM_SUM, apply_rotation=True
        ),
    }
    with serving(tiny_settings(tiny_folder, scheduler=scheduler)) as one:
        yield one


def test_blocks_add_up_while_a_request_is_evicted_from(served: Served) -> None:
    body = {"prompt": SECRET * 60, "max_tokens": 2500, "ignore_eos": True}
    found = threading.Event()

    def ask() -> None:
        while not found.is_set():
            assert served.post("/v1/completions", body).status_code == 200

    client = threading.Thread(target=ask)
    client.start()
    seen: list[dict] = []

    def is_evicted() -> bool:
        seen.append(served.http.get("/cache").json())
        return seen[-1]["kept"] is not None

    try:
        eventually(is_evicted)
    finally:
        found.set()
        client.join()
    view = seen[-1]
    assert sum(view["blocks"][1::2]) == 400
    (sequence,) = view["sequences"]
    assert sequence["evicted"] > 0
    kept = view["kept"]
    assert kept["request"] == sequence["request"]
    for layer in kept["layers"]:
        assert sum(layer) == sequence["computed"] - sequence["evicted"]
    assert SECRET not in str(seen)


def test_at_rest_no_block_is_used(served: Served) -> None:
    served.post("/v1/completions", {"prompt": "a", "max_tokens": 2})
    eventually(served.is_at_rest)

    def is_at_rest() -> bool:  # a view is shared for a quarter of a second
        view = served.http.get("/cache").json()
        states = {view["states"][value] for value in view["blocks"][::2]}
        return states <= {"free", "cached"} and view["sequences"] == []

    eventually(is_at_rest)


def test_wrong_questions_are_refused(served: Served) -> None:
    assert served.http.get("/cache?model=none").status_code == 404
    answer = served.http.get("/cache?request=x")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "request"


def test_the_page_is_no_client(served: Served) -> None:
    for path in ("/", "/cache", "/page/main.js"):
        assert served.http.get(path).status_code == 200
    assert served.metric("pagewheel:http_requests_total", path="/cache") == 0
    assert served.metric("pagewheel:http_requests_total", path="/") == 0


def test_the_page_may_load_from_here_alone(served: Served) -> None:
    policy = served.http.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http:" not in policy


def test_other_files_and_hosts_get_nothing(served: Served) -> None:
    for path in ("/page/cache.py", "/page/../app.py", "/page/%2e%2e/app.py", "/page/"):
        assert served.http.get(path).status_code == 404, path
    assert served.http.get("/", headers={"host": "evil.example"}).status_code == 403


def test_it_can_be_off(tiny_folder: Path) -> None:
    with serving(tiny_settings(tiny_folder, has_page=False)) as served:
        for path in ("/", "/cache", "/page/main.js"):
            assert served.http.get(path).status_code == 404


def test_runs_are_what_they_are_made_of() -> None:
    assert run_lengths([0, 0, 3, 3, 3, 1]) == [0, 2, 3, 3, 1, 1]
    assert run_lengths([]) == []


def test_unknown_requests_share_one_view(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []
    look = Engine.cache_view

    def count(self: Engine, most_sequences: int, request: int | None) -> CacheView:
        if most_sequences > 1:  # else it is the server's own look
            asked.append(request)
        return look(self, most_sequences, request)

    monkeypatch.setattr(Engine, "cache_view", count)
    begin = time.monotonic()
    views = [served.http.get(f"/cache?request={10**6 + number}").json() for number in range(40)]
    seconds = time.monotonic() - begin
    assert {view["kept"] for view in views} == {None}
    assert set(asked) == {None}
    assert len(asked) <= 2 + seconds / 0.25


class WatchedEngine:
    """Has a sequence of each tenant's request, and notes when it was looked at for which."""

    name = "watched"

    def __init__(self, owners: dict[int, str]) -> None:
        self._sequences = [
            {"request": request, "cache_salt": owner} for request, owner in owners.items()
        ]
        self.looks: list[tuple[int | None, float]] = []

    async def in_watch(self, _work: Any, _engine: Any, request: int | None, _most: int) -> Any:
        self.looks.append((request, time.monotonic()))
        await asyncio.sleep(0)
        kept = None if request is None else {"request": request}
        sequences = self._sequences
        return {"num_sequences": len(sequences), "sequences": sequences, "kept": kept}


def test_views_of_a_keys_requests_are_bounded_by_key_and_not_by_request() -> None:
    owners = {request: "one" if request < 4 else "two" for request in range(5)}
    engine = WatchedEngine(owners)
    views = CacheViews(has_keys=True)

    async def ask() -> list[Any]:
        asked = [*owners.items(), *owners.items()]
        return await asyncio.gather(
            *(views.get(cast(Engine, engine), request, owner) for request, owner in asked)
        )

    answers = asyncio.run(ask())
    assert [each["kept"]["request"] for each in answers] == [*owners, *owners]
    for group in ([None], [0, 1, 2, 3], [4]):
        times = [at for request, at in engine.looks if request in group]
        assert times
        for before, after in pairwise(times):
            assert after - before >= 0.2  # a look begins just after its time is noted
    of_one = [request for request, _ in engine.looks if request in (0, 1, 2, 3)]
    assert sorted(of_one) == [0, 1, 2, 3]  # those that ask for the same share a view


def test_a_view_waits_for_no_text_and_no_text_for_a_view(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts_go_on = threading.Event()
    engine = served.engine
    held = [engine._texts.submit(texts_go_on.wait) for _ in range(engine._texts._max_workers)]
    try:
        assert served.http.get("/cache").status_code == 200
    finally:
        texts_go_on.set()
    for each in held:
        each.result()
    views_go_on = threading.Event()
    engine._watch.submit(views_go_on.wait)
    try:
        assert served.post("/v1/completions", {"prompt": "a"}).status_code == 200
    finally:
        views_go_on.set()


def test_a_view_takes_a_place_of_its_key(tiny_folder: Path) -> None:
    limits = Limits(concurrency_per_key=1)
    with serving(tiny_settings(tiny_folder, limits)) as served, connect(served) as other:
        head = {"Content-Length": "9"}
        other.sendall(request_bytes("/v1/completions", b"{", **head))
        eventually(lambda: len(served.server.service.admission) == 1)
        answer = served.http.get("/cache")
        assert answer.status_code == 429
        assert answer.json()["error"]["code"] == "key_limit"
