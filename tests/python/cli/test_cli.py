"""Usage of every command: help, options, and errors in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import invoke, run

import pagewheel
from pagewheel.options import one_line, parse_properties


@pytest.mark.parametrize("command", ["generate", "chat", "convert", "info", "trace"])
def test_every_command_has_help_with_examples(command: str) -> None:
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert "Examples" in result.output
    assert f"pagewheel {command}" in result.output


@pytest.mark.parametrize("command", ["serve", "bench-serve"])
def test_the_help_names_the_extra_that_a_command_needs(command: str) -> None:
    result = invoke(command, "--help")
    assert "pip install 'pagewheel[serve]'" in " ".join(result.output.split())


def test_the_version_is_the_packages() -> None:
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.output.startswith(f"pagewheel {pagewheel.__version__}, OpenVINO 20")


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


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["convert", "missing.gguf", "--weight-format", "int5"], "--weight-format"),
        (["convert", "missing.gguf", "--group-size", "33"], "--group-size"),
        (["trace", "hello", "-o", "out", "--policy", "none"], "--policy"),
        (["trace", "hello", "-o", "out", "--granularity", "none"], "--granularity"),
        (["chat", "--server", "nowhere"], "--server"),
        (["bench-serve", "--url", "nowhere"], "--url"),
        (["serve", "missing.gguf", "--metrics-prefix", "1a"], "--metrics-prefix"),
        (["serve", "missing.gguf", "--api-key-file", "missing"], "--api-key-file"),
        (["serve", "missing.gguf", "--api-key-file", __file__], "--api-key-file"),
    ],
)
def test_a_value_that_is_checked_within_a_command_is_wrong_usage(
    arguments: list[str], named: str
) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert named in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["generate", "hello", "--regex", "("],
        ["generate", "hello", "--num-beams", "4", "--num-beam-groups", "3"],
        ["chat", "--regex", "("],
    ],
)
def test_values_that_the_engine_refuses_are_wrong_usage(
    tiny_folder: Path, arguments: list[str]
) -> None:
    result = invoke(*arguments, "--model", str(tiny_folder))
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output


def test_properties_have_types() -> None:
    found = parse_properties(["A=1", "B=0.5", "C=true", "D=x=y", "E="])
    assert found == {"A": 1, "B": 0.5, "C": True, "D": "x=y", "E": ""}
