"""OpenAI's own client against a server: what it sends is understood, and what it gets is right."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from serving import Served

pytestmark = pytest.mark.usefixtures("nothing_is_left")

HELLO = [{"role": "user", "content": "Hello there"}]
PROPERTIES = {"batch_invariant": True}  # texts are compared whoever shares a step or a prefix


def chat(served: Served, **fields: Any) -> Any:
    fields = {"model": "tiny", "messages": HELLO, "max_tokens": 12, **fields}
    return served.client.chat.completions.create(**fields)


def complete(served: Served, prompt: Any = "the other", **fields: Any) -> Any:
    fields = {"model": "tiny", "prompt": prompt, "max_tokens": 12, **fields}
    return served.client.completions.create(**fields)


def joined(stream: Any) -> tuple[dict[int, str], dict[int, str], Any]:
    """Texts and finish reasons by choice, and the usage, of chat's stream or completions'."""
    texts: dict[int, str] = {}
    reasons: dict[int, str] = {}
    usage = None
    for event in stream:
        usage = event.usage or usage
        for choice in event.choices:
            text = choice.delta.content if hasattr(choice, "delta") else choice.text
            texts[choice.index] = texts.get(choice.index, "") + (text or "")
            if choice.finish_reason:
                assert choice.index not in reasons
                reasons[choice.index] = choice.finish_reason
    return texts, reasons, usage


def test_a_chat_is_answered_with_its_usage(served: Served) -> None:
    answer = chat(served)
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason in ("stop", "length")
    assert answer.object == "chat.completion"
    assert answer.model == "tiny"
    assert 0 < answer.usage.completion_tokens <= 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


STREAMED: list[dict[str, Any]] = [
    {},
    {"max_tokens": 1},
    {"max_tokens": 200},
    {"seed": 3, "temperature": 1.0},
    {"seed": 3, "temperature": 1.0, "n": 3},
    {"temperature": 0, "n": 2},
    {"seed": 5, "temperature": 2.0, "top_p": 0.9, "max_tokens": 100},
    {"seed": 5, "presence_penalty": 1.5, "frequency_penalty": -0.5},
    {"stop": ["e"], "max_tokens": 100, "seed": 1, "temperature": 1.5},
    {"extra_body": {"top_k": 5, "min_p": 0.1, "rng_seed": 2}},
    {"extra_body": {"ignore_eos": True, "repetition_penalty": 1.3, "min_new_tokens": 5}},
    {"extra_body": {"num_beams": 3}},
    {"extra_body": {"num_beams": 4}, "n": 2},
    {"logprobs": True},
]


@pytest.mark.parametrize("fields", STREAMED, ids=json.dumps)
def test_the_stream_of_a_chat_joined_is_the_unstreamed_answer(
    served: Served, fields: dict[str, Any]
) -> None:
    whole = chat(served, **fields)
    texts, reasons, usage = joined(
        chat(served, **fields, stream=True, stream_options={"include_usage": True})
    )
    assert texts == {each.index: each.message.content for each in whole.choices}
    assert reasons == {each.index: each.finish_reason for each in whole.choices}
    assert usage.completion_tokens == whole.usage.completion_tokens


@pytest.mark.parametrize("prompt", ["the other", [20, 30, 40], ["a", "the b"], [[20, 30], [40]]])
@pytest.mark.parametrize("fields", [{}, {"n": 2, "seed": 1, "temperature": 1.0}, {"echo": True}])
def test_the_stream_of_a_completion_joined_is_the_unstreamed_answer(
    served: Served, prompt: Any, fields: dict[str, Any]
) -> None:
    whole = complete(served, prompt, **fields)
    texts, reasons, usage = joined(
        complete(served, prompt, **fields, stream=True, stream_options={"include_usage": True})
    )
    assert texts == {each.index: each.text for each in whole.choices}
    assert reasons == {each.index: each.finish_reason for each in whole.choices}
    assert usage.completion_tokens == whole.usage.completion_tokens
    prompts = len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], int) else 1
    assert len(whole.choices) == prompts * fields.get("n", 1)


def test_a_stream_without_the_option_has_no_usage(served: Served) -> None:
    assert joined(chat(served, stream=True))[2] is None


def test_the_same_seed_gives_the_same_text_and_another_another(served: Served) -> None:
    texts = [
        chat(served, seed=seed, temperature=1.5, max_tokens=30).choices[0].message.content
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_temperature_zero_is_greedy(served: Served) -> None:
    answers = {
        chat(served, temperature=0, top_p=0.5, max_tokens=20).choices[0].message.content
        for _ in range(3)
    }
    assert len(answers) == 1


def test_samples_of_one_prompt_differ(served: Served) -> None:
    answer = chat(served, n=4, temperature=1.5, seed=1, max_tokens=20)
    assert [each.index for each in answer.choices] == [0, 1, 2, 3]
    assert len({each.message.content for each in answer.choices}) > 1


def test_a_stop_text_is_not_in_the_answer(served: Served) -> None:
    text = complete(served, max_tokens=60, extra_body={"ignore_eos": True}).choices[0].text
    stop = text[5:7]
    answer = complete(served, max_tokens=60, stop=stop, extra_body={"ignore_eos": True}).choices[0]
    assert answer.finish_reason == "stop"
    assert answer.text == text[: text.index(stop)]


def test_max_tokens_ends_with_length(served: Served) -> None:
    answer = complete(served, max_tokens=7, extra_body={"ignore_eos": True})
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 7


def test_the_default_of_completions_is_sixteen_tokens(served: Served) -> None:
    body = {"prompt": "a", "ignore_eos": True}
    assert served.post("/v1/completions", body).json()["usage"]["completion_tokens"] == 16


def test_max_length_is_of_prompt_and_answer_where_there_is_no_max_tokens(served: Served) -> None:
    body = {"prompt": [5] * 10, "ignore_eos": True, "max_length": 40}
    for fields, count in (({}, 30), ({"max_tokens": 3}, 3)):
        answer = served.post("/v1/completions", {**body, **fields}).json()
        assert answer["usage"]["completion_tokens"] == count
    body = {"messages": HELLO, "ignore_eos": True, "max_length": 200}
    answer = served.post("/v1/chat/completions", body).json()
    assert answer["usage"]["total_tokens"] == 200


def test_max_completion_tokens_is_max_tokens(served: Served) -> None:
    answer = served.client.chat.completions.create(
        model="tiny", messages=HELLO, max_completion_tokens=3, extra_body={"ignore_eos": True}
    )
    assert answer.usage.completion_tokens == 3


def test_a_developer_message_is_a_system_message(served: Served) -> None:
    counts = {
        role: served.post(
            "/tokenize", {"messages": [{"role": role, "content": "Be brief"}, *HELLO]}
        ).json()["tokens"]
        for role in ("developer", "system")
    }
    assert counts["developer"] == counts["system"]


def test_text_parts_are_joined(served: Served) -> None:
    parts = [{"type": "text", "text": "Hello"}, {"type": "text", "text": " there"}]
    whole = served.post("/tokenize", {"messages": HELLO}).json()["tokens"]
    messages = [{"role": "user", "content": parts}]
    assert served.post("/tokenize", {"messages": messages}).json()["tokens"] == whole


def test_log_probabilities_are_of_the_tokens_that_came(served: Served) -> None:
    answer = chat(served, logprobs=True, max_tokens=8, extra_body={"ignore_eos": True})
    tokens = answer.choices[0].logprobs.content
    assert len(tokens) == 8
    assert all(each.logprob <= 0 for each in tokens)
    data = b"".join(bytes(each.bytes) for each in tokens)
    assert data.decode("utf-8", "replace") == answer.choices[0].message.content
    streamed = [
        token
        for event in chat(
            served, logprobs=True, max_tokens=8, stream=True, extra_body={"ignore_eos": True}
        )
        for choice in event.choices
        if choice.logprobs
        for token in choice.logprobs.content
    ]
    assert [each.bytes for each in streamed] == [each.bytes for each in tokens]


def test_echo_with_log_probabilities_has_those_of_the_prompt(served: Served) -> None:
    answer = complete(served, [20, 30, 40], echo=True, logprobs=0, max_tokens=4)
    found = answer.choices[0].logprobs
    assert len(found.tokens) == 3 + answer.usage.completion_tokens
    assert found.token_logprobs[0] is None
    assert all(each < 0 for each in found.token_logprobs[1:])
    assert found.text_offset[0] == 0
    scored = complete(served, [20, 30, 40], echo=True, logprobs=0, max_tokens=0)
    assert scored.choices[0].logprobs.token_logprobs == found.token_logprobs[:3]


def test_a_repeated_prompt_is_found_in_the_cache_unless_its_salt_is_another(
    served: Served,
) -> None:
    prompt = "the " * 80

    def cached(salt: str) -> int:
        answer = complete(served, prompt, extra_body={"cache_salt": salt})
        return int(answer.usage.prompt_tokens_details.cached_tokens)

    assert cached("one") == 0
    assert cached("one") > 50
    assert cached("two") == 0


def test_tools_reach_the_template_and_the_answer_is_text(served: Served) -> None:
    tool = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}
    answer = chat(served, tools=[tool], tool_choice="auto")
    assert isinstance(answer.choices[0].message.content, str)


def test_a_conversation_with_tool_calls_is_taken(served: Served) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    messages = [
        *HELLO,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "noon"},
    ]
    assert chat(served, messages=messages).choices


def test_tokens_and_text_are_each_other(served: Served) -> None:
    tokens = served.post("/tokenize", {"prompt": "the other"}).json()
    assert tokens["count"] == len(tokens["tokens"])
    text = served.post("/detokenize", {"tokens": tokens["tokens"]}).json()["prompt"]
    assert text == "the other"


def test_models_are_listed_and_found(served: Served) -> None:
    assert [each.id for each in served.client.models.list()] == ["tiny"]
    assert served.client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError):
        served.client.models.retrieve("other/model")


def test_a_deadline_ends_an_answer_with_what_there_is(served: Served) -> None:
    # So many that a fast machine is not done.
    answer = complete(
        served,
        n=64,
        temperature=1.0,
        max_tokens=4000,
        extra_body={"ignore_eos": True, "timeout": 0.3},
    ).choices[0]
    assert answer.finish_reason == "length"
    assert answer.stop_reason == "timeout"
    assert answer.text


def test_a_deadline_before_the_first_token_is_an_error(served: Served) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        complete(served, extra_body={"timeout": 1e-9})
    assert caught.value.status_code == 408


def test_async_clients_stream_side_by_side(served: Served) -> None:
    async def one(client: openai.AsyncOpenAI, seed: int) -> str:
        stream = await client.chat.completions.create(
            model="tiny", messages=HELLO, max_tokens=20, seed=seed, temperature=1.0, stream=True
        )
        return "".join([event.choices[0].delta.content or "" async for event in stream])

    async def many() -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=f"{served.url}/v1", api_key="none", max_retries=0
        ) as client:
            return await asyncio.gather(*(one(client, seed) for seed in range(16)))

    chat(served, max_tokens=1)  # then all find the prompt, whose computation rounds otherwise
    alone = [
        chat(served, max_tokens=20, seed=seed, temperature=1.0).choices[0].message.content
        for seed in (0, 15)
    ]
    texts = asyncio.run(many())
    assert [texts[0], texts[15]] == alone


def test_raw_events_are_what_openai_sends(served: Served) -> None:
    body = {"messages": HELLO, "max_tokens": 3, "stream": True}
    with served.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    first = json.loads(lines[0].removeprefix("data: "))
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"]["role"] == "assistant"
