"""The command line, on the default model."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import openvino as ov
import openvino.opset13 as ops
import pytest
import typer
from convert import tiny_llama
from openvino_core import CORE
from typer.testing import CliRunner

import pagewheel
from pagewheel._pagewheel import generation_parameters
from pagewheel.cli.app import app
from pagewheel.cli.chat import Chat
from pagewheel.cli.failures import one_line
from pagewheel.cli.generation_options import generation_options, offered_parameters, spelling
from pagewheel.cli.info import operation_rows, read_info
from pagewheel.cli.options import parse_properties
from pagewheel.cli.sampling import Sampling


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama.write(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


def run(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from pagewheel.cli import main; main()", *arguments]
    return subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=300, encoding="utf-8"
    )


def invoke(*arguments: str):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("command", ["generate", "chat", "convert", "info", "trace"])
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


@pytest.mark.parametrize(
    "option",
    [
        "--seed=-1",
        f"--seed={2**64}",
        "--top-k=-1",
        "--top-p=1.5",
        "--temperature=nan",
        "--stop-criteria=SOON",
        f"--top-k={2**64}",
        f"--max-new-tokens={2**64}",
        f"--num-beams={2**64}",
        f"--property=INFERENCE_NUM_THREADS={2**64}",
    ],
)
def test_a_number_out_of_its_range_is_wrong_usage(option: str) -> None:
    result = invoke("generate", "hello", "--model", "missing.gguf", option)
    assert result.exit_code == 2
    assert option.split("=")[0] in result.output
    assert "pagewheel._pagewheel" not in result.output


@pytest.mark.parametrize("option", ["--start-size", "--recent-size", "--max-cache-size"])
@pytest.mark.parametrize("value", [-1, 2**64])
def test_sizes_of_a_trace_out_of_their_range_are_wrong_usage(
    tmp_path: Path, option: str, value: int
) -> None:
    result = invoke("trace", "hello", "-o", str(tmp_path), f"{option}={value}")
    assert result.exit_code == 2
    assert option in result.output


NOT_UTF8 = os.fsdecode(b"x\xff")


def test_a_path_that_is_not_utf8_works(
    tiny_gguf: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    model = tmp_path / f"{NOT_UTF8}.gguf"
    model.write_bytes(tiny_gguf.read_bytes())
    output = tmp_path / f"{NOT_UTF8}-out"
    for arguments in (
        ["convert", "-q", model, output],
        ["info", "--ops", output],
        ["generate", "-n", "2", "--greedy", "-m", model, "Hi"],
        ["generate", "-n", "2", "--greedy", "-m", output, "Hi"],
    ):
        command = [sys.executable, "-c", "from pagewheel.cli import main; main()", *arguments]
        # No C locale, in which Python writes any name.
        environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
        assert subprocess.run(command, timeout=300, env=environment, check=False).returncode == 0
    written, errors = capfdbinary.readouterr()
    assert os.fsencode(output) in written
    assert b"Unable to cast" not in errors


def test_a_missing_model_that_is_not_utf8_is_one_line(tmp_path: Path) -> None:
    for command in (["generate", "hello", "-m"], ["info"], ["convert"]):
        result = run(*command, str(tmp_path / NOT_UTF8))
        assert result.returncode == 1
        assert "no such model" in result.stderr
        assert result.stderr.count("\n") == 1


def test_text_that_is_not_utf8_is_named(tiny_gguf: Path) -> None:
    result = run("generate", "-m", str(tiny_gguf), NOT_UTF8)
    assert (result.returncode, result.stderr) == (1, "error: the prompt is not UTF-8\n")
    result = run("chat", "-m", str(tiny_gguf), "--system", NOT_UTF8, text="")
    assert (result.returncode, result.stderr) == (1, "error: --system is not UTF-8\n")
    command = [sys.executable, "-c", "from pagewheel.cli import main; main()"]
    for arguments, words in (
        (["generate", "-m", str(tiny_gguf), "-"], b"standard input is not UTF-8"),
        (["chat", "-n", "2", "-m", str(tiny_gguf)], b"that line is not UTF-8"),
    ):
        done = subprocess.run(
            command + arguments, input=b"x\xff\nHi\n", capture_output=True, timeout=300
        )
        assert words in done.stderr
        assert (done.stdout.strip() != b"") == ("chat" in arguments)  # which goes on


@pytest.mark.parametrize("name", ["config.json", "pagewheel.json"])
@pytest.mark.parametrize("text", ["[" * 200_000, "[]", "{", '{"a":' * 200_000, "\xff"])
def test_info_of_a_damaged_folder_is_one_line(tmp_path: Path, name: str, text: str) -> None:
    (tiny_model(tmp_path) / name).write_bytes(text.encode("latin-1"))
    result = invoke("info", str(tmp_path))
    assert result.exit_code == 1
    assert name in result.stderr and result.stderr.startswith("error: ")


def test_info_says_that_a_value_has_the_wrong_type(tmp_path: Path) -> None:
    text = json.dumps({"num_attention_heads": "four", "hidden_size": "many"})
    (tiny_model(tmp_path) / "config.json").write_text(text, encoding="utf-8")
    result = invoke("info", str(tmp_path))
    assert result.exit_code == 1
    assert "is damaged: TypeError" in result.stderr
    with pytest.raises(ValueError, match="is damaged: TypeError") as caught:
        read_info(tmp_path)
    assert isinstance(caught.value.__cause__, TypeError)


def test_properties_have_types() -> None:
    found = parse_properties(["A=1", "B=0.5", "C=true", "D=x=y", "E="])
    assert found == {"A": 1, "B": 0.5, "C": True, "D": "x=y", "E": ""}


def applied(**given: object) -> pagewheel.GenerationConfig:
    config = pagewheel.GenerationConfig()
    Sampling(given).apply(config)
    return config


def test_an_option_of_sampling_turns_sampling_on() -> None:
    config = applied(max_new_tokens=5, temperature=0.5)
    assert (config.max_new_tokens, config.do_sample, config.temperature) == (5, True, 0.5)
    assert not applied(max_new_tokens=5, repetition_penalty=1.5).do_sample


def test_greedy_wins_over_options_of_sampling() -> None:
    config = applied(do_sample=False, rng_seed=3)
    assert (config.do_sample, config.rng_seed) == (False, 3)


def test_beams_win_over_a_model_that_samples() -> None:
    config = pagewheel.GenerationConfig(do_sample=True)
    Sampling({"num_beams": 3}).apply(config)
    assert (config.do_sample, config.num_beams) == (False, 3)


def options_of(command: str) -> dict[str, str]:
    """Help by option."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return {
        name: getattr(option, "help", None) or ""
        for option in group.commands[command].params
        for name in option.opts
    }


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_every_parameter_of_generation_is_an_option_with_its_help(command: str) -> None:
    options = options_of(command)
    offered = offered_parameters(with_beams=command == "generate")
    assert len(offered) > 15
    for parameter in offered:
        text = options[spelling(parameter)]
        assert text.startswith(parameter.help), parameter.name
        assert parameter.allowed in text, parameter.name


