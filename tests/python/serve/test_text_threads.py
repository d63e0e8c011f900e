"""The threads that tokenize and render: what does not wait for them, and who gets how many."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from serving import Served, serving, tiny_settings
from waiting import eventually

from pagewheel import GenerationConfig, template_process
from pagewheel.serve.api import generating
from pagewheel.serve.http import request_context
from pagewheel.serve.http.body import Fields
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
        eventually(lambda: len(served.server.service.admission) == 6 and bool(begun))
        for _ in range(3):
            assert served.post("/tokenize", {"prompt": "a"}).json()["count"] == 1
        assert len(begun) == 1
    finally:
        goes_on.set()
        for each in clients:
            each.join()
    assert len(set(counts)) == 1
    assert len(counts) == len(begun) == 6


def test_the_texts_of_one_key_leave_threads_to_others(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = Engine.encode
    begun: list[str] = []
    goes_on = threading.Event()

    def slow_encode(self: Engine, text: str, add_special_tokens: bool) -> list[int]:
        if text.startswith("slow"):
            begun.append(text)
            goes_on.wait(60)
        return encode(self, text, add_special_tokens)

    monkeypatch.setattr(Engine, "encode", slow_encode)
    with serving(tiny_settings(tiny_folder, keys=("many-texts", "one-text"))) as one:

        def ask(text: str, key: str) -> int:
            headers = {"x-api-key": key}
            return one.post("/tokenize", {"prompt": text}, headers=headers).status_code

        texts = [f"slow {number}" for number in range(8)]
        with ThreadPoolExecutor(8) as clients:
            asked = [clients.submit(ask, text, "many-texts") for text in texts]
            try:
                eventually(lambda: len(one.server.service.admission) == 8 and len(begun) == 2)
                assert ask("a", "one-text") == 200
                assert len(begun) == 2
            finally:
                goes_on.set()
            assert [each.result() for each in asked] == [200] * 8


def test_one_large_list_of_bad_words_of_an_owner_is_tokenized_at_a_time(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = Engine.submit
    begun: list[int] = []
    goes_on = threading.Event()

    def slow_submit(self: Engine, tokens: Sequence[int], config: GenerationConfig) -> Any:
        if config.bad_words:
            begun.append(1)
            goes_on.wait(60)
        return submit(self, tokens, config)

    monkeypatch.setattr(Engine, "submit", slow_submit)
    words = [f"{number:064}" for number in range(256)]
    statuses: list[int] = []

    def ask() -> None:
        body = {"prompt": "a", "max_tokens": 1, "bad_words": words}
        statuses.append(served.post(COMPLETIONS, body).status_code)

    clients = [threading.Thread(target=ask) for _ in range(6)]
    for each in clients:
        each.start()
    try:
        eventually(lambda: len(served.server.service.admission) == 6 and bool(begun))
        for _ in range(3):
            short = served.post(COMPLETIONS, {"prompt": "a", "max_tokens": 1})
            assert short.status_code == 200
        assert len(begun) == 1
    finally:
        goes_on.set()
        for each in clients:
            each.join()
    assert statuses == [200] * 6
    assert len(begun) == 6


MESSAGE = {"role": "user", "content": "a"}
NAME = "f" * 60
SCHEMA = {"type": "object", "properties": {}}
# Bodies of several hundred KB, of each kind of field that may be so large.
MANY = [{"role": each, "content": "a"} for each in ("user", "assistant") * 2000]
TOOLS = [
    {"name": f"{NAME}{number}", "description": "d" * 400, "parameters": SCHEMA}
    for number in range(500)
]
FUNCTIONS = [{"type": "function", "function": each} for each in TOOLS]
FLAT = [{"type": "function", **each} for each in TOOLS]
ANTHROPICS = [
    {"name": each["name"], "description": each["description"], "input_schema": SCHEMA}
    for each in TOOLS
]
# ApiKeys that are the same few tokens: the model has no more.
BIASES = {f"{token:0{width}}": 0.125 for token in range(250) for width in range(3, 19)}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETIONS, {"prompt": "a", "max_tokens": 1, "logit_bias": BIASES}),
        (COMPLETIONS, {"prompt": [1] * 100_000, "max_tokens": 1}),
        ("/v1/chat/completions", {"messages": MANY, "max_tokens": 1}),
        ("/v1/chat/completions", {"messages": [MESSAGE], "tools": FUNCTIONS, "max_tokens": 1}),
        ("/v1/responses", {"input": MANY, "max_output_tokens": 16}),
        ("/v1/responses", {"input": "a", "tools": FLAT, "max_output_tokens": 16}),
        ("/v1/responses", {"input": "a", "tools": FLAT, "max_output_tokens": 16, "stream": True}),
        ("/v1/messages", {"messages": MANY, "max_tokens": 1}),
        ("/v1/messages", {"messages": [MESSAGE], "tools": ANTHROPICS, "max_tokens": 1}),
        ("/v1/messages/count_tokens", {"messages": [MESSAGE], "tools": ANTHROPICS}),
        ("/tokenize", {"messages": MANY}),
        ("/tokenize", {"prompt": LARGE}),
        ("/detokenize", {"tokens": [1] * 100_000}),
    ],
)
def test_what_a_large_body_is_made_of_and_becomes_is_not_done_on_the_loop(
    served: Served, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    """ParserConfig its fields, the engine's config of them, and answers that repeat them."""
    done: dict[str, set[int]] = {"read": set(), "configured": set(), "written": set()}
    refuse_rest, make_config = Fields.refuse_rest, generating.make_config
    json_text = request_context.json_text

    def read(self: Fields) -> None:
        done["read"].add(threading.get_ident())
        refuse_rest(self)

    def configured(*arguments: Any) -> Any:
        done["configured"].add(threading.get_ident())
        return make_config(*arguments)

    def written(value: Any) -> str:
        text = json_text(value)
        if len(text) > 64 << 10:
            done["written"].add(threading.get_ident())
        return text

    monkeypatch.setattr(Fields, "refuse_rest", read)
    monkeypatch.setattr(generating, "make_config", configured)
    monkeypatch.setattr(request_context, "json_text", written)
    answer = served.post(path, body)
    assert answer.status_code in (200, 400)  # several are too much for the model
    assert done["read"]
    for threads in done.values():
        assert loop_thread(served) not in threads


