"""Conversations that are longer than the model's context."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from convert import tiny_llama
from serving import Served, serving, tiny_settings

from pagewheel.context_overflow import fitting_eviction, without_oldest_turns
from pagewheel.convert import convert
from pagewheel.model_info import read_info
from pagewheel.serve_options import read_arguments

CONTEXT = 512
CHAT = "/v1/chat/completions"
EVICT = {"context_overflow": "evict"}


@pytest.fixture(scope="module")
def short_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("short")
    source = tiny_llama.write(folder / "a.gguf", metadata={"llama.context_length": CONTEXT})
    return convert(source, folder / "converted", progress=False)


@pytest.fixture(scope="module")
def served(short_folder: Path) -> Iterator[Served]:
    with serving(tiny_settings(short_folder)) as one:
        yield one


@pytest.fixture(scope="module")
def evicting(short_folder: Path) -> Iterator[Served]:
    """Started with --context-overflow evict."""
    with serving(tiny_settings(short_folder, context_overflow="evict")) as one:
        yield one


@pytest.fixture(scope="module")
def cutting(short_folder: Path) -> Iterator[Served]:
    """With keys that cannot be rotated."""
    settings = tiny_settings(short_folder)
    openvinos = {"attention_backend": "openvino", "KV_CACHE_PRECISION": "u8"}
    models = tuple(replace(each, properties=openvinos) for each in settings.models)
    with serving(replace(settings, models=models)) as one:
        yield one


def conversation(turns: int, words: int = 10) -> list[dict[str, str]]:
    said = [{"role": "system", "content": "SYSTEM"}]
    for number in range(turns):
        said.append({"role": "user", "content": f"Question {number}? " + "why " * words})
        said.append({"role": "assistant", "content": f"Answer {number}."})
    return [*said, {"role": "user", "content": "And the last?"}]


def ask(served: Served, turns: int = 30, path: str = CHAT, **fields: Any) -> Any:
    return served.post(path, {"messages": conversation(turns), "max_tokens": 8, **fields})


def prompt_of(served: Served, answer: Any) -> str:
    return served.engine.decode(answer.json()["prompt_token_ids"])


def test_by_default_it_is_an_error(served: Served) -> None:
    answer = ask(served)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("server", "overflow"), [("served", "truncate"), ("cutting", "truncate"), ("cutting", "evict")]
)
def test_oldest_turns_are_left_out_where_that_is_asked_for(
    request: pytest.FixtureRequest, server: str, overflow: str
) -> None:
    """By evict too, where keys cannot be rotated."""
    served: Served = request.getfixturevalue(server)
    answer = ask(served, context_overflow=overflow, return_token_ids=True)
    assert answer.status_code == 200
    assert answer.headers["x-context-overflow"].startswith("truncated; messages=")
    prompt = prompt_of(served, answer)
    assert "SYSTEM" in prompt and "And the last?" in prompt and "Question 29?" in prompt
    assert "Question 0?" not in prompt
    first = prompt.index("Question ")  # a whole turn begins after the system message
    assert prompt[first - len("user\n") : first] == "user\n"


def test_a_conversation_that_fits_is_left_alone(served: Served) -> None:
    answer = ask(served, 2, context_overflow="truncate", return_token_ids=True)
    assert "x-context-overflow" not in answer.headers
    assert "Question 0?" in prompt_of(served, answer)


def test_a_cut_stays_for_several_turns_so_that_prefixes_fit(served: Served) -> None:
    firsts = []
    for turns in range(20, 28):
        messages = conversation(turns, 0)
        fields = {"context_overflow": "truncate", "return_token_ids": True}
        prompt = prompt_of(served, ask(served, messages=messages, **fields))
        firsts.append(prompt[prompt.index("Question ") :][:12])
    assert 1 < len(set(firsts)) <= 5


def test_a_last_message_that_is_too_long_alone_is_an_error(served: Served) -> None:
    messages = [{"role": "user", "content": "why " * 400}]
    answer = ask(served, messages=messages, context_overflow="truncate")
    assert answer.json()["error"]["code"] == "context_length_exceeded"


def test_responses_truncate_as_openai_says(served: Served) -> None:
    items = [each for each in conversation(30) if each["role"] != "system"]
    body = {"input": items, "max_output_tokens": 8}
    assert served.post("/v1/responses", body).status_code == 400
    answer = served.post("/v1/responses", {**body, "truncation": "auto"})
    assert answer.status_code == 200
    assert answer.json()["truncation"] == "auto"


def test_other_apis_do_as_well(served: Served) -> None:
    messages = conversation(30)[1:]
    answer = ask(served, path="/v1/messages", messages=messages, context_overflow="truncate")
    assert answer.status_code == 200
    ollama = {"model": "tiny", "messages": messages, "options": {"num_predict": 4}}
    assert served.post("/api/chat", {**ollama, "stream": False}).status_code == 200


def test_a_value_that_there_is_not_is_refused(served: Served) -> None:
    answer = ask(served, context_overflow="forget")
    assert answer.json()["error"]["param"] == "context_overflow"


@pytest.mark.parametrize(("server", "fields"), [("evicting", {}), ("served", EVICT)])
def test_a_conversation_is_forgotten_and_goes_on(
    request: pytest.FixtureRequest, server: str, fields: Any
) -> None:
    """By default or where a request asks for it."""
    served: Served = request.getfixturevalue(server)
    answer = ask(served, max_tokens=600, ignore_eos=True, return_token_ids=True, **fields)
    assert answer.status_code == 200
    assert answer.headers["x-context-overflow"] == "evicted"
    assert "Question 0?" in prompt_of(served, answer)  # it was read, and then forgotten
    usage = answer.json()["usage"]
    assert usage["prompt_tokens"] > CONTEXT
    assert usage["completion_tokens"] == 600
    assert served.engine.statistics().num_used_blocks == 0


def test_a_conversation_that_fills_the_context_keeps_all_of_its_cache(served: Served) -> None:
    """Unless it asks for eviction, whose budget is smaller than the context."""
    fields = {"max_tokens": 400, "ignore_eos": True}
    kept, evicted = (ask(served, 4, **fields, **each) for each in ({}, EVICT))
    assert kept.status_code == evicted.status_code == 200
    assert served.engine.statistics().num_evicted_tokens > 0
    before = served.engine.statistics().num_evicted_tokens
    again = ask(served, 4, **fields)
    assert served.engine.statistics().num_evicted_tokens == before
    assert again.json()["choices"] == kept.json()["choices"]


def test_no_request_turns_a_servers_eviction_off(served: Served) -> None:
    answer = ask(served, 2, cache_eviction=False)
    assert answer.json()["error"]["param"] == "cache_eviction"


def test_an_evicting_server_answers_short_conversations_as_without(
    served: Served, evicting: Served
) -> None:
    answers = [ask(each, 2).json()["choices"][0]["message"] for each in (served, evicting)]
    assert answers[0] == answers[1]


def test_a_completion_outgrows_an_evicting_servers_context(evicting: Served) -> None:
    body = {"prompt": "why " * 400, "max_tokens": 4, "ignore_eos": True}
    assert evicting.post("/v1/completions", body).status_code == 200
    answer = evicting.post("/v1/completions", {**body, "context_overflow": "error"})
    assert answer.json()["error"]["code"] == "context_length_exceeded"


def test_an_eviction_within_prompts_is_the_servers_default(short_folder: Path) -> None:
    sizes = "start=32,recent=32,max=128,rotate"
    for eviction, expected in ((f"{sizes},prefill", "evict"), (sizes, "error")):
        arguments = [str(short_folder), "--eviction", eviction]
        assert read_arguments(arguments)[0].context_overflow == expected
        arguments += ["--context-overflow", "truncate"]
        assert read_arguments(arguments)[0].context_overflow == "truncate"


@pytest.mark.parametrize("origin", ["localhost:3000", "http://a/b", "ftp://a"])
def test_a_wrong_origin_is_refused_at_start(short_folder: Path, origin: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected e"):
        read_arguments([str(short_folder), "--cors-origin", origin])


def test_a_wrong_overflow_is_refused_at_start(short_folder: Path) -> None:
    with pytest.raises(typer.BadParameter, match="allowed: error, evict, truncate"):
        read_arguments([str(short_folder), "--context-overflow", "forget"])


def test_a_request_may_still_want_an_error(evicting: Served) -> None:
    answer = ask(evicting, context_overflow="error")
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    answer = ask(evicting, 2, context_overflow="error", max_tokens=4000, ignore_eos=True)
    usage = answer.json()["usage"]
    assert usage["prompt_tokens"] + usage["completion_tokens"] == CONTEXT


def test_a_chat_with_a_server_leaves_old_turns_out(served: Served) -> None:
    questions = "".join(f"Question {number}? {'why ' * 10}\n" for number in range(20))
    command = [sys.executable, "-m", "pagewheel", "chat", "--server", served.url]
    chat = subprocess.run(
        [*command, "--max-new-tokens", "8"],
        input=questions,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert chat.returncode == 0
    assert chat.stderr.count("the model forgets older parts") == 1


def test_the_budget_fits_context_and_blocks(short_folder: Path) -> None:
    sizes = fitting_eviction(read_info(short_folder))
    assert sizes["max_cache_size"] < CONTEXT
    assert all(sizes[name] % 32 == 0 for name in ("max_cache_size", "recent_size", "start_size"))


def test_whole_turns_are_left_out() -> None:
    messages = [
        {"role": "system", "content": "s"},
        *({"role": role, "content": "x" * 10} for role in ("user", "assistant") * 5),
        {"role": "user", "content": "last"},
    ]

    def left(too_many: int, room: int = 80) -> int:
        sizes = [len(each["content"]) for each in messages]
        return len(without_oldest_turns(messages, sizes, too_many, room))

    assert left(1) == left(20) == 10  # a turn of 20
    assert left(21) == left(40) == 8
    assert left(1000) == 2
    assert without_oldest_turns(messages[-1:], [4], 5, 80) == messages[-1:]
