"""/v1/responses and /v1/messages, asked by the clients that know them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from serving import Served, serving, tiny_settings

from pagewheel.serve.settings import Limits

pytestmark = pytest.mark.usefixtures("nothing_is_left")

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def served(tiny_folder: Path) -> Iterator[Served]:
    limits = Limits(stored_responses=3)
    with serving(tiny_settings(tiny_folder, limits, keys=("first-key", "other-key"))) as one:
        one.http.headers["authorization"] = "Bearer first-key"
        one.client.api_key = "first-key"
        yield one


@pytest.fixture
def claude(served: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=served.url, api_key="first-key", max_retries=0) as client:
        yield client


def respond(served: Served, **fields: Any) -> Any:
    fields = {"model": "tiny", "input": "Hello", "max_output_tokens": 8, **fields}
    return served.client.responses.create(**fields)


def test_a_response_has_text_and_usage(served: Served) -> None:
    answer = respond(served)
    assert answer.output_text
    assert answer.status in ("completed", "incomplete")
    assert answer.usage.output_tokens <= 8
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens


def test_a_streamed_response_is_the_unstreamed_one(served: Served) -> None:
    whole = respond(served, store=False)
    events = list(respond(served, stream=True, store=False))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(each.delta for each in events if each.type == "response.output_text.delta")
    assert text == whole.output_text == events[-1].response.output_text
    assert events[0].type == "response.created"
    assert events[-1].response.usage == whole.usage.model_copy(
        update={"input_tokens_details": events[-1].response.usage.input_tokens_details}
    )


def test_a_response_goes_on_from_the_one_before(served: Served) -> None:
    first = respond(served)
    second = respond(served, input="And?", previous_response_id=first.id)
    said = [*HELLO, {"role": "assistant", "content": first.output_text}]
    same = respond(served, input=[*said, {"role": "user", "content": "And?"}])
    assert second.usage.input_tokens == same.usage.input_tokens
    assert second.output_text == same.output_text


def test_instructions_come_before_and_are_not_remembered(served: Served) -> None:
    first = respond(served, instructions="Be brief")
    plain = respond(served)
    assert first.usage.input_tokens > plain.usage.input_tokens


def test_a_response_is_found_by_its_owner_until_it_is_deleted(served: Served) -> None:
    stored = respond(served)
    assert served.client.responses.retrieve(stored.id).output_text == stored.output_text
    other = {"authorization": "Bearer other-key"}
    assert served.http.get(f"/v1/responses/{stored.id}", headers=other).status_code == 404
    served.client.responses.delete(stored.id)
    with pytest.raises(openai.NotFoundError):
        served.client.responses.retrieve(stored.id)
    kept_out = respond(served, store=False)
    with pytest.raises(openai.NotFoundError):
        respond(served, previous_response_id=kept_out.id)


def test_the_oldest_responses_make_room(served: Served) -> None:
    names = [respond(served, max_output_tokens=1).id for _ in range(4)]
    assert served.http.get(f"/v1/responses/{names[0]}").status_code == 404
    assert served.http.get(f"/v1/responses/{names[3]}").status_code == 200


def test_metadata_comes_back(served: Served) -> None:
    metadata = {"a" * 64: "b" * 512, **{str(number): "é" for number in range(15)}}
    answer = served.post("/v1/responses", {"input": "a", "metadata": metadata}).json()
    assert answer["metadata"] == metadata
    stored = served.http.get(f"/v1/responses/{answer['id']}").json()
    assert stored["metadata"] == metadata


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": 5}, "input"),
        ({"input": [{"type": "item_reference"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, None),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"background": True}, "background"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"n": 2}, "n"),
        ({"metadata": {"a": [[]]}}, "metadata.a"),
        ({"metadata": {"a": "b" * 513}}, "metadata.a"),
        ({"banana": 2}, "banana"),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_a_wrong_field_of_a_response_is_named(
    served: Served, fields: dict[str, Any], param: str | None
) -> None:
    answer = served.post("/v1/responses", {"input": "a", **fields})
    assert answer.status_code == 400
    if param is not None:
        assert answer.json()["error"]["param"] == param


def test_a_message_is_answered_and_counted(claude: anthropic.Anthropic) -> None:
    message = claude.messages.create(model="tiny", max_tokens=8, messages=HELLO, system="Be brief")  # type: ignore[arg-type]
    assert message.content[0].text  # type: ignore[union-attr]
    assert message.stop_reason in ("end_turn", "max_tokens")
    assert 0 < message.usage.output_tokens <= 8
    counted = claude.messages.count_tokens(model="tiny", messages=HELLO, system="Be brief")  # type: ignore[arg-type]
    cached = message.usage.cache_read_input_tokens or 0
    assert counted.input_tokens == message.usage.input_tokens + cached


def test_a_streamed_message_is_the_unstreamed_one(claude: anthropic.Anthropic) -> None:
    whole = claude.messages.create(model="tiny", max_tokens=20, messages=HELLO)  # type: ignore[arg-type]
    with claude.messages.stream(model="tiny", max_tokens=20, messages=HELLO) as stream:  # type: ignore[arg-type]
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text  # type: ignore[union-attr]
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_errors_of_messages_are_in_anthropics_form(
    served: Served, claude: anthropic.Anthropic
) -> None:
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        claude.messages.create(model="tiny", max_tokens=0, messages=HELLO)  # type: ignore[arg-type]
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="other", max_tokens=1, messages=HELLO)  # type: ignore[arg-type]
    answer = served.post("/v1/messages", {"messages": HELLO})
    assert answer.json()["type"] == "error"
    assert answer.json()["error"]["type"] == "invalid_request_error"
    wrong = served.post("/v1/messages", {}, headers={"authorization": "", "x-api-key": "nonsense"})
    assert wrong.status_code == 401
    assert wrong.json()["error"]["type"] == "authentication_error"
