"""Calls and reasoning, as OpenAI's and Anthropic's clients get them and give them back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anthropic
import openai
import pytest
from asking import (
    BROKEN,
    CHAT_TOOLS,
    HELLO,
    MESSAGE_TOOLS,
    RESPONSE_TOOLS,
    THOUGHT,
    TWO_CALLS,
    call_text,
    saying,
)
from serving import Served

SERVED = "calling_folder"
pytestmark = pytest.mark.usefixtures("nothing_is_left")

TEXTS = {"thought": THOUGHT, "two": TWO_CALLS, "broken": BROKEN, "none": "No call. <tool"}
ROME = {"place": "Rome"}


def chat(served: Served, **fields: Any) -> Any:
    fields = {"messages": HELLO, "tools": CHAT_TOOLS, "max_tokens": 300, **fields}
    return served.client.chat.completions.create(model="tiny", **fields)


def respond(served: Served, **fields: Any) -> Any:
    fields = {"input": "Hello", "tools": RESPONSE_TOOLS, "max_output_tokens": 300, **fields}
    return served.client.responses.create(model="tiny", **fields)


def claude_says(claude: anthropic.Anthropic, **fields: Any) -> Any:
    fields = {"messages": HELLO, "tools": MESSAGE_TOOLS, "max_tokens": 300, **fields}
    return claude.messages.create(model="tiny", **fields)


def test_a_call_is_told_from_reasoning_and_content(served: Served) -> None:
    (choice,) = chat(served, **saying(THOUGHT)).choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me look. "
    assert choice.message.reasoning_content == "Which place?"
    (call,) = choice.message.tool_calls
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments) == ROME
    assert call.id


def test_tokens_of_reasoning_are_counted_in_one_piece_and_in_streams(served: Served) -> None:
    body = {"prompt": "Which place?", "add_special_tokens": False}
    count = len(served.post("/tokenize", body).json()["tokens"])
    assert count > 1
    for n in (1, 2):
        usage = chat(served, **saying(THOUGHT), n=n, temperature=1.0).usage
        assert usage.completion_tokens_details.reasoning_tokens == n * count
        assert usage.completion_tokens > n * count
    options = {"stream": True, "stream_options": {"include_usage": True}}
    *_, last = chat(served, **saying(THOUGHT), **options)
    assert last.usage.completion_tokens_details.reasoning_tokens == count
    whole = respond(served, **saying(THOUGHT))
    assert whole.usage.output_tokens_details.reasoning_tokens == count
    *_, last = respond(served, **saying(THOUGHT), stream=True)
    assert last.response.usage.output_tokens_details.reasoning_tokens == count
    nothing = chat(served, **saying(TWO_CALLS)).usage
    assert nothing.completion_tokens_details.reasoning_tokens == 0


def test_an_answer_of_calls_alone_has_no_content(served: Served) -> None:
    (choice,) = chat(served, **saying(TWO_CALLS)).choices
    assert choice.message.content is None
    places = [json.loads(each.function.arguments) for each in choice.message.tool_calls]
    assert places == [{"place": "Rome"}, {"place": "Oslo"}]
    assert len({each.id for each in choice.message.tool_calls}) == 2


def test_a_call_that_breaks_is_no_reason_to_end(served: Served) -> None:
    (choice,) = chat(served, **saying(BROKEN)).choices
    assert choice.finish_reason == "stop"
    assert choice.message.content == "Rome"


def test_a_call_that_is_cut_off_ends_with_length(served: Served) -> None:
    (choice,) = chat(served, **saying(call_text()), max_tokens=52).choices
    assert choice.finish_reason == "length"
    assert not choice.message.tool_calls[0].function.arguments.endswith("}")


@pytest.mark.parametrize("fields", [{"tools": []}, {"tool_choice": "none"}], ids=str)
def test_without_tools_nothing_is_a_call(served: Served, fields: dict[str, Any]) -> None:
    (choice,) = chat(served, **saying(THOUGHT), **fields).choices
    assert choice.message.content == THOUGHT
    assert choice.message.tool_calls is None
    assert choice.finish_reason == "stop"


@pytest.mark.parametrize("name", TEXTS)
def test_a_stream_of_a_chat_has_what_the_unstreamed_answer_has(served: Served, name: str) -> None:
    fields = saying(TEXTS[name])
    whole = chat(served, **fields).choices[0]
    parts: dict[str, str] = {"content": "", "reasoning_content": ""}
    calls: dict[int, dict[str, str]] = {}
    reason = None
    for event in chat(served, **fields, stream=True):
        (choice,) = event.choices
        reason = choice.finish_reason or reason
        for kind in parts:
            parts[kind] += getattr(choice.delta, kind, None) or ""
        for piece in choice.delta.tool_calls or []:
            call = calls.setdefault(piece.index, {"name": "", "arguments": ""})
            call["name"] += piece.function.name or ""
            call["arguments"] += piece.function.arguments or ""
    assert parts["content"] == (whole.message.content or "")
    assert parts["reasoning_content"] == getattr(whole.message, "reasoning_content", "")
    assert reason == whole.finish_reason
    expected = whole.message.tool_calls or []
    assert list(calls.values()) == [
        {"name": each.function.name, "arguments": each.function.arguments} for each in expected
    ]


def test_arguments_stream_in_pieces(served: Served) -> None:
    # With log-probabilities the model is asked for each token, though they are forced.
    events = list(chat(served, **saying(call_text()), stream=True, logprobs=True))
    pieces = [
        piece
        for event in events
        for choice in event.choices
        for piece in choice.delta.tool_calls or []
    ]
    assert len(pieces) > 1
    assert pieces[0].id
    assert all(each.id is None for each in pieces[1:])


def test_openais_stream_helper_puts_calls_together(served: Served) -> None:
    with served.client.chat.completions.stream(
        model="tiny", messages=HELLO, tools=CHAT_TOOLS, max_tokens=300, **saying(TWO_CALLS)
    ) as stream:
        names = [
            event.name for event in stream if event.type == "tool_calls.function.arguments.done"
        ]
        final = stream.get_final_completion()
    assert names == ["weather", "weather"]
    assert json.loads(final.choices[0].message.tool_calls[1].function.arguments) == {  # type: ignore[index, union-attr]
        "place": "Oslo"
    }


def test_an_async_client_gets_calls(served: Served) -> None:
    async def ask() -> Any:
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none") as client:
            return await client.chat.completions.create(
                model="tiny", messages=HELLO, tools=CHAT_TOOLS, max_tokens=300, **saying(THOUGHT)
            )

    assert asyncio.run(ask()).choices[0].message.tool_calls[0].function.name == "weather"


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_may_be_required(served: Served, stream: bool) -> None:
    fields = {"tool_choice": "required", "parallel_tool_calls": False, "seed": 4}
    if stream:
        events = list(chat(served, **fields, temperature=1.0, stream=True))
        pieces = [one for each in events for one in each.choices[0].delta.tool_calls or []]
        arguments = "".join(each.function.arguments for each in pieces)
        assert events[-1].choices[0].finish_reason == "tool_calls"
    else:
        (choice,) = chat(served, **fields, temperature=1.0).choices
        assert choice.finish_reason == "tool_calls"
        (call,) = choice.message.tool_calls
        arguments = call.function.arguments
    assert isinstance(json.loads(arguments), dict)


def test_a_function_may_be_demanded_by_its_name(served: Served) -> None:
    choice = {"type": "function", "function": {"name": "weather"}}
    for seed in range(3):
        (answer,) = chat(served, tool_choice=choice, seed=seed, temperature=1.5).choices
        (call,) = answer.message.tool_calls
        assert call.function.name == "weather"
        assert json.loads(call.function.arguments)["place"] in ("Rome", "Oslo")


def test_a_strict_tool_holds_calls_to_its_schema(served: Served) -> None:
    strict = [{"type": "function", "function": {**CHAT_TOOLS[0]["function"], "strict": True}}]
    answer = chat(served, tools=strict, max_tokens=20)
    assert answer.choices[0].finish_reason in ("stop", "length", "tool_calls")


def test_one_call_is_the_last_where_calls_are_not_parallel(served: Served) -> None:
    fields = {**saying(TWO_CALLS + "more"), "parallel_tool_calls": False}
    whole = chat(served, **fields)
    assert len(whole.choices[0].message.tool_calls) == 1
    assert whole.choices[0].finish_reason == "tool_calls"
    streamed = [
        piece.index
        for event in chat(served, **fields, stream=True)
        for piece in event.choices[0].delta.tool_calls or []
    ]
    assert set(streamed) == {0}


def test_calls_and_results_reach_the_template(served: Served) -> None:
    first = chat(served, **saying(THOUGHT)).choices[0].message
    result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "Sunny"}
    messages = [*HELLO, first.model_dump(exclude_none=True), result]
    tokens = served.post("/tokenize", {"messages": messages, "tools": CHAT_TOOLS}).json()
    text = served.post("/detokenize", {"tokens": tokens["tokens"]}).json()["prompt"]
    assert "(Which place?)Let me look. <tool_call>weather Rome</tool_call>" in text
    assert "tool\nSunny" in text
    assert chat(served, messages=messages, max_tokens=3).choices


def test_a_response_has_items_of_each_kind(served: Served) -> None:
    answer = respond(served, **saying(THOUGHT))
    reasoning, message, call = answer.output
    assert reasoning.content[0].text == "Which place?"
    assert message.content[0].text == answer.output_text == "Let me look. "
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "weather", ROME)
    assert answer.tools[0].name == "weather"
    assert answer.status == "completed"


@pytest.mark.parametrize("name", TEXTS)
def test_a_streamed_response_has_the_items_of_the_unstreamed_one(served: Served, name: str) -> None:
    fields = saying(TEXTS[name])
    whole = respond(served, **fields)
    events = list(respond(served, **fields, stream=True))
    assert [each.sequence_number for each in events] == list(range(len(events)))
    last = events[-1].response

    def told(items: Any) -> list[Any]:
        left_out = {"id", "call_id"}
        return [each.model_dump(exclude=left_out) for each in items]

    assert told(last.output) == told(whole.output)
    done = [each.item for each in events if each.type == "response.output_item.done"]
    assert told(done) == told(whole.output)
    arguments: dict[int, str] = {}
    for each in events:
        if each.type == "response.function_call_arguments.delta":
            arguments[each.output_index] = arguments.get(each.output_index, "") + each.delta
    assert arguments == {
        place: item.arguments
        for place, item in enumerate(last.output)
        if item.type == "function_call"
    }


def test_openais_response_stream_helper_understands_the_events(served: Served) -> None:
    with served.client.responses.stream(
        model="tiny", input="Hello", tools=RESPONSE_TOOLS, **saying(THOUGHT)
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_response()
    assert "response.function_call_arguments.done" in kinds
    assert "response.reasoning_text.delta" in kinds
    assert final.output_text == "Let me look. "


def test_a_response_goes_on_with_the_result_of_a_call(served: Served) -> None:
    first = respond(served, **saying(THOUGHT))
    call = first.output[-1]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny"}
    second = respond(served, input=[result], previous_response_id=first.id, max_output_tokens=3)
    said = [each.model_dump(exclude_none=True) for each in first.output]
    same = respond(served, input=[*HELLO, *said, result], max_output_tokens=3)
    assert second.usage.input_tokens == same.usage.input_tokens
    assert second.output_text == same.output_text


def test_a_response_may_be_required_to_call(served: Served) -> None:
    choice = {"type": "function", "name": "weather"}
    answer = respond(served, tool_choice=choice)
    (call,) = answer.output
    assert call.name == "weather"
    assert answer.tool_choice.name == "weather"


def test_a_message_has_blocks_of_each_kind(claude: anthropic.Anthropic) -> None:
    message = claude_says(claude, **saying(THOUGHT))
    thinking, text, use = message.content
    assert thinking.thinking == "Which place?"
    assert text.text == "Let me look. "
    assert (use.type, use.name, use.input) == ("tool_use", "weather", ROME)
    assert message.stop_reason == "tool_use"


@pytest.mark.parametrize("name", TEXTS)
def test_a_streamed_message_has_the_blocks_of_the_unstreamed_one(
    claude: anthropic.Anthropic, name: str
) -> None:
    whole = claude_says(claude, **saying(TEXTS[name]))
    with claude.messages.stream(
        model="tiny", messages=HELLO, tools=MESSAGE_TOOLS, max_tokens=300, **saying(TEXTS[name])
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_message()

    def told(content: Any) -> list[Any]:
        return [each.model_dump(exclude={"id", "parsed_output"}) for each in content]

    assert told(final.content) == told(whole.content)
    assert final.stop_reason == whole.stop_reason
    assert ("input_json" in kinds) == (name in ("thought", "two", "broken"))


def test_a_message_goes_on_with_the_result_of_a_call(
    claude: anthropic.Anthropic, served: Served
) -> None:
    first = claude_says(claude, **saying(THOUGHT))
    use = first.content[-1]
    result = {
        "type": "tool_result",
        "tool_use_id": use.id,
        "content": [{"type": "text", "text": "Sunny"}],
    }
    messages = [
        *HELLO,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result, {"type": "text", "text": "And?"}]},
    ]
    second = claude_says(claude, messages=messages, max_tokens=3)
    assert second.content
    as_chat = [
        *HELLO,
        {
            "role": "assistant",
            "content": "Let me look. ",
            "reasoning_content": "Which place?",
            "tool_calls": [
                {
                    "id": use.id,
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"place": "Rome"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": use.id, "content": "Sunny"},
        {"role": "user", "content": "And?"},
    ]
    count = served.post("/tokenize", {"messages": as_chat, "tools": CHAT_TOOLS}).json()["count"]
    counted = claude.messages.count_tokens(model="tiny", messages=messages, tools=MESSAGE_TOOLS)  # type: ignore[arg-type]
    assert counted.input_tokens == count


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}], ids=str)
def test_a_message_may_be_required_to_call(
    claude: anthropic.Anthropic, choice: dict[str, Any]
) -> None:
    message = claude_says(claude, tool_choice={**choice, "disable_parallel_tool_use": True})
    (use,) = message.content
    assert use.type == "tool_use"
    assert message.stop_reason == "tool_use"


def test_an_async_message_stream_gets_calls(served: Served) -> None:
    async def ask() -> Any:
        async with (
            anthropic.AsyncAnthropic(base_url=served.url, api_key="none") as client,
            client.messages.stream(
                model="tiny", messages=HELLO, tools=MESSAGE_TOOLS, max_tokens=300, **saying(THOUGHT)
            ) as stream,
        ):
            return await stream.get_final_message()

    assert asyncio.run(ask()).content[-1].input == ROME


def test_thinking_is_the_templates(claude: anthropic.Anthropic) -> None:
    for thinking in ({"type": "enabled", "budget_tokens": 1024}, {"type": "disabled"}):
        assert claude_says(claude, thinking=thinking, max_tokens=2).content


CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
HOSTILE = {"type": "object", "properties": {"a": {"not": {}}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (
            CHAT,
            {"tools": [{"type": "function", "function": {"name": "a b"}}]},
            "tools[0].function.name",
        ),
        (CHAT, {"tools": [CHAT_TOOLS[0], CHAT_TOOLS[0]]}, "tools[1]"),
        (CHAT, {"tool_choice": "sometimes"}, "tool_choice"),
        (CHAT, {"tools": [], "tool_choice": "required"}, "tool_choice"),
        (CHAT, {"tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
        (CHAT, {"tool_choice": {"type": "function"}}, "tool_choice.function"),
        (
            CHAT,
            {
                "tools": [{"type": "function", "function": {"name": "a", "parameters": HOSTILE}}],
                "tool_choice": "required",
            },
            "tools",
        ),
        (RESPONSES, {"tools": [{"type": "web_search"}]}, "tools[0].type"),
        (RESPONSES, {"tools": [{"type": "function"}]}, "tools[0].name"),
        (RESPONSES, {"input": [{"type": "function_call", "name": "a"}]}, "input[0].call_id"),
        (RESPONSES, {"input": [{"type": "computer_call"}]}, "input[0].type"),
        (MESSAGES, {"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
        (MESSAGES, {"tools": [{"name": "a"}]}, "tools[0].input_schema"),
        (MESSAGES, {"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        (
            MESSAGES,
            {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a"}]}]},
            "messages[0].content[0].type",
        ),
        (
            MESSAGES,
            {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
            "messages[0].content[0].tool_use_id",
        ),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_a_wrong_tool_is_named(
    served: Served, path: str, fields: dict[str, Any], param: str
) -> None:
    right: dict[str, dict[str, Any]] = {
        CHAT: {"messages": HELLO, "tools": CHAT_TOOLS, "max_tokens": 2},
        RESPONSES: {"input": "a", "max_output_tokens": 2},
        MESSAGES: {"messages": HELLO, "tools": MESSAGE_TOOLS, "max_tokens": 2},
    }
    answer = served.post(path, {**right[path], **fields})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["message"].startswith(param)
    assert error.get("param", param) == param


INTEGERS = [2**63, 2**64 - 1, -(2**63), 2**64, 10**24 + 1, 10**319 + 7]


@pytest.mark.parametrize("value", INTEGERS, ids=lambda value: str(value)[:30])
def test_the_template_gets_every_digit_of_a_calls_integers(served: Served, value: int) -> None:
    arguments = {"place": [value]}
    function = {"name": "weather", "arguments": json.dumps(arguments)}
    calls = [{"id": "a", "type": "function", "function": function}]
    said = {"role": "assistant", "content": "", "tool_calls": calls}
    answer = served.post("/tokenize", {"messages": [*HELLO, said]})
    assert answer.status_code == 200, answer.text[:300]
    text = served.post("/detokenize", {"tokens": answer.json()["tokens"]}).json()["prompt"]
    assert str(value) in text
    use = {"type": "tool_use", "id": "a", "name": "weather", "input": arguments}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "Sunny"}
    messages = [
        *HELLO,
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    again = served.post("/v1/messages", {"messages": messages, "max_tokens": 2})
    assert again.status_code == 200, again.text[:300]


NUMBERS = [
    json.dumps({"place": 2**64, "far": 10**24 + 1}),
    '{"place": %s}' % ("9" * 320),
    '{"place": 1e999, "far": -1e999}',
    '{"place": %s}' % ("9" * 450),
    '{"place": 1, "place": 2}',
    '{"place": 12345678901234567890123.4567890123456789}',
]


@pytest.mark.parametrize("arguments", NUMBERS, ids=range(len(NUMBERS)))
@pytest.mark.parametrize("stream", [False, True])
def test_no_number_in_a_call_costs_an_answer_or_the_conversation(
    served: Served, arguments: str, stream: bool
) -> None:
    text = f'<tool_call>\n{{"name": "weather", "arguments": {arguments}}}\n</tool_call>'
    asked = {"structured_outputs": {"choice": [text]}, "stream": stream}

    def post(path: str, body: Any) -> Any:
        answer = served.post(path, body)
        assert answer.status_code == 200, answer.text[:300]
        return answer

    body = {"messages": HELLO, "tools": CHAT_TOOLS, "max_tokens": 3000, **asked}
    if not stream:
        message = post("/v1/chat/completions", body).json()["choices"][0]["message"]
        (call,) = message["tool_calls"]
        assert call["function"]["arguments"] == arguments
        result = {"role": "tool", "tool_call_id": call["id"], "content": "Sunny"}
        again = {"messages": [*HELLO, message, result], "max_tokens": 2}
        post("/v1/chat/completions", again)
    body = {"input": "Hello", "tools": RESPONSE_TOOLS, "max_output_tokens": 3000, **asked}
    answer = post("/v1/responses", body)
    if stream:
        (last,) = [
            each for each in answer.text.split("data: ") if "response.completed" in each[:40]
        ]
        response = json.loads(last.partition("\n")[0])["response"]
    else:
        response = answer.json()
    call = response["output"][-1]
    assert call["arguments"] == arguments
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "Sunny"}
    more = {"max_output_tokens": 2}
    post("/v1/responses", {"input": [result], "previous_response_id": response["id"], **more})
    post("/v1/responses", {"input": [call, result], **more})
    body = {"messages": HELLO, "tools": MESSAGE_TOOLS, "max_tokens": 3000, **asked}
    answer = post("/v1/messages", body)
    if not stream:
        begin = answer.text.index('{"type":"tool_use"')
        use = answer.text[begin : answer.text.index(arguments) + len(arguments) + 1]
        assert use.endswith(f'"input":{arguments}}}')
        said = f'{{"role": "assistant", "content": [{use}]}}'
        number = json.loads(use)["id"]
        result = {"type": "tool_result", "tool_use_id": number, "content": "Sunny"}
        messages = [json.dumps(HELLO[0]), said, json.dumps({"role": "user", "content": [result]})]
        raw = f'{{"max_tokens": 2, "messages": [{", ".join(messages)}]}}'
        head = {"content-type": "application/json"}
        again = served.http.post("/v1/messages", content=raw.encode(), headers=head)
        assert again.status_code == 200, again.text[:300]
