"""What is measured begins when a request arrives, and every request leaves its trace."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from raw_http import connect, request_bytes
from serving import Served, serving, tiny_settings
from waiting import eventually

COMPLETIONS = "/v1/completions"
FIRST, WHOLE, QUEUE = (
    f"pagewheel:{name}_seconds_sum"
    for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time")
)


@pytest.fixture
def served(tiny_folder: Path) -> Iterator[Served]:
    with serving(tiny_settings(tiny_folder)) as one:
        yield one


def test_the_time_before_the_engine_counts(served: Served) -> None:
    """Once the server has seen a request begin, what its client takes to send the rest counts."""
    data = request_bytes(COMPLETIONS, {"prompt": "a", "max_tokens": 2, "ignore_eos": True})
    with connect(served) as connection:
        connection.sendall(data[:-5])
        eventually(lambda: len(served.server.service.admission) == 1)
        begin = time.monotonic()
        eventually(lambda: time.monotonic() > begin + 0.1)
        slow = time.monotonic() - begin
        connection.sendall(data[-5:])
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    eventually(lambda: served.metric(WHOLE) > 0)
    assert all(served.metric(name) >= slow for name in (FIRST, WHOLE, QUEUE))


def test_times_between_tokens_are_the_engines(served: Served) -> None:
    """They are there whether an answer is read step by step or at its end."""
    body = {"prompt": "a", "max_tokens": 30, "ignore_eos": True, "n": 2}
    assert served.post(COMPLETIONS, body).status_code == 200
    name = "pagewheel:inter_token_latency_seconds"
    eventually(lambda: served.metric(f"{name}_count") == 58)
    decode = served.metric("pagewheel:request_decode_time_seconds_sum")
    assert 0 < served.metric(f"{name}_sum") <= 2.5 * decode


def test_requests_of_clients_that_left_are_aborts(smollm2_folder: Path) -> None:
    body = {"prompt": "a", "max_tokens": 3900, "ignore_eos": True, "stream": True}
    with serving(tiny_settings(smollm2_folder)) as served:
        with served.http.stream("POST", COMPLETIONS, json=body) as answer:
            next(answer.iter_lines())
        eventually(served.is_at_rest)
        name = "pagewheel:request_success_total"
        eventually(lambda: served.metric(name, finished_reason="abort") == 1)
        assert served.metric(name) == 1


def test_requests_that_the_engine_ends_are_errors(served: Served) -> None:
    bans = {"allowed_token_ids": [5], "suppress_tokens": [5]}
    assert served.post(COMPLETIONS, {"prompt": "a", **bans}).status_code == 400
    assert served.metric("pagewheel:request_success_total", finished_reason="error") == 1


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/bananas", 404),
        ("PUT", COMPLETIONS, 405),
        ("POST", "/v1/messages/batches", 404),
        ("GET", "/v1/messages", 405),
    ],
)
def test_what_no_path_serves_is_answered_and_logged_as_others(
    served: Served, caplog: pytest.LogCaptureFixture, method: str, path: str, status: int
) -> None:
    with caplog.at_level(logging.INFO, "pagewheel.serve"):
        answer = served.http.request(method, path, headers={"x-request-id": "mine"})
        assert answer.status_code == status
        assert answer.headers["x-request-id"] == "mine"
        assert ("allow" in answer.headers) == (status == 405)
        found: dict[str, Any] = answer.json()
        assert ("type" in found) == path.startswith("/v1/messages")
        assert found["error"]["message"]
        eventually(lambda: any(vars(one).get("id") == "mine" for one in caplog.records))
    (line,) = [vars(one) for one in caplog.records if vars(one).get("id") == "mine"]
    assert (line["status"], line["asked"]) == (status, f"{method} {path}")
