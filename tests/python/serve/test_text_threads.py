"""The threads that tokenize and render: what does not wait for them, and who gets how many."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from serving import Served, eventually, serving, tiny_settings

from pagewheel.serve.models.engine import Engine

COMPLETIONS = "/v1/completions"
LARGE = "a " * (150 << 10)


@pytest.fixture(scope="module")
def served(tiny_folder: Path) -> Iterator[Served]:
    with serving(tiny_settings(tiny_folder)) as one:
        yield one


@contextmanager
def all_text_threads_held(engine: Engine) -> Iterator[None]:
    goes_on = threading.Event()
    held = [engine._texts.submit(goes_on.wait) for _ in range(engine._texts._max_workers)]
    try:
        yield
    finally:
        goes_on.set()
        for each in held:
            each.result()


def test_a_stream_with_log_probabilities_waits_for_no_text(served: Served) -> None:
    body = {"prompt": "a", "max_tokens": 3000, "ignore_eos": True, "logprobs": 1, "stream": True}
    with served.http.stream("POST", COMPLETIONS, json=body) as answer:
        lines = answer.iter_lines()
        next(lines)
        with all_text_threads_held(served.engine):
            assert list(lines)[-2] == "data: [DONE]"


def test_the_check_of_engines_waits_for_no_text(served: Served) -> None:
    loop = served.server.servers[0].get_loop()
    with all_text_threads_held(served.engine):
        check = served.server.service.registry.check()
        asyncio.run_coroutine_threadsafe(check, loop).result(30)


@pytest.mark.parametrize(
    ("path", "prompt"),
    [
        (COMPLETIONS, {"prompt": LARGE}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": LARGE}]}),
    ],
)
def test_a_text_that_cannot_fit_is_refused_without_tokenizing(
    served: Served, monkeypatch: pytest.MonkeyPatch, path: str, prompt: dict[str, object]
) -> None:
    def encode(_engine: Engine, _text: str, _special: bool) -> Sequence[int]:
        raise AssertionError

    monkeypatch.setattr(Engine, "encode", encode)
    answer = served.post(path, prompt)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"


def test_one_large_text_of_an_owner_is_tokenized_at_a_time(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = Engine.encode
    begun: list[int] = []
    goes_on = threading.Event()

    def slow_encode(self: Engine, text: str, add_special_tokens: bool) -> list[int]:
        if len(text) == len(LARGE):
            begun.append(1)
            goes_on.wait(60)
        return encode(self, text, add_special_tokens)

    monkeypatch.setattr(Engine, "encode", slow_encode)
    counts: list[int] = []

    def ask() -> None:
        counts.append(served.post("/tokenize", {"prompt": LARGE}).json()["count"])

    clients = [threading.Thread(target=ask) for _ in range(6)]
    for each in clients:
        each.start()
    try:
        eventually(lambda: len(served.server.service.gate) == 6 and bool(begun))
        for _ in range(3):
            assert served.post("/tokenize", {"prompt": "a"}).json()["count"] == 1
        assert len(begun) == 1
    finally:
        goes_on.set()
        for each in clients:
            each.join()
    assert len(set(counts)) == 1
    assert len(counts) == len(begun) == 6
