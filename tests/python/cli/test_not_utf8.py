"""Paths and text that are not UTF-8."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run
from convert import tiny_llama

NOT_UTF8 = os.fsdecode(b"x\xff")


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama.write(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


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
