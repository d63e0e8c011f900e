"""The program that renders chat templates for C++: beside transformers, and within its limits."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import test_real_chat_templates as real
import test_template_limits as limits

import pagewheel

ROOT = Path(__file__).parents[3]
PROGRAM = Path(pagewheel.__file__).parent / "lib" / "pagewheel-template"
# Templates whose chats with tools ask for what the tools here do not have. Jinja refuses that, the
# program renders nothing in its place. The number of such chats, of 32.
LENIENT = {"Apertus-8B-Instruct": 7, "llama-cpp-deepseek-r1": 8, "openai-gpt-oss-120b": 8}


def run(template: str, context: dict[str, Any], seconds: int = 11) -> tuple[str, str]:
    """The kind of the answer, empty where the limits ended the program, and what it says."""
    request = json.dumps({"template": template, "context": context}, ensure_ascii=False)
    ended = subprocess.run(
        [PROGRAM, str(512 << 20), str(seconds), str(16 << 20)],
        input=request.encode(),
        capture_output=True,
        timeout=20,
        check=False,
    )
    answer = ended.stdout.decode()
    return answer[:1], answer[1:]


def rendered(template: str, messages: list[dict[str, Any]], **options: Any) -> str | None:
    kind, text = run(template, {"messages": messages, "tools": None, "documents": None, **options})
    return text if kind == "T" else None


@pytest.mark.parametrize("path", real.TEMPLATES, ids=lambda path: path.stem)
def test_renders_as_transformers(path: Path) -> None:
    template = path.read_text(encoding="utf-8")
    tokens = {"bos_token": "<bos>", "eos_token": "<eos>"}
    lenient = 0
    for name, messages in real.CONVERSATIONS.items():
        for variant in real.VARIANTS:
            options = {"add_generation_prompt": False, **variant, **tokens}
            expected = real.outcome(real.reference, template, messages, **options)
            got = rendered(template, messages, **options)
            if expected is None and got is not None:
                lenient += 1
            else:
                assert got == expected, (name, variant)
    assert lenient == LENIENT.get(path.stem, 0)


@pytest.mark.parametrize("name", [*limits.ENDLESS, *limits.LARGE, *limits.FAILING])
def test_whatever_a_template_asks_for_the_program_ends(name: str) -> None:
    template = (limits.ENDLESS | limits.LARGE | limits.FAILING)[name]
    kind, text = run(template, {"messages": limits.MESSAGES}, seconds=1)
    assert kind in ("", "E", "M", "T")
    assert kind != "T" or len(text) < 10


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ messages.__class__ }}",
        "{{ self }}",
        "{{ context }}",
        "{{ raise_exception.__globals__ }}",
    ],
)
def test_nothing_is_behind_the_conversation(template: str) -> None:
    kind, text = run(template, {"messages": [{"role": "user", "content": "Hi"}]})
    assert kind == "E" or text == ""


def test_the_engine_is_the_one_that_was_taken() -> None:
    folder = ROOT / "thirdparty/llama.cpp"
    sums = (folder / "SHA256SUMS").read_text().splitlines()
    listed = {line.split("  ")[1]: line.split("  ")[0] for line in sums}
    there = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("SHA256SUMS", ".clang-format")
    }
    assert there == listed
