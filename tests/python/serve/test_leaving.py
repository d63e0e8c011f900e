"""Clients hang up at any moment: the engine is free at the next step, and nothing is left."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from raw_http import connect, read_all, request_bytes
from rude_clients import CHAT, COMPLETIONS, hang_up, leave_at_some_moment
from server_load import soak
from serving import Served, num_descriptors, serving, tasks_of, tiny_settings
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from waiting import eventually

pytestmark = pytest.mark.all_cores
LONG = {"prompt": "the other", "max_tokens": 3900, "ignore_eos": True}


SCHEDULER = {"num_kv_blocks": 300, "max_num_seqs": 4, "max_queue": 2000}


@pytest.fixture(scope="module")
def served(tiny_folder: Path) -> Iterator[Served]:
    with serving(tiny_settings(tiny_folder, scheduler=SCHEDULER)) as one:
        yield one


@pytest.fixture(scope="module")
def slow_served(smollm2_folder: Path) -> Iterator[Served]:
    """With a model that is still at its answer whenever a test looks."""
    with serving(tiny_settings(smollm2_folder, scheduler=SCHEDULER)) as one:
        yield one


def running(served: Served) -> int:
    return int(served.engine.statistics().num_running)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("abruptly", [True, False])
def test_a_request_ends_when_its_client_leaves(
    slow_served: Served, stream: bool, abruptly: bool
) -> None:
    connection = connect(slow_served)
    connection.sendall(request_bytes(COMPLETIONS, {**LONG, "stream": stream}))
    eventually(lambda: running(slow_served) == 1)
    steps = slow_served.engine.statistics().num_steps
    hang_up(connection, abruptly)
    eventually(slow_served.is_at_rest)
    assert slow_served.engine.statistics().num_steps - steps < 1000  # it did not run to its end
    before = slow_served.metric("pagewheel:http_requests_total", path=COMPLETIONS, status="499")
    assert before >= 1


def test_all_requests_of_a_connection_end_when_its_client_leaves(slow_served: Served) -> None:
    """Also those before the last one, whose answer is under way."""
    steps = slow_served.engine.statistics().num_steps
    connection = connect(slow_served)
    connection.sendall(request_bytes(COMPLETIONS, LONG) * 3)
    eventually(lambda: running(slow_served) == 1)
    hang_up(connection, False)
    eventually(slow_served.is_at_rest)
    assert slow_served.engine.statistics().num_steps - steps < 1000


def test_requests_that_were_sent_ahead_are_looked_at_a_few_times_each(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 400
    looks: list[int] = []

    def is_complete(cycle: RequestResponseCycle) -> bool:
        looks.append(1)
        return bool(cycle.__dict__["response_complete"])

    def set_complete(cycle: RequestResponseCycle, value: bool) -> None:
        cycle.__dict__["response_complete"] = value

    monkeypatch.setattr(
        RequestResponseCycle,
        "response_complete",
        property(is_complete, set_complete),
        raising=False,
    )
    with connect(served) as connection:
        ask = b"GET /health HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
        connection.sendall((ask % b"") * (count - 1) + ask % b"Connection: close\r\n")
        assert read_all(connection).count(b'{"status":"ok"}') == count
    assert len(looks) < 50 * count


def test_a_client_that_leaves_the_queue_is_not_begun(slow_served: Served) -> None:
    first = [connect(slow_served) for _ in range(4)]
    for connection in first:
        connection.sendall(request_bytes(COMPLETIONS, LONG))
    eventually(lambda: running(slow_served) == 4)
    waiting = connect(slow_served)
    waiting.sendall(request_bytes(CHAT, {"messages": [{"role": "user", "content": "a"}]}))
    eventually(lambda: slow_served.engine.statistics().num_queued == 1)
    hang_up(waiting, True)
    eventually(lambda: slow_served.engine.statistics().num_queued == 0)
    assert running(slow_served) == 4
    for connection in first:
        hang_up(connection, False)
    eventually(slow_served.is_at_rest)


def test_five_hundred_clients_that_leave_at_random_moments_leave_nothing(served: Served) -> None:
    chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
    assert served.post(CHAT, chat).status_code == 200  # the process of templates stays
    tasks, threads = tasks_of(served), threading.active_count()
    descriptors = num_descriptors()
    with ThreadPoolExecutor(32) as clients:
        list(
            clients.map(lambda seed: leave_at_some_moment(served, random.Random(seed)), range(500))
        )
    eventually(served.is_at_rest)
    eventually(lambda: tasks_of(served) <= tasks + 1)
    eventually(lambda: num_descriptors() <= descriptors)
    # Pools of threads may have grown to their bounds, which do not depend on clients.
    assert threading.active_count() <= threads + 8
    answer = served.post(COMPLETIONS, {"prompt": "a", "max_tokens": 3})
    assert answer.status_code == 200


def test_clients_of_every_kind_at_once_leave_nothing_and_harm_nobody(calling_folder: Path) -> None:
    """The same as scripts/soak --serve, for a shorter time."""
    findings = soak(calling_folder, seconds=12, seed=1)
    assert not findings.problems
    assert min(findings.counts.values()) >= 1
    assert findings.counts["left"] > 200
    assert findings.counts["polite"] > 20


def test_a_slow_reader_gets_all_of_its_text_and_holds_nobody(served: Served) -> None:
    body = {"prompt": "a", "max_tokens": 600, "ignore_eos": True, "stream": True}
    with connect(served, SO_RCVBUF=4096) as slow:
        slow.sendall(request_bytes(COMPLETIONS, body, Connection="close"))
        data = slow.recv(4096)
        fast = served.post(COMPLETIONS, {"prompt": "b", "max_tokens": 20})
        assert fast.status_code == 200
        while chunk := slow.recv(4096):
            data += chunk
            time.sleep(0.0005)
    pieces = data.split(b"\r\n\r\n", 1)[1]
    events = [
        json.loads(line.removeprefix(b"data: "))
        for line in pieces.split(b"\n")
        if line.startswith(b"data: {")
    ]
    text = "".join(event["choices"][0]["text"] for event in events)
    whole = served.post(COMPLETIONS, {**body, "stream": False}).json()["choices"][0]["text"]
    assert text == whole


def test_many_connections_that_say_nothing_do_not_hold_others(served: Served) -> None:
    idle = [connect(served) for _ in range(200)]
    try:
        assert served.post(COMPLETIONS, {"prompt": "a", "max_tokens": 4}).status_code == 200
    finally:
        for connection in idle:
            connection.close()
