"""Fields of Anthropic's and vLLM's clients: done as they mean it, or refused by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from asking import HELLO, MESSAGE_TOOLS, saying
from serving import Served, serving, tiny_settings
from waiting import eventually

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
BOTH = {CHAT: {"messages": HELLO}, COMPLETIONS: {"prompt": "Hello"}}


@pytest.fixture(scope="module")
def served(calling_folder: Path) -> Iterator[Served]:
    with serving(tiny_settings(calling_folder)) as one:
        yield one


@pytest.fixture
def claude(served: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(autouse=True)
def _nothing_is_left(served: Served) -> Iterator[None]:
    yield
    eventually(served.is_at_rest)


def message(claude: anthropic.Anthropic, **fields: Any) -> Any:
    fields = {"model": "tiny", "max_tokens": 60, "messages": HELLO, **fields}
    return claude.messages.create(**fields)


def events_of(answer: Any) -> list[dict[str, Any]]:
    data = [line[6:] for line in answer.text.split("\n") if line.startswith("data: {")]
    return [json.loads(each) for each in data]


def test_a_message_names_its_stop_sequence(claude: anthropic.Anthropic) -> None:
    demand = saying("one, two, three")
    found = message(claude, stop_sequences=["three", ", t"], **demand)
    assert (found.stop_reason, found.stop_sequence) == ("stop_sequence", ", t")
    assert found.content[0].text == "one"
    found = message(claude, stop_sequences=["four"], **demand)
    assert (found.stop_reason, found.stop_sequence) == ("end_turn", None)


def test_a_streamed_message_names_its_stop_sequence(claude: anthropic.Anthropic) -> None:
    demand = saying("one, two, three")
    with claude.messages.stream(
        model="tiny", max_tokens=60, messages=HELLO, stop_sequences=["two"], **demand
    ) as stream:
        found = stream.get_final_message()
    assert (found.stop_reason, found.stop_sequence) == ("stop_sequence", "two")


@pytest.mark.parametrize("path", BOTH)
def test_stop_reason_is_the_requests_text(served: Served, path: str) -> None:
    demand: dict[str, Any] = saying("one, two, three")["extra_body"]
    body = {**BOTH[path], **demand, "max_tokens": 60, "stop": ["two", "three"], "n": 2}
    for choice in served.post(path, body).json()["choices"]:
        assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "two")
    events = events_of(served.post(path, {**body, "stream": True}))
    ends = [choice for each in events for choice in each["choices"] if choice["finish_reason"]]
    assert [each["stop_reason"] for each in ends] == ["two", "two"]
    plain = served.post(path, {**body, "stop": ["four"]}).json()["choices"][0]
    assert "stop_reason" not in plain


def test_stop_reason_is_the_requests_token(served: Served) -> None:
    body = {"prompt": "Hello", "max_tokens": 8, "ignore_eos": True, "return_token_ids": True}
    tokens = served.post(COMPLETIONS, body).json()["choices"][0]["token_ids"]
    body = {**body, "ignore_eos": False, "stop_token_ids": [tokens[2]]}
    choice = served.post(COMPLETIONS, body).json()["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", tokens[2])


@pytest.mark.parametrize(
    ("stops", "found"),
    [
        (["ee", "hree", "three"], "three"),  # complete with one token: the first, there the longest
        (["two three", "two"], "two"),  # complete before the other
        (["none"], None),
    ],
)
def test_the_engines_rule_says_which_stop_string_it_was(
    served: Served, stops: list[str], found: str | None
) -> None:
    body = {"messages": HELLO, "structured_outputs": {"choice": ["one two three"]}, "stop": stops}
    choice = served.post(CHAT, body).json()["choices"][0]
    assert choice.get("stop_reason") == found
    text = "one two three"
    expected = text if found is None else text[: text.index(found)]
    assert choice["message"]["content"] == expected


def test_the_last_message_of_the_assistant_is_continued(
    served: Served, claude: anthropic.Anthropic
) -> None:
    said = [*HELLO, {"role": "assistant", "content": "Once upon"}]
    rendered = served.engine.render_open(said, None, {})
    assert rendered.endswith("Once upon")
    prompt = served.post("/tokenize", {"prompt": rendered, "add_special_tokens": False}).json()
    found = message(claude, messages=said, max_tokens=8)
    expected = served.post(COMPLETIONS, {"prompt": prompt["tokens"], "max_tokens": 8}).json()
    assert found.content[0].text == expected["choices"][0]["text"]
    assert claude.messages.count_tokens(model="tiny", messages=said).input_tokens == prompt["count"]
    chat = {"messages": said, "max_tokens": 8, "continue_final_message": True}
    answer = served.post(CHAT, {**chat, "add_generation_prompt": False}).json()
    assert answer["choices"][0]["message"]["content"] == found.content[0].text
    assert answer["usage"]["prompt_tokens"] == prompt["count"]


@pytest.mark.parametrize(
    "last",
    [
        {"role": "assistant", "content": [{"type": "text", "text": ""}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}],
        },
    ],
)
def test_a_last_message_that_cannot_be_continued_is_refused(
    served: Served, last: dict[str, Any]
) -> None:
    body = {"max_tokens": 8, "messages": [*HELLO, last]}
    answer = served.post("/v1/messages", body)
    assert answer.status_code == 400
    assert "continue" in answer.json()["error"]["message"]


def test_a_continued_message_has_no_shape(served: Served) -> None:
    said = [*HELLO, {"role": "assistant", "content": "{"}]
    config = {"format": {"type": "json_schema", "schema": {"type": "object"}}}
    body = {"max_tokens": 8, "messages": said, "output_config": config}
    assert served.post("/v1/messages", body).status_code == 400


def test_effort_and_hints_of_messages_are_taken(
    served: Served, claude: anthropic.Anthropic
) -> None:
    found = message(
        claude,
        max_tokens=8,
        cache_control={"type": "ephemeral"},
        output_config={"effort": "low"},
        thinking={"type": "enabled", "budget_tokens": 1024, "display": "omitted"},
    )
    assert found._request_id
    answer = served.post("/v1/messages", {}, headers={"x-request-id": "mine"})
    assert answer.headers["request-id"] == answer.headers["x-request-id"] == "mine"


def test_omitted_thinking_is_a_block_without_text(claude: anthropic.Anthropic) -> None:
    demand = {"tools": MESSAGE_TOOLS, **saying("<think>Which?</think>This one.")}
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    shown = message(claude, thinking=thinking, **demand)
    hidden = message(claude, thinking={**thinking, "display": "omitted"}, **demand)
    for found in (shown, hidden):
        assert [each.type for each in found.content] == ["thinking", "text"]
    assert shown.content[0].thinking == "Which?"
    assert not hidden.content[0].thinking
    assert shown.content[-1].text == hidden.content[-1].text


@pytest.mark.parametrize("path", BOTH)
def test_top_k_of_minus_one_is_off(served: Served, path: str) -> None:
    body = {**BOTH[path], "max_tokens": 8, "temperature": 1.0, "seed": 5}
    answers = [served.post(path, {**body, "top_k": k}).json()["choices"] for k in (-1, 0)]
    assert answers[0] == answers[1]
    assert served.post(path, {**body, "top_k": -2}).status_code == 400


@pytest.mark.parametrize("path", BOTH)
def test_special_tokens_are_skipped_and_nothing_else(served: Served, path: str) -> None:
    body = {**BOTH[path], "max_tokens": 4}
    assert served.post(path, {**body, "skip_special_tokens": True}).status_code == 200
    refused = served.post(path, {**body, "skip_special_tokens": False})
    assert refused.json()["error"]["param"] == "skip_special_tokens"


@pytest.mark.parametrize("path", BOTH)
def test_each_event_may_have_the_usage(served: Served, path: str) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {**BOTH[path], "max_tokens": 6, "ignore_eos": True, "stream": True}
    events = events_of(served.post(path, {**body, "stream_options": options}))
    counts = [each["usage"]["completion_tokens"] for each in events]
    assert counts == sorted(counts)
    assert counts[-1] == 6
    assert events[-1]["choices"] == []


@pytest.mark.parametrize("path", BOTH)
def test_token_ids_are_those_of_prompt_and_answer(served: Served, path: str) -> None:
    body = {**BOTH[path], "max_tokens": 6, "ignore_eos": True, "return_token_ids": True}
    whole = served.post(path, body).json()
    choice = whole["choices"][0]
    prompt = choice.get("prompt_token_ids") or whole["prompt_token_ids"]
    assert len(prompt) == whole["usage"]["prompt_tokens"]
    assert len(choice["token_ids"]) == 6
    events = events_of(served.post(path, {**body, "stream": True}))
    choices = [one for each in events for one in each["choices"]]
    streamed = [token for each in choices for token in each.get("token_ids", [])]
    assert streamed == choice["token_ids"]
    first = next(e for e in events if e["choices"])
    assert (first["choices"][0].get("prompt_token_ids") or first["prompt_token_ids"]) == prompt


@pytest.mark.parametrize("path", BOTH)
def test_a_prompt_is_cut_at_its_begin(served: Served, path: str) -> None:
    body = {**BOTH[path], "max_tokens": 2, "return_token_ids": True}

    def prompt(**fields: Any) -> list[int]:
        whole = served.post(path, {**body, **fields}).json()
        found = whole["choices"][0].get("prompt_token_ids") or whole["prompt_token_ids"]
        return list(found)

    every = prompt()
    assert prompt(truncate_prompt_tokens=2) == every[-2:]
    assert prompt(truncate_prompt_tokens=-1) == every
    wrong = served.post(path, {**body, "truncate_prompt_tokens": 0})
    assert wrong.json()["error"]["param"] == "truncate_prompt_tokens"


def test_the_generation_prompt_may_be_left_out(served: Served) -> None:
    counts = [
        served.post("/tokenize", {"messages": HELLO, **fields}).json()["count"]
        for fields in ({}, {"add_generation_prompt": False})
    ]
    assert counts[1] < counts[0]
    wrong = {"messages": HELLO, "continue_final_message": True}
    assert served.post(CHAT, wrong).json()["error"]["param"] == "continue_final_message"
