"""`pagewheel serve` as a process: how it begins, and how it ends when it is told to."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_process import COMMAND, started
from typer.testing import CliRunner
from waiting import eventually

from pagewheel.cli.app import app

COMPLETIONS = "/v1/completions"
# SmolLM2 is still at it whenever a test looks; the tiny model has it in a tenth of a second.
LONG = {"prompt": "a", "max_tokens": 3900, "ignore_eos": True}
CLIENTS = 24
# What a client sees whose connection ends.
NO_ANSWER = {"ReadError", "WriteError", "RemoteProtocolError"}


def ask_later(url: str, body: dict[str, Any]) -> tuple[threading.Thread, list[Any]]:
    """The answer, or what was raised, is put into the list."""
    answers: list[Any] = []

    def ask() -> None:
        try:
            answers.append(httpx.post(url + COMPLETIONS, json=body, timeout=60))
        except httpx.HTTPError as error:
            answers.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, answers


def running(url: str) -> int:
    """Requests, by /metrics."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    (line,) = [each for each in lines if ":num_requests_running{" in each]
    return int(float(line.rpartition(" ")[2]))


def test_after_sigterm_running_requests_end_and_none_is_let_in(smollm2_folder: Path) -> None:
    with started(smollm2_folder) as server:
        thread, answers = ask_later(server.url, {**LONG, "max_tokens": 300})
        eventually(lambda: running(server.url) == 1)
        server.process.send_signal(signal.SIGTERM)
        server.event("shutting down")
        with pytest.raises(httpx.HTTPError):
            httpx.post(server.url + COMPLETIONS, json=LONG, timeout=5)
        thread.join(60)
        assert answers[0].status_code == 200
        assert answers[0].json()["usage"]["completion_tokens"] == 300
        assert server.ended() == 0


@pytest.mark.parametrize("stream", [True, False])
def test_what_does_not_end_in_time_is_told_so(smollm2_folder: Path, stream: bool) -> None:
    with started(smollm2_folder, "--shutdown-timeout", "0.2s") as server:
        body = {**LONG, "n": 8, "temperature": 1.0, "stream": stream}
        thread, answers = ask_later(server.url, body)
        eventually(lambda: running(server.url) == 1)
        server.process.send_signal(signal.SIGTERM)
        thread.join(60)
        if stream:
            last = answers[0].text.strip().rpartition("data: ")[2]
            assert json.loads(last)["error"]["code"] == "shutting_down"
        else:
            assert answers[0].status_code == 503
            assert answers[0].json()["error"]["code"] == "shutting_down"
        assert server.ended() == 0


def test_ctrl_c_ends_it_as_interrupted_without_a_traceback(tiny_folder: Path) -> None:
    with started(tiny_folder) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.ended() == 130
        assert not [line for line in server.lines if "Traceback" in line]


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_running_requests_and_tells_them(
    smollm2_folder: Path, second: signal.Signals
) -> None:
    with started(smollm2_folder) as server:
        thread, answers = ask_later(server.url, {**LONG, "n": 8, "temperature": 1.0})
        eventually(lambda: running(server.url) == 1)
        server.process.send_signal(signal.SIGTERM)
        server.event("shutting down")
        server.process.send_signal(second)
        thread.join(10)
        assert answers[0].status_code == 503
        assert answers[0].json()["error"]["code"] == "shutting_down"
        assert server.ended(10) == (0 if second == signal.SIGTERM else 130)


def ask_for_ever(url: str, tokens: int, stream: bool, outcomes: list[str]) -> None:
    """Until the server cannot be reached. What is neither an answer nor an error is "lost"."""
    body = {"prompt": "a", "max_tokens": tokens, "ignore_eos": True, "stream": stream}
    while True:
        try:
            answer = httpx.post(url + COMPLETIONS, json=body, timeout=60)
        except httpx.ConnectError:
            return
        except httpx.HTTPError as error:
            outcomes.append(type(error).__name__)
            continue
        outcomes.append(_outcome(answer))


@contextmanager
def load(url: str, tokens: int, outcomes: list[str]) -> Iterator[None]:
    """Of clients that ask until the server is gone, which is to be so when the block is left."""
    clients = [
        threading.Thread(target=ask_for_ever, args=(url, tokens, number % 2 == 0, outcomes))
        for number in range(CLIENTS)
    ]
    for client in clients:
        client.start()
    yield
    for client in clients:
        client.join(60)
        assert not client.is_alive()


def _outcome(answer: httpx.Response) -> str:
    if answer.status_code != 200:
        return str(answer.json()["error"]["code"])
    if answer.headers["content-type"] == "application/json":
        return "whole" if answer.json()["choices"][0]["finish_reason"] == "length" else "lost"
    events = answer.text.strip().split("\n\n")
    if events[-1] == "data: [DONE]":
        return "whole" if '"finish_reason":"length"' in events[-2] else "lost"
    last = json.loads(events[-1].rpartition("data: ")[2])
    return str(last["error"]["code"]) if "error" in last else "lost"


@pytest.mark.all_cores
@pytest.mark.parametrize(("limit", "tokens"), [("60s", 200), ("0.1s", 3900)])
def test_a_restart_under_load_loses_no_request_silently(
    tiny_folder: Path, limit: str, tokens: int
) -> None:
    outcomes: list[str] = []
    options = ("--shutdown-timeout", limit, "--scheduler", "max_num_seqs=16")  # others are queued
    with started(tiny_folder, *options) as server:
        with load(server.url, tokens, outcomes):
            eventually(lambda: running(server.url) == 16)
            server.process.send_signal(signal.SIGTERM)
        assert server.ended() == 0
        assert not server.failures()
    # A connection that was not accepted any more is an error that clients see, and try again.
    assert set(outcomes) <= {"whole", "shutting_down", *NO_ANSWER}
    assert ("whole" if limit == "60s" else "shutting_down") in outcomes
    assert sum(outcomes.count(each) for each in NO_ANSWER) <= 2 * CLIENTS


def hits(url: str, prompt: list[int]) -> int:
    body = {"prompt": prompt, "max_tokens": 1}
    answer = httpx.post(url + COMPLETIONS, json=body, timeout=60).json()
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])


