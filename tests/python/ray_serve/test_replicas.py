"""`pagewheel serve --replicas`: one endpoint, two replicas on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'pagewheel[ray]'")

from replicated import (
    COMPLETIONS,
    OTHER_KEY,
    SERVE,
    Replicated,
    eventually,
    replicated,
    serve_arguments,
)

pytestmark = pytest.mark.all_cores

REPLICA = "x-pagewheel-replica"
GROUPS = 6
ROUNDS = 8
# So little repeats that drafts do not shorten an answer.
LONG = {"max_tokens": 3900, "frequency_penalty": 2.0}


@pytest.fixture(scope="module")
def two(tiny_folder: Path) -> Iterator[Replicated]:
    with replicated(SERVE, *serve_arguments(tiny_folder, "--replicas", "2"), count=2) as served:
        yield served


def greedy(prompt: str, **fields: Any) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": 8, "ignore_eos": True, **fields}


def events_of(text: str) -> list[dict[str, Any]]:
    data = [line[len("data: ") :] for line in text.split("\n") if line.startswith("data: ")]
    return [json.loads(each) for each in data if each != "[DONE]"]


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(choice["text"] for each in events for choice in each["choices"])


def test_streamed_and_whole_answers_are_those_of_one_model(two: Replicated) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is a replica?"}]
    fields: dict[str, Any] = {"model": "tiny", "messages": messages, "max_tokens": 20}
    whole = two.client.chat.completions.create(**fields)
    assert whole.usage is not None
    assert whole.usage.completion_tokens > 0
    parts = [
        event.choices[0].delta.content or ""
        for event in two.client.chat.completions.create(**fields, stream=True)
    ]
    assert "".join(parts) == whole.choices[0].message.content
    assert {each.id for each in two.client.models.list()} == {"tiny"}


def test_tokens_come_as_they_are_made(two: Replicated) -> None:
    body = greedy("slow", **LONG, stream=True)
    with two.http.stream("POST", COMPLETIONS, json=body) as answer:
        lines = answer.iter_lines()
        for _ in range(40):
            next(lines)
        assert two.metric("pagewheel:num_requests_running") == 1
        assert list(lines)[-2] == "data: [DONE]"


def test_streams_come_on_connections_of_their_own(two: Replicated) -> None:
    body = greedy("apart", **LONG, stream=True)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: two.post(COMPLETIONS, greedy("warm", stream=True)), range(8)))
        rays = two.num_connections()  # Ray's own stay
        answers = pool.map(lambda _: two.post(COMPLETIONS, body), range(4))
        eventually(lambda: two.num_connections() == rays + 4)
        texts = {text_of(events_of(each.text)) for each in answers}
    assert len(texts) == 1
    eventually(lambda: two.num_connections() == rays)


def test_both_replicas_serve_and_say_which_they_are(two: Replicated) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda n: two.post(COMPLETIONS, greedy(f"{n}")), range(32)))
    found = {each.headers[REPLICA] for each in answers}
    assert len(found) == 2
    metrics = two.http.get("/metrics").text
    for tag in found:
        assert f'pagewheel:prompt_tokens_total{{engine="{tag}",model_name="tiny"}}' in metrics
    assert two.metric("pagewheel:http_requests_total", path=COMPLETIONS, status="200") >= 32


def load_of_shared_prefixes(served: Replicated) -> tuple[float, list[set[str]]]:
    """The share of prompts' tokens that were cached, and which replicas each prefix went to."""

    def totals() -> tuple[float, float]:
        names = ("prefix_cache_hits", "prefix_cache_queries")
        hits, queries = (served.metric(f"pagewheel:{name}_total") for name in names)
        return hits, queries

    def ask(number: int) -> tuple[int, str]:
        group = number % GROUPS
        prompt = f"group {group} says " * 60 + f"request {number}"
        answer = served.post(COMPLETIONS, greedy(prompt))
        assert answer.status_code == 200
        return group, answer.headers.get(REPLICA, "")

    places: list[set[str]] = [set() for _ in range(GROUPS)]
    before = totals()
    with ThreadPoolExecutor(4) as pool:
        for group, replica in pool.map(ask, range(GROUPS * ROUNDS)):
            places[group].add(replica)
    after = totals()
    return (after[0] - before[0]) / (after[1] - before[1]), places


