"""Kimi K2 writes the ids of its calls: clients get them, and its template gets them back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from asking import CHAT_TOOLS, HELLO, saying
from convert import tiny_llama
from serving import Served

from pagewheel.convert import convert

SERVED = "kimi_folder"
pytestmark = pytest.mark.usefixtures("nothing_is_left")

TEMPLATE = (
    "{% if tools %}<|im_system|>tool_declare<|im_middle|>{{ tools | tojson }}<|im_end|>{% endif %}"
    "{% for m in messages %}<|im_user|>{{ m['role'] }}<|im_middle|>"
    "{% if m['role'] == 'tool' %}## Return of {{ m['tool_call_id'] }}\n{% endif %}"
    "{{ m['content'] }}{% if m['tool_calls'] %}<|tool_calls_section_begin|>"
    "{% for c in m['tool_calls'] %}<|tool_call_begin|>{{ c['id'] }}<|tool_call_argument_begin|>"
    "{{ c['function']['arguments'] | tojson }}<|tool_call_end|>{% endfor %}"
    "<|tool_calls_section_end|>{% endif %}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>{% endif %}"
)


def section(*calls: tuple[str, str]) -> str:
    written = "".join(
        f"<|tool_call_begin|>{name}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"
        for name, arguments in calls
    )
    return f"<|tool_calls_section_begin|>{written}<|tool_calls_section_end|>"


TWO_CALLS = section(
    ("functions.weather:4", '{"place": "Rome"}'), ("functions.weather:5", '{"place": "Oslo"}')
)


@pytest.fixture(scope="module")
def kimi_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kimi")
    metadata = {"llama.context_length": 4096, "tokenizer.chat_template": TEMPLATE}
    source = tiny_llama.write(folder / "kimi.gguf", metadata=metadata)
    return convert(source, folder / "converted", progress=False)


def chat(served: Served, **fields: Any) -> Any:
    fields = {"messages": HELLO, "tools": CHAT_TOOLS, "max_tokens": 300, **fields}
    return served.client.chat.completions.create(model="tiny", **fields)


def test_ids_are_those_that_the_model_wrote_and_return_to_its_template(served: Served) -> None:
    # Kimi's end is <|im_end|>; the model has another token that may end a text.
    other_end = str(tiny_llama.SPECIALS.index("<|endoftext|>"))
    answer = chat(served, **saying("Two. " + TWO_CALLS), logit_bias={other_end: -100})
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Two. ")
    calls = choice.message.tool_calls
    assert [each.id for each in calls] == ["functions.weather:4", "functions.weather:5"]
    results = [
        {"role": "tool", "tool_call_id": each.id, "content": f"Sunny {i}"}
        for i, each in enumerate(calls)
    ]
    messages = [*HELLO, choice.message.model_dump(exclude_none=True), *results]
    tokens = served.post("/tokenize", {"messages": messages, "tools": CHAT_TOOLS}).json()["tokens"]
    text = served.post("/detokenize", {"tokens": tokens}).json()["prompt"]
    assert f"Two. {TWO_CALLS}<|im_end|>" in text
    assert "## Return of functions.weather:5\nSunny 1" in text


def test_a_stream_has_the_ids_once(served: Served) -> None:
    events = chat(served, **saying(TWO_CALLS), stream=True)
    pieces = [one for each in events for one in each.choices[0].delta.tool_calls or []]
    assert [each.id for each in pieces if each.id] == ["functions.weather:4", "functions.weather:5"]
    assert [each.index for each in pieces if each.id] == [0, 1]


def test_calls_with_one_id_get_two(served: Served) -> None:
    call = ("functions.weather:4", '{"place": "Rome"}')
    (choice,) = chat(served, **saying(section(call, call))).choices
    first, second = (each.id for each in choice.message.tool_calls)
    assert first == "functions.weather:4" != second


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "time"}}])
def test_a_demanded_call_has_an_id_of_its_name_and_a_number(served: Served, choice: Any) -> None:
    for seed in range(3):
        fields = {"temperature": 1.5, "seed": seed, "parallel_tool_calls": False}
        (answer,) = chat(served, tool_choice=choice, **fields).choices
        (call,) = answer.message.tool_calls
        name, _, number = call.id.partition(":")
        assert name == f"functions.{call.function.name}"
        assert 0 <= int(number) < 10000
        assert call.function.name == "time" or choice == "required"
        assert isinstance(json.loads(call.function.arguments), dict)
