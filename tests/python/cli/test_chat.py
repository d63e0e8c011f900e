"""`pagewheel chat`: history, interrupts and the end of input."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import run
from convert import tiny_llama

import pagewheel
from pagewheel.cli.chat import Chat, LocalModel
from pagewheel.cli.generation_options import Sampling
from pagewheel.convert import convert


class Recorder:
    """A pipeline that notes the contents of each history it is given.

    While it answers "stop" it is interrupted, as by Ctrl-C, after two pieces of text.
    """

    def __init__(self, pipeline: pagewheel.LLMPipeline) -> None:
        self._pipeline = pipeline
        self.seen: list[list[str]] = []

    def get_generation_config(self) -> pagewheel.GenerationConfig:
        return self._pipeline.get_generation_config()

    def generate(
        self,
        history: pagewheel.ChatHistory,
        config: pagewheel.GenerationConfig,
        streamer: Callable[[str], None],
    ) -> pagewheel.DecodedResults:
        contents = [message["content"] for message in history.get_messages()]
        self.seen.append(contents)
        pieces: list[str] = []

        def stream(piece: str) -> None:
            streamer(piece)
            pieces.append(piece)
            if contents[-1] == "stop" and len(pieces) == 2:
                os.kill(os.getpid(), signal.SIGINT)

        return self._pipeline.generate(history, config, stream)


def talk(
    pipeline: pagewheel.LLMPipeline, monkeypatch: pytest.MonkeyPatch, text: str
) -> list[list[str]]:
    """The contents that the pipeline saw each time."""
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    recorder = Recorder(pipeline)
    sampling = Sampling({"max_new_tokens": 8, "do_sample": False})
    Chat(LocalModel(recorder, sampling, None), "be short", stats=False).run()
    return recorder.seen


def test_chat_keeps_history_until_reset(
    pipeline: pagewheel.LLMPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = talk(pipeline, monkeypatch, "Hello\n\nHow are you?\n/reset\nBye\n/quit\nlost\n")
    answer = seen[1][2]
    assert answer.strip() != ""
    assert seen == [
        ["be short", "Hello"],
        ["be short", "Hello", answer, "How are you?"],
        ["be short", "Bye"],
    ]


def test_an_interrupt_ends_the_answer_and_not_the_chat(
    pipeline: pagewheel.LLMPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = talk(pipeline, monkeypatch, "stop\ngo on\n")
    assert seen[1][:2] == ["be short", "stop"]
    assert 0 < len(seen[1][2].split()) < 4  # two pieces of the eight
    assert seen[1][3] == "go on"


@pytest.mark.usefixtures("default_model_is_converted")
def test_chat_remembers_resets_and_ends_with_its_input() -> None:
    result = run("chat", "--greedy", "-n", "8", text="My name is Ada.\n/reset\nHi.\n")
    assert result.returncode == 0, result.stderr
    assert len([line for line in result.stdout.splitlines() if line.strip()]) >= 2


@pytest.fixture(scope="module")
def short_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A context of 512 tokens, of which a letter is one."""
    folder = tmp_path_factory.mktemp("short")
    return convert(tiny_llama.write(folder / "a.gguf"), folder / "converted", progress=False)


QUESTIONS = "".join(f"Question {number}? {'why ' * 10}\n" for number in range(20))
TOLD = "the model forgets older parts"


def test_a_chat_goes_on_beyond_the_context_and_says_so_once(short_folder: Path) -> None:
    arguments = ("--model", str(short_folder), "--max-new-tokens", "8")
    chat = run("chat", *arguments, text=QUESTIONS)
    assert chat.returncode == 0
    assert chat.stderr.count(TOLD) == 1


@pytest.mark.parametrize(
    "options",
    [
        ("-p", "attention_backend=openvino", "-p", "KV_CACHE_PRECISION=u8"),  # cannot be rotated
        ("--eviction", "start=32,recent=32,max=128,rotate"),  # not within prompts
    ],
)
def test_a_chat_without_rotation_leaves_old_turns_out(
    short_folder: Path, options: tuple[str, ...]
) -> None:
    arguments = ("--model", str(short_folder), "--max-new-tokens", "8")
    chat = run("chat", *arguments, *options, text=QUESTIONS)
    assert chat.returncode == 0
    assert chat.stderr.count(TOLD) == 1


def test_a_question_that_is_too_long_alone_is_refused_and_the_chat_goes_on(
    short_folder: Path,
) -> None:
    options = ("--eviction", "start=32,recent=32,max=128,rotate", "--max-new-tokens", "8")
    text = f"Hello\n{'why ' * 300}\nHello\n"
    chat = run("chat", "--model", str(short_folder), *options, text=text)
    assert chat.returncode == 0
    assert chat.stderr.count("that question is too long: the prompt has ") == 1
    assert len(chat.stdout.splitlines()) == 2
