"""The command line. Generation needs the built extension and the default model."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

typer_testing = pytest.importorskip("typer.testing")
pytest.importorskip("pagewheel.cli.app")

from pagewheel.cli.app import app  # noqa: E402
from pagewheel.cli.chat import Chat  # noqa: E402
from pagewheel.cli.failures import one_line  # noqa: E402
from pagewheel.cli.info import read_info  # noqa: E402
from pagewheel.cli.options import Sampling, parse_properties  # noqa: E402
from pagewheel.cli.pipeline import Interrupt  # noqa: E402


def run(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from pagewheel.cli import main; main()", *arguments]
    return subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=300, encoding="utf-8"
    )


def invoke(*arguments: str):  # type: ignore[no-untyped-def]
    return typer_testing.CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("command", ["generate", "chat", "convert", "info"])
def test_every_command_has_help_with_examples(command: str) -> None:
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert "Examples" in result.output
    assert f"pagewheel {command}" in result.output


def test_the_commands_load_nothing_heavy_until_they_run() -> None:
    code = (
        "import sys, pagewheel\n"
        "before = set(sys.modules)\n"
        "import pagewheel.cli.app\n"
        "heavy = {'openvino', 'numpy', 'gguf', 'pagewheel.convert'}\n"
        "assert not heavy & (set(sys.modules) - before)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["generate"],
        ["generate", "hello", "--no-such-option"],
        ["generate", "hello", "--max-new-tokens", "0"],
        ["generate", "hello", "--property", "no equals sign"],
        ["convert"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["generate", "hello", "--model", "missing.gguf"],
        ["convert", "missing.gguf"],
        ["info", "missing.gguf"],
    ],
)
def test_a_missing_model_is_one_line_and_exit_code_1(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.returncode == 1
    assert result.stdout == ""
    assert "missing.gguf" in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_debug_shows_the_traceback() -> None:
    result = run("--debug", "info", "missing.gguf")
    assert result.returncode == 1
    assert "Traceback" in result.stderr


def test_an_error_without_a_message_is_named_by_its_type() -> None:
    assert one_line(ValueError()) == "ValueError"
    assert one_line(ValueError("two\n  lines")) == "two lines"


def test_properties_have_types() -> None:
    found = parse_properties(["A=1", "B=0.5", "C=true", "D=x=y", "E="])
    assert found == {"A": 1, "B": 0.5, "C": True, "D": "x=y", "E": ""}


class Config:
    do_sample = False
    temperature = 1.0
    max_new_tokens = 0
    rng_seed = 0


def test_an_option_of_sampling_turns_sampling_on() -> None:
    config = Config()
    Sampling(5, temperature=0.5).apply(config)
    assert (config.max_new_tokens, config.do_sample, config.temperature) == (5, True, 0.5)


def test_greedy_wins_over_options_of_sampling() -> None:
    config = Config()
    Sampling(5, do_sample=False, rng_seed=3).apply(config)
    assert (config.do_sample, config.rng_seed) == (False, 3)


def tiny_model(folder: Path) -> Path:
    """An IR folder with one f32 constant of 2 x 3."""
    openvino = pytest.importorskip("openvino")
    opset = pytest.importorskip("openvino.opset13")
    numpy = pytest.importorskip("numpy")
    parameter = opset.parameter([2, 3], numpy.float32)
    total = opset.add(parameter, opset.constant(numpy.arange(6, dtype="f4").reshape(2, 3)))
    model = openvino.Model([total], [parameter])
    openvino.save_model(model, folder / "openvino_model.xml", compress_to_fp16=False)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_size": 32,
        "vocab_size": 100,
        "max_position_embeddings": 64,
        "rope_theta": 5000.0,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def test_info_reads_shape_weights_and_cache_size(tmp_path: Path) -> None:
    info = read_info(tiny_model(tmp_path))
    assert (info.layers, info.heads, info.kv_heads, info.head_size) == (2, 4, 2, 8)
    assert info.rotary == {"theta": 5000.0}
    assert info.weights["f32"].bytes == 24
    assert info.kv_cache_bytes_per_token == {"f32": 256, "f16": 128, "u8": 64}


def test_info_prints_json(tmp_path: Path) -> None:
    result = invoke("info", str(tiny_model(tmp_path)), "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["architecture"] == "LlamaForCausalLM"


def test_info_says_what_a_config_does_not_state(tmp_path: Path) -> None:
    (tiny_model(tmp_path) / "config.json").unlink()
    result = invoke("info", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "not stated" in result.stdout


def test_the_first_interrupt_is_noted_and_the_second_raises() -> None:
    with Interrupt() as interrupt:
        assert not interrupt.requested
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


class History(list[dict[str, str]]):
    """In place of a ChatHistory."""


class Status:
    RUNNING = 0
    CANCEL = 2


class Pipeline:
    """Answers each question with five words, unless told to stop; Ctrl-C at the second."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def get_generation_config(self) -> Config:
        return Config()

    def generate(self, history: History, config: Config, streamer):  # type: ignore[no-untyped-def]
        self.seen.append([message["content"] for message in history])
        for word in ["one ", "two ", "three ", "four ", "five"]:
            if word == "two " and history[-1]["content"] == "stop":
                os.kill(os.getpid(), signal.SIGINT)
            if streamer(word) == Status.CANCEL:
                break