def loop_thread(served: Served) -> int:
    async def ident() -> int:
        return threading.get_ident()

    loop = served.server.servers[0].get_loop()
    return asyncio.run_coroutine_threadsafe(ident(), loop).result(60)


def with_long(text: str) -> dict[str, dict[str, Any]]:
    """Requests with the text where templates get it, but in no content of a message."""
    hello = {"role": "user", "content": "Hi"}
    function = {"name": "a", "parameters": {"type": "object"}}
    call = {"id": "a", "function": {"name": "a", "arguments": json.dumps({"b": text})}}
    return {
        "tools": {
            "messages": [hello],
            "tools": [{"type": "function", "function": {**function, "description": text}}],
        },
        "names in tools": {
            "messages": [hello],
            "tools": [
                {"type": "function", "function": {**function, "parameters": {text: text[:9]}}}
            ],
        },
        "arguments": {"messages": [hello, {"role": "assistant", "tool_calls": [call]}, hello]},
        "chat_template_kwargs": {"messages": [hello], "chat_template_kwargs": {"a": [text]}},
        "reasoning": {
            "messages": [hello, {"role": "assistant", "content": "", "reasoning_content": text}]
        },
    }


@pytest.mark.parametrize("place", with_long(""))
def test_a_large_text_counts_wherever_a_template_gets_it(
    served: Served, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    render = Engine.render
    begun: list[int] = []
    goes_on = threading.Event()

    def slow_render(self: Engine, *arguments: Any) -> str:
        begun.append(1)
        goes_on.wait(60)
        return render(self, *arguments)

    monkeypatch.setattr(Engine, "render", slow_render)
    body = with_long("a " * (150 << 10))[place]
    clients = [threading.Thread(target=served.post, args=("/tokenize", body)) for _ in range(6)]
    for each in clients:
        each.start()
    try:
        eventually(lambda: len(served.server.service.admission) == 6 and bool(begun))
        # A thread is free for others' texts, and was free for a second large one before.
        for _ in range(3):
            assert served.post("/tokenize", {"prompt": "a"}).json()["count"] == 1
        assert len(begun) == 1
    finally:
        goes_on.set()
        for each in clients:
            each.join()
    assert len(begun) == 6


@pytest.mark.parametrize(("times", "status"), [(1, 200), (2, 503)])
def test_a_killed_template_process_is_not_the_clients_fault(
    served: Served, monkeypatch: pytest.MonkeyPatch, times: int, status: int
) -> None:
    ask = template_process._Child.ask
    killed: list[int] = []

    def ask_killed(child: template_process._Child, *arguments: Any) -> dict[str, Any]:
        if len(killed) < times:
            killed.append(child.pid)
            os.kill(child.pid, signal.SIGKILL)
        return ask(child, *arguments)

    monkeypatch.setattr(template_process._Child, "ask", ask_killed)
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    answer = served.post("/v1/chat/completions", body)
    assert answer.status_code == status, answer.text
    assert len(set(killed)) == times
    if status == 503:
        assert answer.json()["error"]["code"] == "template_failed"
        assert answer.headers["retry-after"]
    assert served.post("/v1/chat/completions", body).status_code == 200
