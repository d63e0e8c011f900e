"""`pagewheel bench-serve`: its numbers are what was served."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from known_server import Behaviour, known_server

from pagewheel.bench_serve.call import Call, Target, events
from pagewheel.bench_serve.run import Measured, Plan, measure
from pagewheel.bench_serve.summary import summarise
from pagewheel.bench_serve.workload import Load, Synthetic, arrivals, read_file
from pagewheel.errors import InvalidArgumentError

WORDS = Synthetic(prompt_tokens=10)


def run(url: str, plan: Plan, load: Load, **target: Any) -> Measured:
    return asyncio.run(measure(Target(url, "known", **target), plan, load, 0, asyncio.Event()))


@pytest.mark.all_cores
def test_times_are_those_of_the_server() -> None:
    with known_server(Behaviour(first_seconds=0.1, between_seconds=0.03, tokens=6)) as server:
        found = summarise(run(server.url, Plan(WORDS, 8, 16), Load(concurrency=4)), {})
    assert found.num_answered == found.num_requests == 8
    assert found.completion_tokens == 48
    assert found.prompt_tokens == 56
    # The server sleeps at least so long. The machine may add, but not as much again at the median.
    assert 0.1 <= found.first_token.percentiles["p50"] < 0.2
    assert 0.03 <= found.per_token.percentiles["p50"] < 0.06
    assert found.between_pieces.count == 40
    assert 0.25 <= found.whole.percentiles["p50"] < 0.5
    # Four at once, two after each other.
    assert 0.5 <= found.seconds < 1.0
    assert found.tokens_per_second == pytest.approx(48 / found.seconds)


@pytest.mark.all_cores
def test_requests_arrive_when_they_are_due_whatever_the_server_does() -> None:
    plan = Plan(WORDS, 20, 4)
    with known_server(Behaviour(first_seconds=0.5, tokens=1)) as server:
        measured = run(server.url, plan, Load(rate=40.0))
    due = arrivals(40.0, 20, "0.0.arrivals")
    assert [call.due for call in measured.calls] == pytest.approx(list(due))
    # All were sent before the first answer could come, were they sent one after the other.
    assert np.median([call.sent - call.due for call in measured.calls]) < 0.05
    assert measured.seconds >= due[-1] + 0.5


def test_arrivals_are_a_poisson_process() -> None:
    moments = np.array(arrivals(5.0, 4000, "seed"))
    gaps = np.diff(moments, prepend=0.0)
    assert gaps.min() > 0
    # Mean and standard deviation of an exponential distribution; each within 4 standard errors.
    assert gaps.mean() == pytest.approx(0.2, abs=4 * 0.2 / np.sqrt(4000))
    assert gaps.std() == pytest.approx(0.2, rel=0.1)


def test_a_concurrency_is_never_exceeded() -> None:
    with known_server(Behaviour(first_seconds=0.02, tokens=2)) as server:
        measured = run(server.url, Plan(WORDS, 12, 4), Load(concurrency=3))
    edges = [(call.sent, 1) for call in measured.calls]
    edges += [(call.last or 0.0, -1) for call in measured.calls]
    at_once = np.cumsum([change for _, change in sorted(edges)])
    assert at_once.max() == 3


def test_the_seed_decides_what_is_asked_and_when() -> None:
    bodies = []
    for seed in (1, 1, 2):
        with known_server(Behaviour(first_seconds=0.0, tokens=1)) as server:
            run(server.url, Plan(replace(WORDS, spread=0.5), 4, 4, seed), Load(concurrency=1))
            bodies.append(server.bodies)
    assert bodies[0] == bodies[1]
    assert bodies[0] != bodies[2]
    assert arrivals(3.0, 9, "a") == arrivals(3.0, 9, "a") != arrivals(3.0, 9, "b")


def test_loads_of_a_run_have_prompts_of_their_own() -> None:
    first, second = (next(WORDS.conversations(f"0.{number}")) for number in range(2))
    assert first != second


def test_a_conversation_brings_the_answers_along() -> None:
    workload = Synthetic(prompt_tokens=3, questions=3, shared_tokens=5)
    with known_server(Behaviour(first_seconds=0.0, between_seconds=0.0, tokens=2)) as server:
        run(server.url, Plan(workload, 1, 4), Load(concurrency=1))
    roles = [[message["role"] for message in body["messages"]] for body in server.bodies]
    assert roles == [
        ["system", "user"],
        ["system", "user", "assistant", "user"],
        ["system", "user", "assistant", "user", "assistant", "user"],
    ]
    for before, after in pairwise(server.bodies):
        assert after["messages"][: len(before["messages"])] == before["messages"]
    assert server.bodies[-1]["messages"][2]["content"] == " t0 t1"


def test_system_messages_are_shared() -> None:
    workload = Synthetic(prompt_tokens=3, shared_tokens=20, num_shared=2)
    found = list(islice(workload.conversations("seed"), 40))
    systems = [each.system for each in found]
    assert len(set(systems)) == 2
    assert min(systems.count(each) for each in set(systems)) >= 8
    assert len({each.questions for each in found}) == 40
    assert all(len(each.split()) == 20 for each in systems)


def test_lengths_spread_around_the_one_that_was_asked_for() -> None:
    workload = Synthetic(prompt_tokens=100, spread=0.2)
    lengths = [len(each.questions[0].split()) for each in islice(workload.conversations("s"), 200)]
    assert 80 <= min(lengths) < 85
    assert 115 < max(lengths) <= 120


def test_completions_get_one_text() -> None:
    workload = Synthetic(prompt_tokens=3, shared_tokens=4)
    with known_server(Behaviour(first_seconds=0.0, tokens=1)) as server:
        target = {"api": "completions", "api_key": "secret-key", "fields": {"top_k": 3}}
        measured = run(server.url, Plan(workload, 1, 9), Load(concurrency=1), **target)
    (body,) = server.bodies
    assert len(body["prompt"].split()) == 7
    assert (body["max_tokens"], body["top_k"], body["stream"]) == (9, 3, True)
    assert server.keys == {"Bearer secret-key"}
    assert measured.calls[0].text == " t0"


def test_errors_are_counted_and_their_requests_are_in_no_statistic() -> None:
    with known_server(Behaviour(first_seconds=0.0, tokens=3, fail_every=3)) as server:
        found = summarise(run(server.url, Plan(WORDS, 9, 4), Load(concurrency=1)), {"ttft": 9})
    assert found.errors == {"HTTP 500": 3}
    assert "no luck" in found.error_messages["HTTP 500"]
    assert found.num_answered == found.num_within_goals == found.first_token.count == 6
    assert found.completion_tokens == 18


@pytest.mark.parametrize(
    ("behaviour", "timeout", "kind"),
    [
        (Behaviour(break_off=True), 60.0, "the stream ended early"),
        (Behaviour(tokens=0), 60.0, "no text"),
        (Behaviour(first_event="[1]"), 60.0, "malformed event"),
        (Behaviour(first_event='{"usage": [1]}'), 60.0, "malformed event"),
        (Behaviour(first_event='{"choices": [{"delta": [1]}]}'), 60.0, "malformed event"),
        (Behaviour(first_event="{no json"), 60.0, "malformed event"),
        (Behaviour(first_event='{"error": "sorry"}'), 60.0, "error in the stream"),
        (Behaviour(first_seconds=1.0), 0.2, "timeout"),
    ],
)
def test_answers_that_do_not_come_whole_are_errors(
    behaviour: Behaviour, timeout: float, kind: str
) -> None:
    with known_server(behaviour) as server:
        load = Load(concurrency=1)
        found = summarise(run(server.url, Plan(WORDS, 1, 4), load, timeout=timeout), {})
    assert found.errors == {kind: 1}
    assert found.first_token.percentiles["p50"] is None


def test_a_server_that_is_not_there_is_an_error_of_each_request() -> None:
    found = summarise(
        run("http://127.0.0.1:9/v1", Plan(WORDS, 3, 4), Load(concurrency=3)), {"e2e": 1}
    )
    assert list(found.errors.values()) == [3]
    assert found.goodput == 0


def test_pieces_are_counted_where_the_server_does_not_say() -> None:
    with known_server(Behaviour(first_seconds=0.0, tokens=4, with_usage=False)) as server:
        found = summarise(run(server.url, Plan(WORDS, 2, 4), Load(concurrency=1)), {})
    assert not found.counts_are_given
    assert found.completion_tokens == 8


def made_call(first: float, last: float, tokens: int) -> Call:
    return Call(0, 0, 0.0, 0.0, first, last, completion_tokens=tokens)


def test_goodput_counts_what_meets_all_goals() -> None:
    calls = [
        made_call(0.1, 1.1, 11),  # 0.1 s per token
        made_call(0.1, 0.6, 11),  # 0.05
        made_call(0.4, 0.9, 11),  # its first token is late
        made_call(0.1, 0.1, 1),  # has no time per token
    ]
    measured = Measured(Load(rate=1.0), calls, seconds=2.0)
    found = summarise(measured, {"ttft": 0.2, "tpot": 0.06})
    assert found.num_within_goals == 2
    assert found.goodput == 1.0
    assert summarise(measured, {"e2e": 0.9}).num_within_goals == 3
    assert summarise(measured, {}).goodput is None


def test_percentiles_are_numpys() -> None:
    values = np.random.default_rng(0).exponential(size=101)
    calls = [made_call(float(value), float(value), 1) for value in values]
    found = summarise(Measured(Load(rate=1.0), calls, seconds=1.0), {}).first_token
    assert found.percentiles["p50"] == np.sort(values)[50]
    assert found.percentiles["p99"] == np.sort(values)[99]
    assert (found.mean, found.max) == (pytest.approx(values.mean()), values.max())


def test_events_are_read_however_the_bytes_are_cut() -> None:
    data = 'data: {"a": "ü"}\r\n\r\n: comment\nevent: x\ndata:[DONE]\n\n'.encode()

    async def read(size: int) -> list[bytes]:
        async def chunks() -> Any:
            for begin in range(0, len(data), size):
                yield data[begin : begin + size]

        return [event async for event in events(chunks())]

    for size in range(1, len(data) + 1):
        assert asyncio.run(read(size)) == ['{"a": "ü"}'.encode(), b"[DONE]"]


def test_files_of_prompts_and_conversations(tmp_path: Path) -> None:
    lines = tmp_path / "prompts.txt"
    lines.write_text("one\n\ntwo\n")
    assert [each.questions for each in read_file(lines).found] == [("one",), ("two",)]
    talks = tmp_path / "talks.jsonl"
    messages = [
        {"role": "system", "content": "be short"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "left out"},
        {"role": "user", "content": "b"},
    ]
    values = ["text", {"prompt": "p"}, {"messages": messages}]
    talks.write_text("\n".join(map(json.dumps, values)))
    found = read_file(talks)
    assert [each.questions for each in found.found] == [("text",), ("p",), ("a", "b")]
    assert found.found[2].system == "be short"
    assert len(set(islice(found.conversations("seed"), 3))) == 3  # each once before any again


@pytest.mark.parametrize("line", ["{", "3", '{"text": "a"}', '{"messages": []}', '{"prompt": 1}'])
def test_a_wrong_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "wrong.jsonl"
    path.write_text(f'"fine"\n{line}\n')
    with pytest.raises(InvalidArgumentError, match="line 2"):
        read_file(path)