@pytest.mark.all_cores
def test_prefixes_are_there_again_after_sigterm_and_after_kills_under_load(
    tiny_folder: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "saved"
    prompt = [5 + number % 200 for number in range(500)]
    options = ("--prefix-cache-dir", str(saved), "--prefix-cache-size", "1G")
    options += ("--shutdown-timeout", "0.1s")
    with started(tiny_folder, *options) as server:
        assert hits(server.url, prompt) == 0
        server.process.send_signal(signal.SIGTERM)
        assert server.ended() == 0
    outcomes: list[str] = []
    for is_saving in (False, True):  # when it is killed
        with started(tiny_folder, *options) as server:
            assert hits(server.url, prompt) == len(prompt) - 1
            answered = len(outcomes)
            with load(server.url, 50, outcomes):
                eventually(lambda at=answered: len(outcomes) > at + CLIENTS)
                if is_saving:
                    server.process.send_signal(signal.SIGTERM)
                    while not list(saved.glob(".saving-*")) and server.process.poll() is None:
                        pass  # it is there for a moment
                server.process.kill()
    with started(tiny_folder, *options) as server:
        assert hits(server.url, prompt) == len(prompt) - 1
    assert set(outcomes) <= {"whole", "shutting_down", *NO_ANSWER}
    assert "whole" in outcomes
    assert set(outcomes) & NO_ANSWER


def test_prompts_are_not_in_the_log_unless_asked_for(tiny_folder: Path) -> None:
    for options, count in (((), 0), (("--log-prompts",), 1)):
        with started(tiny_folder, *options) as server:
            body = {"prompt": "my secret", "max_tokens": 2}
            assert httpx.post(server.url + COMPLETIONS, json=body, timeout=60).status_code == 200
            event = server.event("request")
            assert event["path"] == COMPLETIONS
            assert event["status"] == 200
            assert event["completion_tokens"] == 2
            assert sum("my secret" in line for line in server.lines) == count


def test_it_serves_https_with_keys_from_the_environment(tiny_folder: Path, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    with started(tiny_folder, *options, PAGEWHEEL_API_KEYS="environment-key") as server:
        assert server.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(base_url=server.url, verify=trusted) as client:
            assert client.get("/health").status_code == 200
            assert client.get("/v1/models").status_code == 401
            head = {"authorization": "Bearer environment-key"}
            assert client.get("/v1/models", headers=head).status_code == 200


def test_eviction_keeps_answers_within_their_budget(tiny_folder: Path) -> None:
    eviction = "start=32,recent=64,max=192,rotate"
    with started(tiny_folder, "--eviction", eviction) as server:
        body = {**LONG, "max_tokens": 500}
        assert httpx.post(server.url + COMPLETIONS, json=body, timeout=60).status_code == 200
        lines = httpx.get(server.url + "/metrics").text.splitlines()
        (evicted,) = [each for each in lines if each.startswith("pagewheel:evicted_tokens_total{")]
        assert float(evicted.rpartition(" ")[2]) >= 500 - 192


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--scheduler", "bananas=1"], "bananas"),
        (["--scheduler", "max_num_seqs=none"], "max_num_seqs"),
        (["--eviction", "max=192"], "start, recent missing"),
        (["--idle-unload", "soon"], "soon"),
        (["--memory-budget", "much"], "much"),
        (["--alias", "a=b"], "ALIAS=NAME"),
        (["--pin", "b"], "no model 'b'"),
        (["--tls-key", "key.pem"], "--tls-certificate"),
        (["--host", "no.such.host.invalid"], "cannot listen"),
        (["--api-key-file", "/nothing/here"], "/nothing/here"),
        (["--metrics-prefix", "a b"], "prefix"),
        (["--otlp-traces-endpoint", "localhost:4318"], "http://localhost:4318/v1/traces"),
        (["--context-overflow", "forget"], "error, evict, truncate"),
        (["--cors-origin", "localhost:3000"], "http://localhost:3000"),
        (["--ollama-port", "99999"], "65535"),
        (["--pull-space", "much"], "much"),
        (["/nothing/there.gguf"], "there.gguf"),
    ],
)
def test_a_wrong_option_ends_it_with_one_line(
    tiny_folder: Path, options: list[str], message: str
) -> None:
    model = [] if options[0].startswith("/") else [f"tiny={tiny_folder}"]
    result = subprocess.run(
        [*COMMAND, *model, "--port", "0", *options], capture_output=True, text=True, timeout=60
    )
    assert result.returncode in (1, 2)
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.stderr


def test_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagewheel.cli.serve._NEEDED", ("uvicorn", "no_such_package"))
    result = CliRunner().invoke(app, ["serve", "model.gguf"])
    assert result.exit_code == 1
    assert "no_such_package" in result.stderr
    assert "pip install 'pagewheel[serve]'" in result.stderr


def test_a_single_model_is_unloaded_when_it_is_asked_for_and_stays_ready(
    tiny_folder: Path,
) -> None:
    with started(tiny_folder, "--idle-unload", "1s") as process:
        process.event("unloaded")
        assert httpx.get(f"{process.url}/ready").status_code == 200
        answer = httpx.post(f"{process.url}{COMPLETIONS}", json={"prompt": "a"}, timeout=60)
        assert answer.status_code == 200
        process.event("unloaded")
