"""ApiKeys, queues and bounds: who is let in, and what others are told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest
from raw_http import connect, request_bytes
from serving import Served, serving, tiny_settings
from waiting import eventually

from pagewheel.errors import InvalidArgumentError
from pagewheel.serve.security import AllowedHosts, ApiKeys, is_loopback, name_in_logs, read_keys
from pagewheel.serve.settings import KeyLimits, Limits
from pagewheel.serve_options import ServeOptions

COMPLETIONS = "/v1/completions"
LONG = {"prompt": "a", "max_tokens": 3900, "ignore_eos": True}


@contextmanager
def limited(folder: Path) -> Iterator[Served]:
    limits = Limits(concurrency_per_key=3, concurrency=5, max_tokens=4000)
    scheduler = {"max_num_seqs": 1, "max_queue": 1}
    keys = ("first-key-1", "second-key-2")
    with serving(tiny_settings(folder, limits, scheduler, keys=keys)) as one:
        one.http.headers["authorization"] = "Bearer first-key-1"
        yield one


@pytest.fixture(scope="module")
def served(tiny_folder: Path) -> Iterator[Served]:
    with limited(tiny_folder) as one:
        yield one


@pytest.fixture(scope="module")
def slow_served(smollm2_folder: Path) -> Iterator[Served]:
    """With a model that is still at its answer whenever a test looks."""
    with limited(smollm2_folder) as one:
        yield one


def test_a_wrong_key_is_refused_and_each_right_one_taken(served: Served) -> None:
    for given, status in (
        ({"authorization": "Bearer first-key-1"}, 200),
        ({"authorization": "bearer second-key-2"}, 200),
        ({"authorization": "", "x-api-key": "second-key-2"}, 200),
        ({"authorization": "Bearer wrong-key-99"}, 401),
        ({"authorization": "Bearer"}, 401),
        ({"authorization": "Basic first-key-1"}, 401),
        ({"authorization": "", "x-api-key": ""}, 401),
    ):
        assert served.http.get("/v1/models", headers=given).status_code == status, given
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="nonsense-1")
    with client, pytest.raises(openai.AuthenticationError):
        client.models.list()


def test_health_needs_no_key_and_metrics_do(served: Served) -> None:
    without = {"authorization": ""}
    assert served.http.get("/health", headers=without).status_code == 200
    assert served.http.get("/ready", headers=without).status_code == 200
    assert served.http.get("/metrics", headers=without).status_code == 401
    assert served.http.get("/metrics").status_code == 200


def test_a_body_is_not_read_without_a_key(served: Served) -> None:
    with connect(served) as connection:
        head = request_bytes(COMPLETIONS, b"", **{"Content-Length": "4000000"})
        connection.sendall(head)
        assert connection.recv(100).startswith(b"HTTP/1.1 401 ")


def test_a_full_queue_and_a_key_with_too_many_requests_get_429(slow_served: Served) -> None:
    head = {"Authorization": "Bearer first-key-1"}
    with connect(slow_served) as one, connect(slow_served) as two:
        one.sendall(request_bytes(COMPLETIONS, LONG, **head))
        eventually(lambda: slow_served.engine.statistics().num_running == 1)
        two.sendall(request_bytes(COMPLETIONS, LONG, **head))
        eventually(lambda: slow_served.engine.statistics().num_queued == 1)
        full = slow_served.post(COMPLETIONS, {"prompt": "a"})
        assert full.status_code == 429
        assert full.json()["error"]["code"] == "queue_full"
        assert int(full.headers["retry-after"]) >= 1
        streamed = slow_served.post(COMPLETIONS, {"prompt": "a", "stream": True})
        assert streamed.status_code == 429  # and no stream with an error in it
        with connect(slow_served) as three:
            three.sendall(request_bytes(COMPLETIONS, b"{", **head, **{"Content-Length": "9"}))
            eventually(lambda: len(slow_served.server.service.admission) == 3)
            many = slow_served.post(COMPLETIONS, {"prompt": "a"})
            assert many.json()["error"]["code"] == "key_limit"
            assert many.status_code == 429
            other = {"authorization": "Bearer second-key-2"}
            answer = slow_served.post(COMPLETIONS, {"prompt": "a"}, headers=other)
            assert answer.json()["error"]["code"] == "queue_full"
    eventually(slow_served.is_at_rest)
    assert slow_served.post(COMPLETIONS, {"prompt": "a"}).status_code == 200


def test_more_requests_than_are_served_at_once_get_503(served: Served) -> None:
    keys = ["first-key-1"] * 3 + ["second-key-2"] * 2
    connections = [connect(served) for _ in keys]
    for connection, key in zip(connections, keys, strict=True):
        head = {"Authorization": f"Bearer {key}", "Content-Length": "9"}
        connection.sendall(request_bytes(COMPLETIONS, b"{", **head))
    eventually(lambda: len(served.server.service.admission) == 5)
    answer = served.post(COMPLETIONS, {"prompt": "a"})
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    for connection in connections:
        connection.close()
    eventually(served.is_at_rest)


def test_more_tokens_than_allowed_are_refused(served: Served) -> None:
    answer = served.post(COMPLETIONS, {"prompt": "a", "max_tokens": 4001})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "max_tokens"
    for path, prompt in (
        (COMPLETIONS, {"prompt": "a"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ("/v1/responses", {"input": "a"}),
    ):
        answer = served.post(path, {**prompt, "max_length": 4001})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "max_length"


def test_a_request_id_comes_back_and_a_strange_one_does_not(served: Served) -> None:
    for given, same in (("abc-1.2", True), ("a b", False), ("x" * 65, False)):
        answer = served.http.get("/v1/models", headers={"x-request-id": given})
        assert (answer.headers["x-request-id"] == given) == same


def test_nothing_is_said_to_other_origins(served: Served) -> None:
    answer = served.http.get("/v1/models", headers={"origin": "https://evil.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert served.http.options(COMPLETIONS).status_code == 405


def test_keys_come_from_file_and_environment(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# ours\nfile-key-1\n\nfile-key-2\n")
    environment = {"PAGEWHEEL_API_KEYS": "env-key-12, file-key-1"}
    assert list(read_keys(file, environment)) == ["env-key-12", "file-key-1", "file-key-2"]
    assert read_keys(None, {}) == {}
    file.write_text("# none\n")
    with pytest.raises(InvalidArgumentError, match="no API key"):
        read_keys(file, {})
    with pytest.raises(InvalidArgumentError, match="8 or more"):
        read_keys(None, {"PAGEWHEEL_API_KEYS": "short"})


def test_the_same_key_in_two_lines_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# ours\nfile-key-1 requests=8\nfile-key-2\n\nfile-key-1 requests=1\n")
    with pytest.raises(InvalidArgumentError, match=r"lines 2 and 5: .*same API key") as error:
        read_keys(file, {})
    assert "file-key-1" not in str(error.value)


def test_a_key_in_a_file_has_its_limits_behind_it(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("file-key-1 requests=8 queue=4 priority=-2\nfile-key-2\tpriority=3\n")
    assert read_keys(file, {}) == {
        "file-key-1": KeyLimits(requests=8, queue=4, priority=-2),
        "file-key-2": KeyLimits(priority=3),
    }
    for wrong in (
        "requests=0",
        "queue=many",
        "admin=no",
        "bananas=1",
        "my secret",
        "queue=1 queue=2",
    ):
        file.write_text(f"# ours\nfile-key-1 {wrong}\n")
        with pytest.raises(InvalidArgumentError, match=r"line 2: .*requests=N") as error:
            read_keys(file, {})
        assert wrong not in str(error.value)


def test_no_key_of_several_fills_the_queue_of_all(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PAGEWHEEL_API_KEYS", raising=False)
    file = tmp_path / "keys"

    def places(keys: str, **given: int) -> int:
        file.write_text(keys)
        options = ServeOptions(api_key_file=file, **given)
        return options.server_settings([str(tiny_folder)]).limits.queue_per_key

    two_keys = "file-key-1\nfile-key-2\n"
    assert places(two_keys) == 128  # of 256
    assert places(two_keys, max_queue=1) == 1
    assert places(two_keys, max_queue=0) == 0  # no limit
    assert places(two_keys, queue_per_key=7) == 7
    assert places(two_keys, queue_per_key=0) == 0
    assert places("file-key-1\n") == 0


@pytest.fixture(scope="module")
def shared(smollm2_folder: Path) -> Iterator[Served]:
    """By a modest key and one without limits; one request runs at a time."""
    limits = {"modest-key": KeyLimits(requests=4, queue=1, priority=-1)}
    settings = tiny_settings(
        smollm2_folder,
        Limits(concurrency_per_key=1),
        {"max_num_seqs": 1},
        keys=("modest-key", "other-key-1"),
        key_limits=limits,
    )
    with serving(settings) as one:
        one.http.headers["authorization"] = "Bearer modest-key"
        yield one


def test_a_key_takes_only_its_share_of_the_queue(shared: Served) -> None:
    head = {"Authorization": "Bearer modest-key"}
    with connect(shared) as one, connect(shared) as two:
        one.sendall(request_bytes(COMPLETIONS, LONG, **head))
        eventually(lambda: shared.engine.statistics().num_running == 1)
        waits = {**LONG, "stream": True}
        eventually(lambda: not shared.server.service.num_waiting.total())
        two.sendall(request_bytes(COMPLETIONS, waits, **head))
        eventually(lambda: shared.engine.statistics().num_queued == 1)
        answer = shared.post(COMPLETIONS, {"prompt": "a"})
        assert answer.status_code == 429
        assert answer.json()["error"]["code"] == "key_queue_limit"
        assert answer.headers["retry-after"]
        other = {"authorization": "Bearer other-key-1"}  # its places are its own
        assert shared.post(COMPLETIONS, {"prompt": "a"}, headers=other).status_code == 200
    eventually(shared.is_at_rest)
    assert shared.post(COMPLETIONS, {"prompt": "a"}).status_code == 200
    two_prompts = shared.post(COMPLETIONS, {"prompt": ["a", "b"]})
    assert two_prompts.status_code == 400  # waiting does not help
    assert two_prompts.json()["error"]["code"] == "key_queue_limit"


def test_a_key_sets_no_priority_above_its_own(shared: Served) -> None:
    for path, prompt in (
        (COMPLETIONS, {"prompt": "a"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ("/v1/responses", {"input": "a"}),
    ):
        answer = shared.post(path, {**prompt, "priority": 0})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "priority"
        assert answer.json()["error"]["code"] == "priority_not_allowed"
    for priority in (-1, -5, None):
        assert shared.post(COMPLETIONS, {"prompt": "a", "priority": priority}).status_code == 200
    other = {"authorization": "Bearer other-key-1"}
    assert shared.post(COMPLETIONS, {"prompt": "a", "priority": 9}, headers=other).is_success


def test_keys_have_names_that_do_not_tell_them() -> None:
    keys = ApiKeys(["a-long-key-1", "a-long-key-2"])
    api_key_id = keys.api_key_id({"authorization": "Bearer a-long-key-1"})
    assert api_key_id
    assert "key" not in api_key_id
    assert len(bytes.fromhex(api_key_id)) >= 16  # no two keys meet
    assert len(name_in_logs(api_key_id)) == 12
    assert api_key_id != keys.api_key_id({"x-api-key": "a-long-key-2"})
    assert ApiKeys([]).api_key_id({}) == ""


def test_hosts_are_looked_at_where_only_this_machine_is_served() -> None:
    local = AllowedHosts("127.0.0.1", (), has_keys=False)
    for name in ("localhost", "localhost:8000", "127.0.0.1:80", "[::1]:80"):
        assert local.allows(name), name
    for name in ("evil.example", "localhost.evil.example", "10.0.0.1:8000", "", "[::2]:1"):
        assert not local.allows(name), name
    assert AllowedHosts("127.0.0.1", (), has_keys=True).allows("any.example")
    assert AllowedHosts("0.0.0.0", (), has_keys=False).allows("any.example")
    named = AllowedHosts("0.0.0.0", ("models.example",), has_keys=True)
    assert named.allows("models.example:443")
    assert not named.allows("other.example")
    assert is_loopback("::1")


def test_bodies_are_bounded_together_and_their_room_comes_back(tiny_folder: Path) -> None:
    limits = Limits(bodies_bytes=1 << 20)
    with serving(tiny_settings(tiny_folder, limits)) as served:
        large = {"prompt": "a", "user": "b" * (600 << 10)}
        with connect(served) as one:
            whole = request_bytes(COMPLETIONS, large)
            one.sendall(whole[:-9])
            taken = served.server.service.admission._body_bytes
            eventually(lambda: taken.total() > 600 << 10)
            answer = served.post(COMPLETIONS, large)
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "too_many_bytes"
            assert answer.headers["retry-after"]
            assert served.post(COMPLETIONS, {"prompt": "a"}).status_code == 200
        eventually(lambda: not taken.total())
        assert served.post(COMPLETIONS, large).status_code == 200
        eventually(lambda: not taken)
