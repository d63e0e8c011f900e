"""What a newcomer does on the first day, with commands and clients as they are installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Literal

import anthropic
import instructor
import ollama
import openai
import pytest
from asking import HELLO
from convert import tiny_llama
from fake_hub import FakeHub
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from page_browser import ended, launched, limit, needs_chromium, opened, send
from playwright.sync_api import expect
from pydantic import BaseModel, SecretStr
from server_process import started

NAME = "owner/tiny-GGUF:Q8_0"


class Place(BaseModel):
    name: Literal["Rome", "Oslo"]
    is_large: bool


@pytest.fixture
def named(hub: FakeHub, tmp_path: Path) -> str:
    metadata = {"llama.context_length": 1024}
    path = tiny_llama.write(tmp_path / "tiny-Q8_0.gguf", metadata=metadata)
    hub.repositories["owner/tiny-GGUF"] = {"tiny-Q8_0.gguf": path.read_bytes()}
    return NAME


def output_of(*arguments: str, text: str = "") -> str:
    command = [sys.executable, "-m", "pagewheel", *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ask_with_openai(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        chat = client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=8)
        assert chat.choices[0].message.content
        assert client.responses.create(model="tiny", input="Hello", max_output_tokens=8).output_text


def ask_with_anthropic(url: str) -> None:
    with anthropic.Anthropic(base_url=url, api_key="none") as client:
        message = client.messages.create(model="tiny", messages=HELLO, max_tokens=8)
        assert message.content[0].type == "text"


def ask_with_instructor(url: str) -> None:
    """By a tool, though the model's template knows none."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as plain:
        client = instructor.from_openai(plain, mode=instructor.Mode.TOOLS)
        place = client.chat.completions.create(
            model="tiny",
            messages=HELLO,
            response_model=Place,
            max_tokens=300,
        )
    assert isinstance(place, Place)


def ask_with_ollama(url: str) -> None:
    client = ollama.Client(host=url)
    assert [each.model for each in client.list().models] == ["tiny"]
    assert client.chat("tiny", HELLO, options={"num_predict": 8}).message.content


def ask_with_langchain(url: str, ollamas: str) -> None:
    key = SecretStr("none")
    model = ChatOpenAI(model="tiny", base_url=f"{url}/v1", api_key=key, max_completion_tokens=8)
    assert model.invoke("Hello").content
    assert ChatOllama(model="tiny", base_url=ollamas, num_predict=8).invoke("Hello").content


def chat_in_a_browser(url: str) -> None:
    """Beyond the context, a third of which each question takes."""
    with launched() as browser, opened(url, browser) as page:
        limit(page, 8)
        for _ in range(5):
            send(page, "why " * 80)
            ended(page)
        expect(page.locator("article.assistant")).to_have_count(5)
        expect(page.get_by_text("the model forgets older parts")).to_have_count(1)


@needs_chromium
def test_a_newcomers_day(named: str) -> None:
    fetched = Path(output_of("pull", named, "--quiet").strip())
    assert fetched.is_file()
    (listed,) = json.loads(output_of("list", "--json"))
    assert (listed["name"], listed["is_whole"]) == (named, True)
    assert output_of("generate", "-m", named, "--max-new-tokens", "8", "Hello")
    with started(named, "--ollama-port", "0") as server:
        ours, ollamas = server.urls
        ask_with_openai(ours)
        ask_with_anthropic(ours)
        ask_with_instructor(ours)
        ask_with_ollama(ollamas)
        ask_with_langchain(ours, ollamas)
        chat_in_a_browser(ours)
    questions = "".join(f"Question {number}? {'why ' * 15}\n" for number in range(20))
    output_of("chat", "-m", named, "--max-new-tokens", "8", text=questions)
    assert "removed" in output_of("rm", named)
    assert json.loads(output_of("list", "--json")) == []
    assert not fetched.exists()
