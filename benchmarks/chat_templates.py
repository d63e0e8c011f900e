"""What rendering a chat costs: the process's start, then each turn.

    python -m benchmarks.chat_templates

Templates of tests/data/chat_templates and SmolLM2's; the least of many, milliseconds.
"""

from __future__ import annotations

import time
from pathlib import Path

from pagewheel.chat_template import render
from pagewheel.template_process import PROCESS

FOLDER = Path(__file__).parent.parent / "tests" / "data" / "chat_templates"
SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}"
)
ROUNDS = 200


def milliseconds(template: str, messages: list[dict[str, str]]) -> float:
    start = time.perf_counter()
    render(template, messages, add_generation_prompt=True)
    return (time.perf_counter() - start) * 1000


def talk(turns: int, characters: int) -> list[dict[str, str]]:
    content = ("Some words of a chat. " * (characters // 20))[:characters]
    return [{"role": ("user", "assistant")[i % 2], "content": content} for i in range(turns)]


def main() -> None:
    starts = []
    for _ in range(10):
        PROCESS.end()
        starts.append(milliseconds("", []))
    print(f"start of the process {min(starts):8.1f}")
    glm = (FOLDER / "GLM-4.6.jinja").read_text(encoding="utf-8")
    for name, template in (("SmolLM2", SMOLLM2), ("GLM-4.6", glm)):
        for turns, characters in ((1, 100), (201, 500), (201, 2000)):
            messages = talk(turns, characters)
            first = milliseconds(template, messages)
            turn = min(milliseconds(template, messages) for _ in range(ROUNDS))
            print(
                f"{name}, {turns:3} messages of {characters:4} characters: "
                f"first {first:6.2f}, then {turn:6.2f}"
            )


if __name__ == "__main__":
    main()
