"""A real model behind the server is held to the tools' schemas, however hot it is sampled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from serving import Served, serving

from pagewheel.serve.settings import ModelSettings, ServerSettings

# Of a family that SmolLM2 has no tokens of: its markers are text here.
TEMPLATE = Path(__file__).parents[2] / "data/chat_templates/Qwen-Qwen2.5-7B-Instruct.jinja"
PARAMETERS: dict[str, Any] = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 20},
            "days": {"type": "integer", "minimum": 1, "maximum": 7},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
    },
    "now": {"type": "object", "properties": {"utc": {"type": "boolean"}}, "required": ["utc"]},
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}
    for name, schema in PARAMETERS.items()
]
NAMED = {"type": "function", "function": {"name": "get_weather"}}


@pytest.fixture(scope="module")
def served(smollm2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("smollm2_with_tools")
    for path in smollm2_folder.iterdir():
        if path.name != "chat_template.jinja":
            (folder / path.name).symlink_to(path)
    (folder / "chat_template.jinja").write_bytes(TEMPLATE.read_bytes())
    model = ModelSettings("smollm2", folder, scheduler={"num_kv_blocks": 400}, is_pinned=True)
    with serving(ServerSettings(models=(model,), port=0)) as one:
        yield one


def choices(served: Served, tool_choice: Any, **fields: Any) -> list[Any]:
    """Eight answers to one question."""
    answer = served.client.chat.completions.create(
        model="smollm2",
        messages=[{"role": "user", "content": "What will the weather be in Zurich?"}],
        tools=TOOLS,
        tool_choice=tool_choice,
        temperature=1.5,
        n=8,
        seed=19,
        max_tokens=150,
        **fields,
    )
    return list(answer.choices)


def check_calls(choice: Any) -> list[str]:
    """The names of those called."""
    for call in choice.message.tool_calls:
        arguments = json.loads(call.function.arguments)
        jsonschema.validate(arguments, PARAMETERS[call.function.name])
    return [call.function.name for call in choice.message.tool_calls]


@pytest.mark.parametrize("tool_choice", ["required", NAMED], ids=["required", "named"])
def test_a_demanded_call_is_valid(served: Served, tool_choice: Any) -> None:
    found = choices(served, tool_choice, parallel_tool_calls=False)
    finished = [each for each in found if each.finish_reason != "length"]
    assert len(finished) >= 4
    for choice in finished:
        assert choice.finish_reason == "tool_calls"
        names = check_calls(choice)
        assert len(names) == 1
        assert tool_choice == "required" or names == ["get_weather"]


def test_an_answer_is_valid_calls_or_of_the_shape_where_either_may_come(served: Served) -> None:
    shape = {"enum": [{"answer": "sunny"}, {"answer": "rainy"}]}
    asked = {"type": "json_schema", "json_schema": {"name": "answer", "schema": shape}}
    # It begins a call and nothing else. Half of the answers have it likelier, half less likely.
    (mark, *_) = served.post("/tokenize", {"prompt": "<tool_call>"}).json()["tokens"]
    found = [
        choice
        for bias in (4, -4)
        for choice in choices(served, "auto", response_format=asked, logit_bias={str(mark): bias})
    ]
    kinds = {each.finish_reason for each in found if each.finish_reason != "length"}
    assert kinds == {"tool_calls", "stop"}
    for choice in found:
        if choice.finish_reason == "tool_calls":
            assert check_calls(choice)
        elif choice.finish_reason == "stop":
            jsonschema.validate(json.loads(choice.message.content), shape)
