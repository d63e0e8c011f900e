"""Tools for models whose chat templates know none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest
from asking import CHAT_TOOLS, HELLO, MESSAGE_TOOLS, SCHEMA
from convert import tiny_llama
from serving import Served, serving, tiny_settings

from pagewheel.convert import convert
from pagewheel.serve.api.generic_tools import in_plain_messages

SERVED = "smollm2_folder"
CHAT = "/v1/chat/completions"
ASKED = [{"role": "user", "content": "What is the weather in Oslo?"}]


def call(served: Served, **fields: Any) -> Any:
    body = {"messages": ASKED, "tools": CHAT_TOOLS, "temperature": 0, "max_tokens": 80, **fields}
    return served.post(CHAT, body)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "time"}}])
def test_a_demanded_call_is_made_and_is_valid(served: Served, choice: Any) -> None:
    answer = call(served, tool_choice=choice)
    assert answer.headers["x-tool-format"] == "generic"
    (made,) = answer.json()["choices"][0]["message"]["tool_calls"]
    assert answer.json()["choices"][0]["finish_reason"] == "tool_calls"
    arguments = json.loads(made["function"]["arguments"])
    if choice == "required":
        assert made["function"]["name"] in ("weather", "time")
    else:
        assert (made["function"]["name"], arguments) == ("time", {})


def test_a_stream_has_the_same_call(served: Served) -> None:
    whole = call(served, tool_choice="required").json()["choices"][0]["message"]["tool_calls"]
    client: openai.OpenAI = served.client
    chunks = client.chat.completions.create(
        model="tiny",
        messages=ASKED,  # type: ignore[arg-type]
        tools=CHAT_TOOLS,
        tool_choice="required",
        temperature=0,
        max_tokens=80,
        stream=True,
    )
    deltas = [each.choices[0].delta.tool_calls for each in chunks if each.choices]
    arguments = "".join(
        one.function.arguments or "" for each in deltas for one in each or () if one.function
    )
    assert json.loads(arguments) == json.loads(whole[0]["function"]["arguments"])


def test_other_apis_call_as_well(served: Served) -> None:
    body = {"messages": ASKED, "tools": MESSAGE_TOOLS, "tool_choice": {"type": "any"}}
    blocks = served.post("/v1/messages", {**body, "max_tokens": 80}).json()["content"]
    assert [each["type"] for each in blocks if each["type"] == "tool_use"] == ["tool_use"]


def test_results_of_calls_are_told(served: Served) -> None:
    made = call(served, tool_choice="required").json()["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": made["tool_calls"][0]["id"], "content": "5 degrees"}
    answer = call(served, messages=[*ASKED, made, result], return_token_ids=True)
    assert answer.status_code == 200
    prompt = served.engine.decode(answer.json()["prompt_token_ids"])
    assert "<tool_response>\n5 degrees\n</tool_response>" in prompt
    assert made["tool_calls"][0]["function"]["name"] in prompt


def test_without_tools_nothing_is_told(served: Served) -> None:
    answer = served.post(CHAT, {"messages": HELLO, "max_tokens": 4})
    assert "x-tool-format" not in answer.headers


def test_no_choice_of_tools_leaves_them_out(served: Served) -> None:
    assert "x-tool-format" not in call(served, tool_choice="none").headers


def test_the_system_message_keeps_its_place() -> None:
    messages = [{"role": "system", "content": "Be brief"}, *HELLO]
    plain = in_plain_messages(messages, "TOOLS", has_system_role=True)
    assert [each["content"] for each in plain] == ["Be brief\n\nTOOLS", "Hello"]
    assert messages[0]["content"] == "Be brief"


def test_a_template_without_system_messages_gets_them_of_the_user(tmp_path: Path) -> None:
    template = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}"
        "{% endif %}" + tiny_llama.TEMPLATE
    )
    metadata = {"llama.context_length": 4096, "tokenizer.chat_template": template}
    source = tiny_llama.write(tmp_path / "a.gguf", metadata=metadata)
    folder = convert(source, tmp_path / "converted", progress=False)
    with serving(tiny_settings(folder)) as served:
        answer = call(served, return_token_ids=True)
        assert answer.status_code == 200
        prompt = served.engine.decode(answer.json()["prompt_token_ids"])
        assert prompt.index("<tool_call>") < prompt.index("What is the weather in Oslo?")
        with_system = [{"role": "system", "content": "a"}, *ASKED]
        assert call(served, messages=with_system).status_code == 422


def test_a_schema_binds_generic_arguments(served: Served) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
    answer = call(served, tools=[tool], tool_choice="required", temperature=1.5, seed=3)
    (made,) = answer.json()["choices"][0]["message"]["tool_calls"]
    assert json.loads(made["function"]["arguments"])["place"] in ("Rome", "Oslo")
