"""The likeliest tokens in the place of each, in one piece and in streams."""

from __future__ import annotations

from typing import Any

import pytest
from asking import HELLO
from serving import Served

pytestmark = pytest.mark.usefixtures("nothing_is_left")


def chat(served: Served, **fields: Any) -> Any:
    fields = {"messages": HELLO, "max_tokens": 8, "logprobs": True, **fields}
    return served.client.chat.completions.create(
        model="tiny", extra_body={"ignore_eos": True}, **fields
    )


def complete(served: Served, **fields: Any) -> Any:
    fields = {"prompt": [20, 30, 40], "max_tokens": 6, **fields}
    return served.client.completions.create(model="tiny", extra_body={"ignore_eos": True}, **fields)


@pytest.mark.parametrize("count", [0, 1, 5, 20])
def test_a_chat_names_so_many_best_first(served: Served, count: int) -> None:
    tokens = chat(served, top_logprobs=count).choices[0].logprobs.content
    assert len(tokens) == 8
    for each in tokens:
        scores = [one.logprob for one in each.top_logprobs]
        assert len(scores) == count
        assert scores == sorted(scores, reverse=True)
        if count:  # greedy
            assert each.top_logprobs[0].bytes == each.bytes
            assert each.top_logprobs[0].logprob == pytest.approx(each.logprob, abs=1e-4)


@pytest.mark.parametrize("fields", [{}, {"temperature": 1.5, "seed": 2, "n": 2}], ids=str)
def test_a_stream_of_a_chat_names_the_same(served: Served, fields: dict[str, Any]) -> None:
    whole = chat(served, top_logprobs=3, **fields)
    found: dict[int, list[Any]] = {}
    for event in chat(served, top_logprobs=3, **fields, stream=True):
        for choice in event.choices:
            if choice.logprobs:
                found.setdefault(choice.index, []).extend(choice.logprobs.content)
    for choice in whole.choices:
        assert _rounded(found[choice.index]) == _rounded(choice.logprobs.content)


def _rounded(tokens: list[Any]) -> list[Any]:
    """Another batch rounds otherwise."""
    return [
        (each.token, round(each.logprob, 2), [one.token for one in each.top_logprobs])
        for each in tokens
    ]


@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_completion_names_so_many_by_their_text(served: Served, count: int) -> None:
    found = complete(served, logprobs=count).choices[0].logprobs
    if count == 0:
        assert found.top_logprobs is None
        return
    for text, score, top in zip(
        found.tokens, found.token_logprobs, found.top_logprobs, strict=True
    ):
        assert 1 <= len(top) <= count + 1
        assert max(top.values()) == pytest.approx(score, abs=1e-4)
        assert text in top


def test_a_stream_of_a_completion_names_the_same(served: Served) -> None:
    whole = complete(served, logprobs=2).choices[0].logprobs
    tops: list[Any] = []
    offsets: list[int] = []
    for event in complete(served, logprobs=2, stream=True):
        for choice in event.choices:
            if choice.logprobs:
                tops += choice.logprobs.top_logprobs
                offsets += choice.logprobs.text_offset
    assert tops == whole.top_logprobs
    assert offsets == whole.text_offset


def test_an_echoed_prompt_has_its_likeliest_tokens(served: Served) -> None:
    found = complete(served, logprobs=2, echo=True).choices[0].logprobs
    assert len(found.tokens) == len(found.top_logprobs) == 3 + 6
    assert found.top_logprobs[0] is None
    assert all(len(each) >= 2 for each in found.top_logprobs[1:3])


