"""Chat templates of real models say which parser their answers need."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from messages import deltas, joined, named_calls, parsed
from transformers.utils.chat_template_utils import render_jinja_template

import pagewheel

FOLDER = Path(__file__).parents[2] / "data" / "chat_templates"
FAMILIES = {
    "Apertus-8B-Instruct": None,
    "Apriel-1.6-15b-Thinker-fixed": "apriel",
    "Bielik-11B-v3.0-Instruct": "qwen",
    "ByteDance-Seed-OSS": "seed",
    "GLM-4.6": "glm",
    "GLM-4.7-Flash": "glm",
    "GigaChat3-10B-A1.8B": "gigachat",
    "GigaChat3.1-10B-A1.8B": "gigachat",
    "HuggingFaceTB-SmolLM3-3B": "think",
    "MiMo-VL": "qwen",
    "MiniMax-M1": "minimax",
    "Mistral-Small-3.2-24B-Instruct-2506": "mistral",
    "Qwen-QwQ-32B": "qwen",
    "Qwen-Qwen2.5-7B-Instruct": "qwen",
    "Qwen-Qwen3-0.6B": "qwen",
    "Qwen3-Coder": "qwen3_coder",
    "Qwen3.5-4B": "qwen3_coder",
    "StepFun3.5-Flash": "qwen3_coder",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "deepseek",
    "deepseek-ai-DeepSeek-V3.1": "deepseek",
    "deepseek-ai-DeepSeek-V3.2": "deepseek_v32",
    "ibm-granite-granite-3.3-2B-Instruct": "granite",
    "ibm-granite-granite-4.0": "qwen",
    "ibm-granite-granite-4.1": "qwen",
    "inclusionai-ling-3.0-flash": "glm",
    "llama-cpp-deepseek-r1": "deepseek",
    "llama-cpp-rwkv-world": "think",
    "microsoft-Phi-3.5-mini-instruct": None,
    "mistralai-Ministral-3-14B-Reasoning-2512": "mistral",
    "mistralai-Mistral-Nemo-Instruct-2407": "mistral",
    "openai-gpt-oss-120b": "harmony",
    "unsloth-Apriel-1.5": "apriel",
    "unsloth-mistral-Devstral-Small-2507": "mistral",
}
# These show no calls of the assistant, or cannot be rendered by transformers.
WITHOUT_CALLS = {
    "HuggingFaceTB-SmolLM3-3B",
    "ibm-granite-granite-3.3-2B-Instruct",
    "llama-cpp-deepseek-r1",
    "llama-cpp-rwkv-world",
}
# These show the first call alone.
WITH_ONE_CALL = {"GigaChat3-10B-A1.8B", "GigaChat3.1-10B-A1.8B", "openai-gpt-oss-120b"}

ARGUMENTS = {"city": 'Zü"rich', "days": 3, "exact": True, "list": [1, {"a": "b, c"}], "text": "7"}
CALLS: list[dict[str, Any]] = [
    {"id": "call12345", "type": "function", "function": {"name": "w", "arguments": ARGUMENTS}},
    {"id": "call12346", "type": "function", "function": {"name": "none", "arguments": {}}},
]
TYPES = {"city": "string", "days": "integer", "exact": "boolean", "list": "array", "text": "string"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "w",
            "description": "Weather",
            "parameters": {
                "type": "object",
                "properties": {name: {"type": kind} for name, kind in TYPES.items()},
            },
        },
    }
]


def answer_with_calls(template: str) -> str:
    """What the template shows for an assistant's message, without what is before it."""
    asked = [{"role": "user", "content": "ASK"}]
    answered = [*asked, {"role": "assistant", "content": "", "tool_calls": CALLS}]
    shown = []
    for messages, prompts in ((asked, True), (answered, False)):
        (text,), _ = render_jinja_template(
            conversations=[copy.deepcopy(messages)],
            chat_template=template,
            tools=TOOLS,
            add_generation_prompt=prompts,
            bos_token="<BOS>",
            eos_token="",
        )
        shown.append(text)
    prompt, all_text = shown
    return all_text[len(prompt) :] if all_text.startswith(prompt) else all_text.rpartition("ASK")[2]


def test_every_template_of_the_data_is_looked_at() -> None:
    assert {path.stem for path in FOLDER.glob("*.jinja")} == set(FAMILIES)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_family_is_found_by_the_template(name: str) -> None:
    assert pagewheel.detect_parser((FOLDER / f"{name}.jinja").read_text("utf-8")) == FAMILIES[name]


@pytest.mark.parametrize(
    ("template", "family"),
    [
        ("{{ '<|start_header_id|>' }} \"parameters\": dictionary", "llama3_json"),
        ("<|start_header_id|>[func_name1(params_name1=v1)]", "llama3_pythonic"),
        ("<|header_start|>user<|header_end|>", "llama4_pythonic"),
        ("<start_of_turn>user", "gemma"),
        ("<start_function_call>call:", "functiongemma"),
        ("<|tool_call>call:", "gemma4"),
        ("<|system|>{{ s }}<|tool|>{{ tools }}<|/tool|><|end|>", "phi4"),
        ("<|im_start|>system<|im_sep|>", "phi4"),
        ("{{ '<|im_system|>tool_declare<|im_middle|>' }}{{ tools | tojson }}", "kimi"),
        ("<think></think>{{ content }}<|tool_calls_section_begin|>", "kimi"),
        ("content.split('</think>')", "think"),
        ("{{ messages }}", None),
        ("", None),
    ],
)
def test_families_without_a_template_in_the_data_are_found_by_their_markers(
    template: str, family: str | None
) -> None:
    assert pagewheel.detect_parser(template) == family


@pytest.mark.parametrize("name", [n for n in FAMILIES if FAMILIES[n] and n not in WITHOUT_CALLS])
def test_what_a_real_template_shows_of_calls_is_parsed_to_them(name: str) -> None:
    family = FAMILIES[name]
    assert family
    text = answer_with_calls((FOLDER / f"{name}.jinja").read_text("utf-8"))
    message = parsed(family, text, tools=TOOLS)
    expected = [(call["function"]["name"], call["function"]["arguments"]) for call in CALLS]
    assert named_calls(message) == expected[: 1 if name in WITH_ONE_CALL else 2], text
    assert joined(deltas(family, text, tools=TOOLS)) == message
