"""Chat formats written as pieces render exactly what the Jinja template renders, or are None."""

from __future__ import annotations

from itertools import product

import pytest

from pagewheel.chat_template import render
from pagewheel.convert.chat_format import derive_chat_format

CHATML_WITH_DEFAULT = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WITH_BOS = (
    "{{ bos_token }}{% for m in messages %}{{ '[' + m.role + ']' + m.content + eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '[assistant]' }}{% endif %}"
)
NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
    "{% endif %}{{ '<' + m.role + '>' + m.content + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)
TRIMMING = "{% for m in messages %}{{ '<' + m.role + '>' + (m.content | trim) }}{% endfor %}"
SYSTEM_INSIDE_USER = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ '[INST]' }}"
    "{% if messages[0].role == 'system' and loop.index0 == 1 %}{{ messages[0].content }}{% endif %}"
    "{{ m.content + '[/INST]' }}{% elif m.role == 'assistant' %}{{ m.content + '</s>' }}{% endif %}"
    "{% endfor %}"
)
ONLY_LAST_TURN_MARKED = (
    "{% for m in messages %}{{ '<' + m.role + '>' + m.content }}"
    "{% if loop.last %}{{ '<last>' }}{% endif %}{% endfor %}"
)
DATED = "{{ strftime_now('%Y') }}{% for m in messages %}{{ m.content }}{% endfor %}"


def talks(with_system: bool) -> list[list[dict[str, str]]]:
    contents = ["hi", "", " two\nlines\n", "çà 👩‍👩‍👧 {{x}}", "<|im_end|>\n", "\t\0"]
    result = []
    for length, shift in product(range(1, 6), range(len(contents))):
        talk = [
            {"role": "assistant" if i % 2 else "user", "content": contents[(i + shift) % 6]}
            for i in range(length)
        ]
        result.append(talk)
        if with_system:
            result.append([{"role": "system", "content": contents[shift]}, *talk])
    return result


@pytest.mark.parametrize("template", [CHATML_WITH_DEFAULT, WITH_BOS, NO_SYSTEM])
def test_pieces_make_what_the_template_renders(template: str) -> None:
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    chat_format = derive_chat_format(template, **tokens)
    assert chat_format is not None
    for talk in talks("system" in chat_format.roles):
        for prompt in (False, True):
            expected = render(template, talk, add_generation_prompt=prompt, **tokens)
            assert chat_format.render(talk, add_generation_prompt=prompt) == expected


def test_pieces_of_chatml_are_whole_turns() -> None:
    chat_format = derive_chat_format(CHATML_WITH_DEFAULT, bos_token="<|im_start|>", eos_token="")
    assert chat_format is not None
    assert chat_format.to_json() == {
        "prefix": "",
        "default_system": "<|im_start|>system\nBe kind.<|im_end|>\n",
        "roles": {
            role: {"before": f"<|im_start|>{role}\n", "after": "<|im_end|>\n"}
            for role in ("user", "assistant", "system")
        },
        "generation_prompt": "<|im_start|>assistant\n",
    }


def test_bos_is_the_prefix_and_not_a_default_system() -> None:
    chat_format = derive_chat_format(WITH_BOS, bos_token="<s>", eos_token="</s>")
    assert chat_format is not None
    assert (chat_format.prefix, chat_format.default_system) == ("<s>", None)


def test_template_without_system_role_has_none() -> None:
    chat_format = derive_chat_format(NO_SYSTEM, bos_token="", eos_token="")
    assert chat_format is not None
    assert set(chat_format.roles) == {"user", "assistant"}


@pytest.mark.parametrize(
    "template",
    [TRIMMING, SYSTEM_INSIDE_USER, ONLY_LAST_TURN_MARKED, DATED, "constant", "{% broken"],
)
def test_templates_that_pieces_cannot_write_give_none(template: str) -> None:
    assert derive_chat_format(template, bos_token="<s>", eos_token="</s>") is None
