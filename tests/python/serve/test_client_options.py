"""What programs in browsers and careless clients need, and fields of several APIs' clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import HELLO
from convert import tiny_llama
from serving import Served, serving, tiny_settings

import pagewheel
from pagewheel.convert import convert

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ORIGIN = "http://localhost:3000"


@pytest.fixture(scope="module")
def served(tiny_folder: Path) -> Iterator[Served]:
    settings = tiny_settings(tiny_folder, cors_origins=(ORIGIN,), is_lenient=True)
    with serving(settings) as one:
        yield one


@pytest.fixture(scope="module")
def strict(tiny_folder: Path) -> Iterator[Served]:
    with serving(tiny_settings(tiny_folder, scheduler={"speculation": "off"})) as one:
        yield one


def preflight(served: Served, origin: str) -> Any:
    headers = {"origin": origin, "access-control-request-method": "POST"}
    return served.http.options(CHAT, headers=headers)


def test_an_origin_that_was_named_may_ask(served: Served) -> None:
    assert preflight(served, ORIGIN).headers["access-control-allow-origin"] == ORIGIN
    answer = served.post(CHAT, {"messages": HELLO, "max_tokens": 1}, headers={"origin": ORIGIN})
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    body = {"messages": HELLO, "max_tokens": 2, "stream": True}
    with served.http.stream("POST", CHAT, json=body, headers={"origin": ORIGIN}) as stream:
        assert stream.headers["access-control-allow-origin"] == ORIGIN
        assert stream.read().endswith(b"data: [DONE]\n\n")


def test_others_may_not(served: Served, strict: Served) -> None:
    assert preflight(served, "http://elsewhere").status_code == 400
    answer = strict.post(CHAT, {"messages": HELLO, "max_tokens": 1}, headers={"origin": ORIGIN})
    assert "access-control-allow-origin" not in answer.headers
    assert preflight(strict, ORIGIN).status_code == 405


def test_unknown_fields_are_ignored_and_named_where_the_server_is_lenient(served: Served) -> None:
    fields = {"no_such": 1, "a\r\nset-cookie: b": 2, "stream_options": {"other": 1}}
    answer = served.post(CHAT, {"messages": HELLO, "max_tokens": 1, "stream": True, **fields})
    assert answer.status_code == 200
    assert answer.headers["x-ignored-fields"] == ("stream_options.other, no_such, a??set-cookie:?b")
    assert "set-cookie" not in answer.headers
    plain = served.post(CHAT, {"messages": HELLO, "max_tokens": 1})
    assert "x-ignored-fields" not in plain.headers


def test_wrong_values_are_refused_all_the_same(served: Served, strict: Served) -> None:
    assert served.post(CHAT, {"messages": HELLO, "max_tokens": "a"}).status_code == 400
    answer = strict.post(CHAT, {"messages": HELLO, "no_such": 1})
    assert answer.json()["error"]["code"] == "unknown_parameter"


@pytest.mark.parametrize(
    "fields",
    [
        {"store": True},
        {"verbosity": "low"},
        {"prediction": {"type": "content", "content": "a"}},
        {"thinking": {"type": "disabled"}},
        {"chat_id": "a"},
        {"cache_prompt": True},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_fields_of_known_clients_are_taken_by_name(strict: Served, fields: Any) -> None:
    body = {"messages": HELLO, "max_tokens": 4, "temperature": 0}
    plain = strict.post(CHAT, body).json()["choices"]
    assert strict.post(CHAT, {**body, **fields}).json()["choices"] == plain
    name = next(iter(fields))
    assert strict.post(CHAT, {**body, name: 3}).json()["error"]["param"] == name


def test_drafts_are_told_in_the_usage_and_in_metrics(strict: Served) -> None:
    body = {"messages": HELLO, "max_tokens": 60, "temperature": 0, "ignore_eos": True}
    plain = strict.post(CHAT, body).json()
    details = plain["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] == details["rejected_prediction_tokens"] == 0
    text = [{"type": "text", "text": plain["choices"][0]["message"]["content"] or "a"}]
    for fields in (
        {"num_assistant_tokens": 4},
        {"num_assistant_tokens": 4, "prediction": {"type": "content", "content": text}},
    ):
        drafted = strict.post(CHAT, {**body, **fields}).json()
        assert drafted["choices"] == plain["choices"]
        details = drafted["usage"]["completion_tokens_details"]
        assert details["accepted_prediction_tokens"] + details["rejected_prediction_tokens"] > 0
    assert strict.metric("pagewheel:spec_decode_num_draft_tokens_total") > 0
    wrong = {"type": "text", "content": "a"}
    assert strict.post(CHAT, {**body, "prediction": wrong}).status_code == 400


def test_the_likeliest_of_several_completions_is_kept(strict: Served) -> None:
    body = {"prompt": "Hello", "max_tokens": 6, "temperature": 1.0, "seed": 3, "logprobs": 0}
    every = strict.post(COMPLETIONS, {**body, "n": 4}).json()["choices"]
    means = {each["text"]: np.mean(each["logprobs"]["token_logprobs"]) for each in every}
    best = sorted(means, key=lambda text: -means[text])
    for n in (1, 2):
        made = strict.post(COMPLETIONS, {**body, "best_of": 4, "n": n}).json()
        assert [each["text"] for each in made["choices"]] == best[:n]
        assert [each["index"] for each in made["choices"]] == list(range(n))
    without = {key: value for key, value in body.items() if key != "logprobs"}
    (choice,) = strict.post(COMPLETIONS, {**without, "best_of": 4}).json()["choices"]
    assert (choice["text"], choice["logprobs"]) == (best[0], None)


@pytest.mark.parametrize("fields", [{"best_of": 2, "n": 3}, {"best_of": 2, "stream": True}])
def test_a_best_of_that_cannot_be_is_refused(strict: Served, fields: Any) -> None:
    answer = strict.post(COMPLETIONS, {"prompt": "a", "max_tokens": 1, **fields})
    assert answer.json()["error"]["param"] == "best_of"


def test_tokens_are_told_as_texts(strict: Served) -> None:
    answer = strict.post("/tokenize", {"prompt": "Hello you", "return_token_strs": True}).json()
    assert len(answer["token_strs"]) == answer["count"]
    assert "".join(answer["token_strs"]).endswith("Hello you")


def test_what_is_served_is_described(strict: Served) -> None:
    assert strict.http.get("/version").json() == {"version": pagewheel.__version__}
    assert {CHAT, "/api/chat"} <= set(strict.http.get("/openapi.json").json()["paths"])


def test_a_model_with_tokens_for_it_writes_between_two_texts(tmp_path: Path) -> None:
    marks = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
    tokens, types, _ = tiny_llama.vocabulary()

    def grow(tensors: dict[str, np.ndarray[Any, Any]]) -> None:
        embedding = tensors["token_embd.weight"]
        tensors["token_embd.weight"] = np.concatenate([embedding, embedding[-3:] * 0.5])

    metadata = {
        "tokenizer.ggml.tokens": tokens + marks,
        "tokenizer.ggml.token_type": types + [tiny_llama.CONTROL] * 3,
    }
    source = tiny_llama.write(tmp_path / "a.gguf", metadata=metadata, edit=grow)
    with serving(tiny_settings(convert(source, tmp_path / "ir", progress=False))) as one:
        body = {"max_tokens": 5, "temperature": 0, "return_token_ids": True}
        made = one.post(COMPLETIONS, {**body, "prompt": "def f(", "suffix": "return"}).json()
        count = len(tokens)
        first, second = (one.engine.encode(each, False) for each in ("def f(", "return"))
        asked = [count, *first, count + 1, *second, count + 2]
        assert made["choices"][0]["prompt_token_ids"] == asked
        same = one.post(COMPLETIONS, {**body, "prompt": asked}).json()
        assert made["choices"][0]["text"] == same["choices"][0]["text"]
        generate = {"model": "tiny", "prompt": "def f(", "suffix": "return", "stream": False}
        options = {"temperature": 0, "num_predict": 5}
        answer = one.post("/api/generate", {**generate, "options": options})
        assert answer.json()["response"] == made["choices"][0]["text"]


def test_a_model_without_them_says_so(strict: Served) -> None:
    answer = strict.post(COMPLETIONS, {"prompt": "a", "suffix": "b"})
    assert answer.json()["error"]["param"] == "suffix"
