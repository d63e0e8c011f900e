"""A stream begins with its first token: what goes wrong before has a status of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from asking import HELLO
from serving import Served, serving, tiny_settings
from waiting import eventually

STREAMS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/completions": {"prompt": "Hello"},
    "/v1/responses": {"input": "Hello"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 8},
}


@pytest.fixture(scope="module")
def served(tiny_folder: Path) -> Iterator[Served]:
    with serving(tiny_settings(tiny_folder)) as one:
        yield one


@pytest.mark.parametrize("path", STREAMS)
def test_a_deadline_in_the_queue_is_the_streams_status(served: Served, path: str) -> None:
    body = {**STREAMS[path], "stream": True, "timeout": 1e-9}
    answer = served.post(path, body)
    assert answer.status_code == 408
    assert "deadline" in answer.json()["error"]["message"]
    eventually(served.is_at_rest)


def test_of_several_choices_the_deadline_is_one_error(served: Served) -> None:
    body = {"prompt": ["one", "two"], "n": 2, "stream": True, "timeout": 1e-9}
    assert served.post("/v1/completions", body).status_code == 408


def test_a_ban_that_leaves_no_token_is_the_streams_status(served: Served) -> None:
    every = list(range(len(served.engine.token_bytes)))
    body = {"messages": HELLO, "stream": True, "suppress_tokens": every}
    answer = served.post("/v1/chat/completions", body)
    assert answer.status_code == 400, answer.text


def test_official_clients_raise_the_status(served: Served) -> None:
    with pytest.raises(openai.APIStatusError) as found:
        served.client.chat.completions.create(
            model="tiny", messages=HELLO, stream=True, extra_body={"timeout": 1e-9}
        )
    assert found.value.status_code == 408
    with (
        anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0) as claude,
        pytest.raises(anthropic.APIStatusError) as told,
    ):
        claude.messages.create(
            model="tiny", max_tokens=8, messages=HELLO, stream=True, extra_body={"timeout": 1e-9}
        )
    assert told.value.status_code == 408
