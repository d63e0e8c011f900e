"""Chat templates render as transformers renders them, inside a sandbox."""

from __future__ import annotations

from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from pagewheel.chat_template import render

MESSAGES = [
    {"role": "system", "content": "Sei höflich. <b>&amp;</b>"},
    {"role": "user", "content": "Hi\n\n 你好 👋🏽 'quoted' \"double\""},
    {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": {"x": 1}}]},
]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "É <tag> & 'x'"}}]
TEMPLATES = {
    "plain": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
    "blocks": """
        {%- for message in messages %}
            {% if message.role == 'user' %}
    [{{ message.content | trim }}]
            {% endif %}
        {%- endfor %}
        {% if add_generation_prompt %}
go:
        {% endif %}
    """,
    "json": "{{ tools | tojson }}|{{ tools | tojson(indent=2) }}|{{ messages[1] | tojson }}",
    "json-options": "{{ tools | tojson(sort_keys=true, separators=(',', ':')) }}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% endfor %}",
    "loop-controls": "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
    "{{ m.role }}{% endfor %}",
    "namespace": "{% set n = namespace(c=0) %}{% for m in messages %}{% set n.c = n.c + 1 %}"
    "{% endfor %}{{ n.c }}",
    "tokens": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
    "year": "{{ strftime_now('%Y') }}",
    "undefined": "{{ nothing }}{% if documents %}docs{% endif %}"
    "{% if custom is defined %}{{ custom }}{% endif %}",
    "tool-none": "{% if tools is none %}no tools{% else %}{{ tools | length }}{% endif %}",
}


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_renders_as_transformers(name: str, prompt: bool, tools: Any) -> None:
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    expected, _ = render_jinja_template(
        conversations=[MESSAGES],
        tools=tools,
        chat_template=TEMPLATES[name],
        add_generation_prompt=prompt,
        custom="extra",
        **tokens,
    )
    got = render(
        TEMPLATES[name],
        MESSAGES,
        add_generation_prompt=prompt,
        tools=tools,
        extra_context={"custom": "extra"},
        **tokens,
    )
    assert got == expected[0]


def test_refusal_of_the_template_is_the_error() -> None:
    template = "{{ raise_exception('Roles must alternate!') }}"
    with pytest.raises(ValueError, match="Roles must alternate!"):
        render(template, MESSAGES, add_generation_prompt=False)


def test_syntax_error_names_the_line() -> None:
    with pytest.raises(ValueError, match="line 2"):
        render("fine\n{% if %}", MESSAGES, add_generation_prompt=False)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.append({}) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ messages[0].update({'role': 'x'}) }}",
    ],
)
def test_sandbox_refuses_what_reaches_out(template: str) -> None:
    messages = [dict(message) for message in MESSAGES]
    with pytest.raises(ValueError):
        render(template, messages, add_generation_prompt=False)
    assert messages == MESSAGES


@pytest.mark.parametrize("template", ["{{ 1 / 0 }}", "{{ messages[0].content + 1 }}"])
def test_failing_expressions_are_value_errors(template: str) -> None:
    with pytest.raises(ValueError, match="chat template"):
        render(template, MESSAGES, add_generation_prompt=False)
