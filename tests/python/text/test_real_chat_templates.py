"""Templates of real models render as transformers renders them: tools, documents and all."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from pagewheel.chat_template import render

FOLDER = Path(__file__).parents[2] / "data" / "chat_templates"
TEMPLATES = sorted(FOLDER.glob("*.jinja"))


def text(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


SYSTEM = text("system", "Du bist höflich.\nBe brief. <b>&amp;</b>")
ASK = text("user", "  What is 2 + 2?\n\n你好 👋🏽 'q' \"d\" ")
ANSWER = text("assistant", "4, of course.")
THINKING = text(
    "assistant", "<think>\nTwo and two.\n</think>\n\n4.", reasoning_content="Two and two."
)
CALL = {
    "id": "call12345",
    "type": "function",
    "function": {"name": "weather", "arguments": {"city": "Zürich", "days": 3, "units": None}},
}
CALLS = text("assistant", "", tool_calls=[CALL])
RESULT = text("tool", '{"sky": "clear"}', tool_call_id="call12345", name="weather")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city, é & <tag>.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Where"},
                    "days": {"type": "integer", "enum": [1, 3], "default": 1},
                },
                "required": ["city"],
            },
        },
    }
]
CONVERSATIONS = {
    "one": [ASK],
    "system": [SYSTEM, ASK],
    "turns": [SYSTEM, ASK, ANSWER, ASK, THINKING, ASK],
    "after-answer": [ASK, ANSWER],
    "calls": [SYSTEM, ASK, CALLS, RESULT],
    "after-calls": [ASK, CALLS, RESULT, ANSWER, ASK],
    "two-users": [ASK, ASK],
    "odd-role": [ASK, text("narrator", "hm")],
}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"add_generation_prompt": True},
    {"add_generation_prompt": True, "tools": TOOLS},
    {"documents": [{"title": "A", "text": "b"}], "enable_thinking": False},
]


def outcome(action: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What it gives, or None for a refusal: the messages of errors need not be the same."""
    try:
        return action(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    except Exception:
        return None


EXTRA = ("enable_thinking",)


def reference(template: str, messages: list[dict[str, Any]], **options: Any) -> str:
    texts, _ = render_jinja_template(conversations=[messages], chat_template=template, **options)
    return texts[0]


def ours(template: str, messages: list[dict[str, Any]], **options: Any) -> str:
    extra = {name: options.pop(name) for name in EXTRA if name in options}
    return render(template, messages, extra_context=extra, **options)


def test_there_are_enough() -> None:
    assert len(TEMPLATES) >= 30


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_renders_as_transformers(path: Path) -> None:
    template = path.read_text(encoding="utf-8")
    tokens = {"bos_token": "<bos>", "eos_token": "<eos>"}
    rendered = 0
    for name, messages in CONVERSATIONS.items():
        for variant in VARIANTS:
            options = {"add_generation_prompt": False, **variant, **tokens}
            got = outcome(ours, template, messages, **options)
            assert got == outcome(reference, template, messages, **options), (name, variant)
            rendered += got is not None
    assert rendered >= len(VARIANTS)