def test_shared_prefixes_land_together(two: Replicated, tiny_folder: Path) -> None:
    rate, places = load_of_shared_prefixes(two)
    assert all(len(each) == 1 for each in places)
    with replicated(
        SERVE, *serve_arguments(tiny_folder, "--metrics-prefix", "pagewheel"), count=0
    ) as one:
        eventually(lambda: one.http.get("/ready").status_code == 200)
        alone, _ = load_of_shared_prefixes(one)
    print(f"hit rate {rate:.3f} of two replicas, {alone:.3f} of one process")
    assert alone > 0.5
    assert rate >= 0.9 * alone


def test_salts_are_kept_apart(two: Replicated) -> None:
    body = greedy("a tenant's own prefix " * 20)
    for salt, cached in (("one", 0), ("two", 0), ("one", 1)):
        usage = two.post(COMPLETIONS, {**body, "cache_salt": salt}).json()["usage"]
        assert min(1, usage["prompt_tokens_details"]["cached_tokens"]) == cached


def test_prefixes_are_a_keys_own_in_all_replicas(two: Replicated) -> None:
    other = {"authorization": f"Bearer {OTHER_KEY}"}
    # No other test's prompt begins with these letters, so not even one token is shared.
    bodies = [greedy(f"{letter} of a key's own prefixes " * 20) for letter in "QXZJKVWY"]

    def cached(body: Any, headers: Any = None) -> int:
        usage = two.post(COMPLETIONS, body, headers=headers).json()["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    def listed(headers: Any = None) -> int:
        (model,) = two.http.get("/prefixes", headers=headers).json()["data"]
        return int(model["cached_tokens"])

    # All at once: one after the other they may all go to the replica that Ray thinks idle.
    with ThreadPoolExecutor(len(bodies)) as pool:
        assert not any(pool.map(cached, bodies))
    assert not any(cached(body, other) for body in bodies)
    assert all(cached(body) > 50 for body in bodies)
    places = {two.post(COMPLETIONS, body).headers[REPLICA] for body in bodies}
    assert len(places) == 2  # so both replicas are asked in what follows
    assert listed() >= listed(other) > 50 * len(bodies)
    assert two.http.delete("/prefixes").json()["deleted"] is True
    assert listed() == 0
    assert listed(other) > 50 * len(bodies)
    assert not any(cached(body) for body in bodies)
    assert all(cached(body, other) > 50 for body in bodies)


def test_a_client_that_leaves_ends_its_request_in_the_replica(two: Replicated) -> None:
    body = greedy("leaving", max_tokens=3900, n=8, temperature=1.0, stream=True)
    with two.http.stream("POST", COMPLETIONS, json=body) as answer:
        lines = answer.iter_lines()
        next(lines)
        eventually(lambda: two.metric("pagewheel:num_requests_running") == 1)
    eventually(lambda: two.metric("pagewheel:num_requests_running") == 0)
    eventually(lambda: two.metric("pagewheel:kv_cache_usage_perc") == 0)
    assert two.metric("pagewheel:router_requests_running") == 0
    assert two.metric("pagewheel:http_requests_total", path=COMPLETIONS, status="499") == 1


def test_a_stored_response_is_found_again(two: Replicated) -> None:
    for _ in range(4):
        response = two.client.responses.create(model="tiny", input="hello", max_output_tokens=4)
        assert two.client.responses.retrieve(response.id).id == response.id
        after = two.client.responses.create(
            model="tiny", input="more", max_output_tokens=4, previous_response_id=response.id
        )
        assert after.previous_response_id == response.id
    missing = two.http.get("/v1/responses/resp_" + "x" * 40)
    assert missing.status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (COMPLETIONS, b"{", 400),
        (COMPLETIONS, b'{"prompt": "a", "bananas": 1}', 400),
        (COMPLETIONS, b'{"prompt": "a", "model": "none"}', 404),
        ("/v1/bananas", b"{}", 404),
        ("/v1/messages", b"{}", 400),
    ],
)
def test_errors_are_those_of_one_process(
    two: Replicated, path: str, body: bytes, status: int
) -> None:
    answer = two.http.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


