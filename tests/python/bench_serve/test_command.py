"""`pagewheel bench-serve` as it is called, against a known server and against pagewheel's own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import Result
from known_server import Behaviour, known_server
from serve.serving import serving, tiny_settings
from typer.testing import CliRunner
from waiting import eventually

from pagewheel.cli.app import app

COMMAND = [sys.executable, "-c", "from pagewheel.cli import main; main()"]


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench-serve", *arguments])


def test_result_and_chart_have_each_load(tmp_path: Path) -> None:
    output, chart = tmp_path / "result.json", tmp_path / "chart.svg"
    with known_server(Behaviour(first_seconds=0.02, tokens=3)) as server:
        url = server.url.removesuffix("/v1")
        options = ("--rate", "30", "--rate", "60", "--requests", "9", "--goal", "ttft=5s")
        result = bench("--url", url, *options, "-o", str(output), "--chart", str(chart))
    assert result.exit_code == 0, result.stderr
    assert "30 a second" in result.stdout
    found = json.loads(output.read_text())
    assert found["model"] == "known"
    assert [load["rate"] for load in found["loads"]] == [30, 60]
    for load in found["loads"]:
        assert load["num_answered"] == load["num_within_goals"] == len(load["requests"]) == 9
        assert 0.02 <= load["first_token"]["percentiles"]["p50"] < 1
        assert 0 < load["client_cpu_seconds"] < load["seconds"] * 2
    picture = ElementTree.parse(chart).getroot()
    texts = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {
        "Time to first token",
        "p99",
        "within the goals",
        "conversations begun a second",
    } <= set(texts)


def test_ctrl_c_gives_what_was_measured(tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    options = ["--concurrency", "2", "--requests", "1000", "--warm-up", "0", "-o", str(output)]
    with known_server(Behaviour(first_seconds=0.05, tokens=2)) as server:
        command = [*COMMAND, "bench-serve", "--url", server.url, *options]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            eventually(lambda: len(server.bodies) >= 10)
            process.send_signal(signal.SIGINT)
            shown, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "interrupted" in shown
    (load,) = json.loads(output.read_text())["loads"]
    assert load["is_partial"]
    assert 4 <= load["num_answered"] < 1000
    assert load["num_answered"] + load["num_cut_off"] <= len(server.bodies)


def test_a_server_that_cannot_be_asked_ends_it_with_one_line() -> None:
    result = bench("--url", "http://127.0.0.1:9")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "127.0.0.1:9" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rate", "1", "--concurrency", "1"], "not both"),
        (["--rate", "0"], "above 0"),
        (["--goal", "speed=1s"], "ttft, tpot, e2e"),
        (["--goal", "ttft=soon"], "soon"),
        (["--goal", "ttft"], "NAME=TIME"),
        (["--api", "images"], "chat, completions"),
        (["--url", "localhost:8000"], "http://127.0.0.1:8000"),
        (["--prompts", "/nothing/here"], "/nothing/here"),
    ],
)
def test_a_wrong_option_is_named(options: list[str], message: str) -> None:
    with known_server(Behaviour()) as server:
        url = [] if "--url" in options else ["--url", server.url]
        result = bench(*url, *options)
    assert result.exit_code in (1, 2)
    assert message in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_pagewheels_own_server_is_measured(tiny_folder: Path, tmp_path: Path, api: str) -> None:
    output = tmp_path / "result.json"
    with serving(tiny_settings(tiny_folder)) as served:
        options = ["--concurrency", "4", "--requests", "8", "--max-tokens", "20", "--api", api]
        options += ["--prompt-tokens", "20", "--shared-tokens", "30", "--field", "ignore_eos=true"]
        result = bench("--url", served.url, *options, "-o", str(output))
        assert result.exit_code == 0, result.stderr
        (load,) = json.loads(output.read_text())["loads"]
        assert load["num_answered"] == 8
        assert load["completion_tokens"] == 160
        assert load["cached_tokens"] > 0  # of the shared system message
        assert load["counts_are_given"]
        # The server counted the warm-up, too.
        assert served.metric("pagewheel:generation_tokens_total") == 180
