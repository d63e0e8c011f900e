"""`pagewheel generate` on the default model."""

from __future__ import annotations

import pytest
from command_line import run


def test_generate_streams_text_and_keeps_statistics_apart() -> None:
    result = run("generate", "--greedy", "-n", "8", "--stats", "Name the capital city of France.")
    assert result.returncode == 0, result.stderr
    assert "Paris" in result.stdout
    assert "tokens out" in result.stderr and "tokens out" not in result.stdout


@pytest.mark.usefixtures("default_model_is_converted")
def test_generate_reads_the_prompt_from_standard_input() -> None:
    asked = ["generate", "--greedy", "-n", "8", "--raw"]
    prompt = "The capital of France is"
    assert run(*asked, "-", text=prompt).stdout == run(*asked, prompt).stdout != ""


@pytest.mark.usefixtures("default_model_is_converted")
def test_the_same_seed_draws_the_same_text() -> None:
    asked = ["generate", "-n", "12", "--temperature", "1.5", "--seed", "7", "Tell me a story."]
    assert run(*asked).stdout == run(*asked).stdout != ""


@pytest.mark.usefixtures("default_model_is_converted")
@pytest.mark.parametrize(
    "options", [("--device", "NO_SUCH_DEVICE"), ("-p", "KV_CACHE_PRECISION=u9"), ("-p", "NOPE=1")]
)
def test_an_option_that_the_model_refuses_is_wrong_usage_in_one_line(
    options: tuple[str, ...],
) -> None:
    result = run("generate", "hello", *options)
    assert result.returncode == 2
    assert result.stderr.count("error: ") == 1
    assert "Traceback" not in result.stderr
