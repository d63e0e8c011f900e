"""Answers of many tokens and likely tokens: made off the loop, and bounded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Served, serving, tiny_settings

from pagewheel.serve.api import openai_choices
from pagewheel.serve.settings import Limits

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "a"}]


@pytest.fixture(scope="module")
def served(tiny_folder: Path) -> Iterator[Served]:
    with serving(tiny_settings(tiny_folder, Limits(answer_entries=8000))) as one:
        yield one


@pytest.mark.parametrize(
    ("path", "body", "form"),
    [
        (COMPLETIONS, {"prompt": "a", "logprobs": 20}, "completion_log_probs"),
        (CHAT, {"messages": MESSAGES, "logprobs": True, "top_logprobs": 20}, "chat_log_probs"),
    ],
)
def test_a_large_answer_is_not_made_on_the_loop(
    served: Served, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any], form: str
) -> None:
    threads: list[str] = []
    make = getattr(openai_choices, form)

    def noted(*arguments: Any) -> Any:
        threads.append(threading.current_thread().name)
        return make(*arguments)

    monkeypatch.setattr(openai_choices, form, noted)
    for tokens in (2, 200):
        answer = served.post(path, {**body, "max_tokens": tokens, "ignore_eos": True})
        assert answer.json()["usage"]["completion_tokens"] == tokens
    of_few, of_many = threads
    assert of_few != of_many


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (COMPLETIONS, {"prompt": "a", "max_tokens": 400, "logprobs": 20}, "logprobs"),
        (COMPLETIONS, {"prompt": ["a"] * 8, "max_tokens": 1001, "n": 1}, "n"),
        (CHAT, {"messages": MESSAGES, "logprobs": True, "top_logprobs": 20}, "top_logprobs"),
        (CHAT, {"messages": MESSAGES, "max_tokens": 1001, "n": 8}, "n"),
    ],
)
def test_an_answer_that_could_be_too_large_is_refused_with_its_field(
    served: Served, path: str, body: dict[str, Any], field: str
) -> None:
    answer = served.post(path, body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field
    assert served.post(path, {**body, "max_tokens": 2}).status_code == 200