def test_what_a_command_that_prints_one_text_has_no_use_for_is_no_option() -> None:
    offered = {parameter.name for parameter in offered_parameters()}
    assert offered < {each.name for each in generation_parameters()}
    assert not offered & {"logprobs", "num_return_sequences", "cache_salt"}


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        (["--top-p", "0.5"], "top_p", 0.5),
        (["--stop-strings", "a", "--stop-strings", "b"], "stop_strings", {"a", "b"}),
        (["--stop-token-ids", "7"], "stop_token_ids", {7}),
        (["--stop-criteria", "NEVER"], "stop_criteria", pagewheel.StopCriteria.NEVER),
        (["--no-ignore-eos"], "ignore_eos", False),
        (["--ignore-eos"], "ignore_eos", True),
        (["--seed", str(2**64 - 1)], "rng_seed", 2**64 - 1),
        ([], "max_new_tokens", 3),
    ],
)
def test_options_become_parameters_of_their_types(
    given: list[str], name: str, value: object
) -> None:
    small = typer.Typer()
    seen: list[Sampling] = []

    @small.command()
    @generation_options(max_new_tokens=3)
    def command(sampling: Sampling) -> None:
        seen.append(sampling)

    result = CliRunner().invoke(small, given)
    assert result.exit_code == 0, result.output
    config = pagewheel.GenerationConfig()
    seen[0].apply(config)
    assert getattr(config, name) == value


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
    assert info.kv_cache_bytes_per_token == {"f32": 256, "f16": 128, "u8": 64, "u4": 32}


def test_info_counts_each_layer_of_a_model_whose_layers_differ(tmp_path: Path) -> None:
    """Four layers of two kinds, of which two read the caches of the others."""
    config = {
        "model_type": "gemma4_text",
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "global_head_dim": 16,
        "hidden_size": 32,
        "intermediate_size": 32,
        "vocab_size": 100,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "sliding_window": 24,
    }
    (tiny_model(tmp_path) / "config.json").write_text(json.dumps(config), encoding="utf-8")
    info = read_info(tmp_path)
    assert info.kv_cache_bytes_per_token["f16"] == 2 * (2 * 2 * 8 + 2 * 2 * 16)
    assert info.windows == {0: 2, 24: 2}
    text = invoke("info", str(tmp_path)).stdout
    assert "24 in 2 layers" in text