def test_keys_are_compared_by_the_front_and_owners_cannot_be_claimed(two: Replicated) -> None:
    response = two.client.responses.create(model="tiny", input="hello", max_output_tokens=4)
    path = f"/v1/responses/{response.id}"
    wrong = {"authorization": "Bearer wrong-key"}
    assert two.http.get(path, headers=wrong).status_code == 401
    # The key id that the front tells the replica is the key's.
    assert two.http.get(path, headers={"x-pagewheel-api-key-id": "other"}).status_code == 200


def killed_under_load(
    two: Replicated, requests: list[dict[str, Any]], path: str = COMPLETIONS
) -> list[httpx.Response]:
    """The answers to the requests, all sent at once; a replica dies while they are served."""
    with ThreadPoolExecutor(len(requests)) as pool:
        futures = [pool.submit(two.post, path, body) for body in requests]
        eventually(lambda: two.metric("pagewheel:num_requests_running") > len(requests) / 2)
        victims = two.replica_processes()
        assert len(victims) == 2
        victims[0].kill()
        return [each.result() for each in futures]


def test_when_a_replica_is_killed_every_request_ends_right_or_with_an_error(
    two: Replicated,
) -> None:
    prompts = [f"{number} is a prompt of its own" for number in range(16)]
    body = {**LONG, "max_tokens": 2000, "ignore_eos": True}
    # Where replicas get requests in turns, each has both kinds.
    requests = [
        {**body, "prompt": each, "stream": n // 2 % 2 == 0} for n, each in enumerate(prompts)
    ]
    answers = killed_under_load(two, requests)
    eventually(lambda: two.num_replicas() == 2, 60)
    failed = 0
    for request, answer in zip(requests, answers, strict=True):
        assert answer.status_code == 200
        expected = two.post(COMPLETIONS, {**request, "stream": False}).json()
        right = expected["choices"][0]["text"]
        if not request["stream"]:
            # Nothing was sent yet: another replica has served it.
            assert answer.json()["choices"][0]["text"] == right
            continue
        events = events_of(answer.text)
        if "error" in events[-1]:
            failed += 1
            assert events[-1]["error"]["code"] == "replica_failed"
            assert right.startswith(text_of(events[:-1]))
        else:
            assert text_of(events) == right
    assert failed < sum(each["stream"] for each in requests)  # the other replica's went on
    assert two.metric("pagewheel:router_retries_total") > 0


def test_a_killed_replicas_chat_streams_without_a_token_are_served_by_another(
    two: Replicated,
) -> None:
    """Long prompts: some are in the queue or in the middle of it when the replica dies."""
    eventually(lambda: two.num_replicas() == 2, 60)
    path = "/v1/chat/completions"
    requests = [
        {
            "messages": [{"role": "user", "content": f"{number} " + "of many words " * 250}],
            "max_tokens": 300,
            "ignore_eos": True,
        }
        for number in range(16)
    ]
    answers = killed_under_load(two, [{**each, "stream": True} for each in requests], path)
    eventually(lambda: two.num_replicas() == 2, 60)

    def said(events: list[dict[str, Any]]) -> str:
        choices = [choice for each in events for choice in each["choices"]]
        return "".join(choice["delta"].get("content") or "" for choice in choices)

    for request, answer in zip(requests, answers, strict=True):
        assert answer.status_code == 200
        expected = two.post(path, request).json()["choices"][0]["message"]["content"]
        events = events_of(answer.text)
        if "error" in events[-1]:
            found = said(events[:-1])
            assert found  # else another replica would have served it
            assert expected.startswith(found)
        else:
            assert said(events) == expected


def test_after_sigterm_running_requests_end_and_no_process_is_left(two: Replicated) -> None:
    """The last test: it ends the replicas that the others share."""
    found: list[httpx.Response] = []
    body = greedy("draining", **LONG, stream=True)
    thread = threading.Thread(target=lambda: found.append(two.post(COMPLETIONS, body)))
    thread.start()
    eventually(lambda: two.metric("pagewheel:num_requests_running") == 1)
    processes = two.replica_processes()
    two.process.terminate()
    assert two.process.wait(60) == 0
    thread.join(60)
    events = events_of(found[0].text)
    assert events[-1]["choices"][0]["finish_reason"] == "length"
    eventually(lambda: not any(each.is_running() for each in processes))
    assert not [line for line in two.lines if "Traceback" in line]
