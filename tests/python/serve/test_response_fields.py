"""/v1/responses: what OpenAI's clients ask for beside the text, and errors in streams."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from asking import RESPONSE_TOOLS, saying
from serving import Served, serving, tiny_settings
from waiting import eventually

LOG_PROBS: Any = "message.output_text.logprobs"


@pytest.fixture(scope="module")
def served(calling_folder: Path) -> Iterator[Served]:
    with serving(tiny_settings(calling_folder)) as one:
        yield one


@pytest.fixture(autouse=True)
def _nothing_is_left(served: Served) -> Iterator[None]:
    yield
    eventually(served.is_at_rest)


def respond(served: Served, **fields: Any) -> Any:
    fields = {"model": "tiny", "input": "Hello", "max_output_tokens": 8, **fields}
    return served.client.responses.create(**fields)


def test_a_response_repeats_what_was_asked(served: Served) -> None:
    found = respond(
        served,
        reasoning={"effort": "low", "summary": "auto"},
        include=["reasoning.encrypted_content"],
        max_tool_calls=3,
        user="someone",
    )
    assert (found.reasoning.effort, found.reasoning.summary) == ("low", "auto")
    assert (found.background, found.user, found.max_tool_calls) == (False, "someone", 3)
    assert found.top_logprobs == 0
    assert served.client.responses.retrieve(found.id).user == "someone"


def test_what_cannot_be_included_is_named(served: Served) -> None:
    with pytest.raises(openai.BadRequestError) as found:
        respond(served, include=["file_search_call.results"])
    assert found.value.param == "include[0]"


def test_stream_options_need_a_stream(served: Served) -> None:
    options = {"include_obfuscation": False}
    assert list(respond(served, stream=True, stream_options=options))
    with pytest.raises(openai.BadRequestError):
        respond(served, stream_options=options)


def text_of(log_probs: list[Any]) -> str:
    return "".join(each.token for each in log_probs)


def test_log_probabilities_are_those_of_the_text(served: Served) -> None:
    demand = saying("one, two, three")
    fields: dict[str, Any] = {"include": [LOG_PROBS], "top_logprobs": 3, "max_output_tokens": 60}
    whole = respond(served, **fields, **demand)
    (part,) = whole.output[-1].content
    assert text_of(part.logprobs) == part.text == "one, two, three"
    assert all(each.logprob <= 0 and 1 <= len(each.top_logprobs) <= 4 for each in part.logprobs)
    events = list(respond(served, stream=True, **fields, **demand))
    deltas = [each for each in events if each.type == "response.output_text.delta"]
    assert text_of([one for each in deltas for one in each.logprobs]) == part.text
    (done,) = [each for each in events if each.type == "response.output_text.done"]
    assert text_of(done.logprobs) == part.text
    assert events[-1].response.output[-1].content[0].logprobs == part.logprobs


def test_log_probabilities_of_thoughts_are_not_the_answers(served: Served) -> None:
    demand = saying("<think>Which place?</think>This one.")
    fields: dict[str, Any] = {"tools": RESPONSE_TOOLS, "max_output_tokens": 60}
    found = respond(served, include=[LOG_PROBS], **fields, **demand)
    thought, said = found.output
    assert thought.content[0].text == "Which place?"
    part = said.content[0]
    assert part.text == "This one."
    # The token that ends the thought may have the first characters of the answer.
    assert text_of(part.logprobs).endswith(part.text)
    assert len(text_of(part.logprobs)) <= len(part.text) + len("</think>")


def test_an_error_in_a_stream_has_the_apis_form(smollm2_folder: Path) -> None:
    body = {"input": "Hello", "stream": True, "max_output_tokens": 3900, "ignore_eos": True}
    with (
        serving(tiny_settings(smollm2_folder)) as served,
        served.http.stream("POST", "/v1/responses", json=body) as answer,
    ):
        lines = answer.iter_lines()
        while not next(lines).startswith("event: response.output_text.delta"):
            pass
        loop = served.server.servers[0].get_loop()
        loop.call_soon_threadsafe(served.server.service.admission.stop_all)
        events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    error, failed = events[-2:]
    assert (error["type"], error["code"]) == ("error", "shutting_down")
    assert failed["type"] == "response.failed"
    assert failed["response"]["status"] == "failed"
    assert "shutting down" in failed["response"]["error"]["message"]
    numbers = [each["sequence_number"] for each in events]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