def talk(monkeypatch: pytest.MonkeyPatch, text: str) -> list[list[str]]:
    """What the pipeline saw each time."""
    monkeypatch.setattr("pagewheel.ChatHistory", History, raising=False)
    monkeypatch.setattr("pagewheel.StreamingStatus", Status, raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    pipeline = Pipeline()
    Chat(pipeline, Sampling(5), "be short", stats=False).run()
    return pipeline.seen


def test_chat_keeps_history_until_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = "one two three four five"
    assert talk(monkeypatch, "a\n\nb\n/reset\nc\n/quit\nd\n") == [
        ["be short", "a"],
        ["be short", "a", answer, "b"],
        ["be short", "c"],
    ]


def test_an_interrupt_ends_the_answer_and_not_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    assert talk(monkeypatch, "stop\ngo on\n")[1] == ["be short", "stop", "one two ", "go on"]


needs_engine = pytest.mark.skipif(
    not hasattr(pytest.importorskip("pagewheel"), "LLMPipeline"), reason="extension not built"
)


@needs_engine
def test_info_of_the_default_model() -> None:
    result = run("info", "--json")
    assert result.returncode == 0, result.stderr
    info = json.loads(result.stdout)
    assert (info["layers"], info["heads"], info["kv_heads"], info["head_size"]) == (30, 9, 3, 64)


@needs_engine
def test_generate_streams_text_and_keeps_statistics_apart() -> None:
    result = run("generate", "--greedy", "-n", "8", "--stats", "What is the capital of France?")
    assert result.returncode == 0, result.stderr
    assert "Paris" in result.stdout
    assert "tokens out" in result.stderr and "tokens out" not in result.stdout


@needs_engine
def test_generate_reads_the_prompt_from_standard_input() -> None:
    asked = ["generate", "--greedy", "-n", "8", "--raw"]
    prompt = "The capital of France is"
    assert run(*asked, "-", text=prompt).stdout == run(*asked, prompt).stdout != ""


@needs_engine
def test_the_same_seed_draws_the_same_text() -> None:
    asked = ["generate", "-n", "12", "--temperature", "1.5", "--seed", "7", "Tell me a story."]
    assert run(*asked).stdout == run(*asked).stdout != ""


@needs_engine
def test_an_unknown_device_is_one_line() -> None:
    result = run("generate", "hello", "--device", "NO_SUCH_DEVICE")
    assert result.returncode == 1
    assert result.stderr.count("error: ") == 1
    assert "Traceback" not in result.stderr


@needs_engine
def test_chat_remembers_resets_and_ends_with_its_input() -> None:
    result = run("chat", "--greedy", "-n", "8", text="My name is Ada.\n/reset\nHi.\n")
    assert result.returncode == 0, result.stderr
    assert len([line for line in result.stdout.splitlines() if line.strip()]) >= 2