def test_info_prints_json(tmp_path: Path) -> None:
    result = invoke("info", str(tiny_model(tmp_path)), "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["architecture"] == "LlamaForCausalLM"


def test_info_says_what_fast_prefill_trims(tiny_folder: Path) -> None:
    """Of the last of two layers all but keys and values."""
    result = invoke("info", "--ops", "--json", str(tiny_folder))
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["fast_prefill"]
    assert (found["layers"], found["attention_nodes"]) == (1, 1)
    assert 0.3 < found["work_skipped"] < 0.5
    text = invoke("info", "--ops", str(tiny_folder)).stdout
    share = f"{found['work_skipped']:.1%}"
    assert f"fast prefill        trims 1 layer, 1 attention node: {share} of a prompt's" in text
    assert all(why in text for why in found["why"])


@pytest.mark.parametrize(
    ("layers", "attention_nodes", "work_skipped", "why", "lines"),
    [
        (3, 2, 0.6195, [], ["trims 3 layers, 2 attention nodes: 62.0% of a prompt's work"]),
        (0, 0, 0.125, ["Abs_1 is why"], ["trims less than a layer: 12.5% of", "Abs_1 is why"]),
        (0, 0, 0.0, ["Abs_1 is why", "so is TopK_2"],
         ["trims nothing", "Abs_1 is why", "so is TopK_2"]),
        (0, 0, 0.0, [], ["trims nothing"]),
    ],
)  # fmt: skip
def test_info_prints_what_is_trimmed_and_why_not_more(
    layers: int, attention_nodes: int, work_skipped: float, why: list[str], lines: list[str]
) -> None:
    found = {
        "layers": layers,
        "attention_nodes": attention_nodes,
        "work_skipped": work_skipped,
        "why": why,
    }
    operations = {"operations": {}, "left_to_openvino": [], "fast_prefill": found}
    ((label, text),) = operation_rows(operations)
    assert label == "fast prefill"
    assert len(text.splitlines()) == len(lines)
    for got, expected in zip(text.splitlines(), lines, strict=True):
        assert got.startswith(expected)


def test_info_says_what_keeps_more_from_being_trimmed(tiny_folder: Path, tmp_path: Path) -> None:
    """By an operation of no known rule before the vocabulary's matrix."""
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "folder"))
    model = CORE.read_model(tiny_folder / "openvino_model.xml")
    head = model.get_results()[0].input_value(0).get_node()
    assert head.get_type_name() == "MatMul"
    rolled = ops.roll(head.input_value(0), ops.constant(0), ops.constant(1))
    rolled.set_friendly_name("the_roll")
    head.input(0).replace_source_output(rolled.output(0))
    ov.save_model(model, folder / "openvino_model.xml", compress_to_fp16=False)
    text = invoke("info", "--ops", str(folder)).stdout
    assert "fast prefill        trims nothing\n" in text
    assert "the_roll (Roll) is not known to keep tokens apart" in text


def test_info_without_operations_says_nothing_of_them(tiny_folder: Path) -> None:
    assert "fast_prefill" not in json.loads(invoke("info", "--json", str(tiny_folder)).stdout)
    assert "fast prefill" not in invoke("info", str(tiny_folder)).stdout


def test_info_says_what_a_config_does_not_state(tmp_path: Path) -> None:
    (tiny_model(tmp_path) / "config.json").unlink()
    result = invoke("info", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "not stated" in result.stdout


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
    Chat(recorder, sampling, "be short", stats=False).run()
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


def test_info_of_the_default_model() -> None:
    result = run("info", "--json")
    assert result.returncode == 0, result.stderr
    info = json.loads(result.stdout)
    assert (info["layers"], info["heads"], info["kv_heads"], info["head_size"]) == (30, 9, 3, 64)


def test_generate_streams_text_and_keeps_statistics_apart() -> None:
    result = run("generate", "--greedy", "-n", "8", "--stats", "Name the capital city of France.")
    assert result.returncode == 0, result.stderr
    assert "Paris" in result.stdout
    assert "tokens out" in result.stderr and "tokens out" not in result.stdout


def test_generate_reads_the_prompt_from_standard_input() -> None:
    asked = ["generate", "--greedy", "-n", "8", "--raw"]
    prompt = "The capital of France is"
    assert run(*asked, "-", text=prompt).stdout == run(*asked, prompt).stdout != ""


def test_the_same_seed_draws_the_same_text() -> None:
    asked = ["generate", "-n", "12", "--temperature", "1.5", "--seed", "7", "Tell me a story."]
    assert run(*asked).stdout == run(*asked).stdout != ""


def test_an_unknown_device_is_one_line() -> None:
    result = run("generate", "hello", "--device", "NO_SUCH_DEVICE")
    assert result.returncode == 1
    assert result.stderr.count("error: ") == 1
    assert "Traceback" not in result.stderr


def test_chat_remembers_resets_and_ends_with_its_input() -> None:
    result = run("chat", "--greedy", "-n", "8", text="My name is Ada.\n/reset\nHi.\n")
    assert result.returncode == 0, result.stderr
    assert len([line for line in result.stdout.splitlines() if line.strip()]) >= 2