def scored(served: Served, stream: bool, **fields: Any) -> list[tuple[str, Any]]:
    """Each choice's text and log-probabilities, whole or put together from a stream."""
    fields = {"logprobs": 0, "echo": True, **fields}
    answer = complete(served, stream=stream, **fields)
    if not stream:
        return [(each.text, each.logprobs.model_dump()) for each in answer.choices]
    found: dict[int, tuple[str, dict[str, list[Any]]]] = {}
    for event in answer:
        for choice in event.choices:
            text, lists = found.get(choice.index, ("", {}))
            for name, values in choice.logprobs.model_dump().items() if choice.logprobs else ():
                lists[name] = lists.get(name, []) + (values or [])
            found[choice.index] = (text + choice.text, lists)
    return [found[index] for index in sorted(found)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fields", [{}, {"temperature": 1.0, "seed": 3}], ids=["greedy", "sampled"])
def test_every_choice_has_the_echoed_prompts(
    served: Served, stream: bool, fields: dict[str, Any]
) -> None:
    choices = scored(served, stream, n=3, **fields)
    assert len(choices) == 3
    prompts = [(each["tokens"][:3], each["token_logprobs"][:3]) for _, each in choices]
    assert prompts[0][1][0] is None
    assert prompts == [prompts[0]] * 3
    for _, found in choices:
        assert len(found["tokens"]) == len(found["token_logprobs"]) == 3 + 6


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("count", [0, 1])
def test_a_prompt_of_one_token_is_echoed(served: Served, stream: bool, count: int) -> None:
    ((_, found),) = scored(served, stream, prompt=[20], max_tokens=count)
    assert len(found["tokens"]) == 1 + count
    assert found["token_logprobs"][0] is None
    assert found["text_offset"][0] == 0


@pytest.mark.parametrize("stream", [False, True])
def test_the_parts_of_a_character_begin_where_it_does(served: Served, stream: bool) -> None:
    text = "a\N{GRINNING FACE}\N{CJK UNIFIED IDEOGRAPH-65E5}b"
    ((whole, found),) = scored(served, stream, prompt=text, max_tokens=1)
    assert whole.startswith(text)
    tokens = served.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json()
    offsets = found["text_offset"][: tokens["count"]]
    assert tokens["count"] > len(text)  # else nothing is in parts
    assert offsets == sorted(offsets)
    assert set(offsets) == set(range(len(text)))


@pytest.mark.parametrize(
    ("fields", "same"),
    [({"seed": -1}, {"seed": 2**64 - 1}), ({"top_p": 0}, {"temperature": 0})],
    ids=["seed", "top_p"],
)
def test_values_of_openais_range_mean_what_they_do_there(
    served: Served, fields: dict[str, Any], same: dict[str, Any]
) -> None:
    first, second = (
        complete(served, **{"temperature": 1.0, **each}).choices[0].text for each in (fields, same)
    )
    assert first == second


@pytest.mark.parametrize("stream", [False, True])
def test_likeliest_tokens_are_of_what_a_grammar_allows(served: Served, stream: bool) -> None:
    body = {
        "messages": HELLO,
        "logprobs": True,
        "top_logprobs": 2,
        "guided_regex": "[xy]",
        "stream": stream,
    }
    answer = served.post("/v1/chat/completions", body)
    assert answer.status_code == 200
    if not stream:
        first = answer.json()["choices"][0]["logprobs"]["content"][0]
        assert {each["token"] for each in first["top_logprobs"]} == {"x", "y"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_they_end_with_the_text_at_a_stop_text(served: Served, stream: bool, size: int) -> None:
    free = chat(served, max_tokens=24)
    whole = free.choices[0].message.content
    place = len(whole) // 2
    stop = whole[place : place + size]
    expected = whole[: whole.index(stop)]
    found = chat(served, max_tokens=24, stop=stop, stream=stream)
    tokens = found.choices[0].logprobs.content if not stream else _streamed(found)
    assert b"".join(bytes(each.bytes) for each in tokens).decode("utf-8", "replace") == expected
    free_tokens = free.choices[0].logprobs.content
    assert _rounded(tokens) == _rounded(free_tokens[: len(tokens)])
    offsets = complete(served, max_tokens=24, logprobs=1, stop=stop).choices[0]
    assert all(offset < len(offsets.text) for offset in offsets.logprobs.text_offset)
    assert len(offsets.logprobs.tokens) == len(offsets.logprobs.text_offset)


def _streamed(events: Any) -> list[Any]:
    found: list[Any] = []
    for event in events:
        for choice in event.choices:
            found += choice.logprobs.content if choice.logprobs else []
    return found
