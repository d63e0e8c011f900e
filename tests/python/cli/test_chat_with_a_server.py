"""`pagewheel chat --server`: the same conversation as with a model in the process."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_serve.known_server import Behaviour, known_server
from command_line import invoke, run
from serve.serving import Served, serving, tiny_settings

from pagewheel.cli.chat import Chat, Printer, ServerModel, fields_of
from pagewheel.cli.generation_options import Sampling


@pytest.fixture(scope="module")
def served(tiny_folder: Path) -> Iterator[Served]:
    with serving(tiny_settings(tiny_folder, keys=("a-secret-key",))) as served:
        yield served


def test_it_answers_streams_and_tells_times(served: Served) -> None:
    result = run(
        *("chat", "--server", served.url, "--api-key", "a-secret-key", "--stats"),
        *("--greedy", "-n", "12", "--ignore-eos"),
        text="Hello\n/quit\nlost\n",
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    assert "12 tokens out" in result.stderr
    assert result.stderr.count("first token") == 1


def test_a_wrong_key_is_one_line(served: Served) -> None:
    result = run("chat", "--server", served.url, "--api-key", "another-key", text="Hello\n")
    assert result.returncode == 1
    assert "401: Incorrect API key provided" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_history_is_sent_until_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Hello\nMore\n/reset\nBye\n"))
    with known_server(Behaviour(first_seconds=0.0, tokens=2)) as server:
        sampling = Sampling({"max_new_tokens": 5, "rng_seed": 3, "do_sample": False})
        Chat(ServerModel(server.url, "", "", sampling), "be short", stats=False).run()
    contents = [[each["content"] for each in body["messages"]] for body in server.bodies]
    assert contents == [
        ["be short", "Hello"],
        ["be short", "Hello", " t0 t1", "More"],
        ["be short", "Bye"],
    ]
    body = server.bodies[0]
    assert (body["model"], body["max_tokens"], body["seed"]) == ("known", 5, 3)
    assert body["temperature"] == 0


def test_an_interrupt_ends_the_answer_and_not_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("stop\ngo on\n"))
    behaviour = Behaviour(first_seconds=0.0, between_seconds=0.02, tokens=500)
    printed = Printer.__call__

    def interrupting(self: Printer, piece: str) -> None:
        printed(self, piece)
        if piece == " t1":
            behaviour.tokens = 2  # of the answers that follow
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Printer, "__call__", interrupting)
    with known_server(behaviour) as server:
        sampling = Sampling({"max_new_tokens": 5})
        chat = Chat(ServerModel(server.url, "", "m", sampling), None, stats=False)
        chat.run()
    assert [each["content"] for each in server.bodies[1]["messages"]][::2] == ["stop", "go on"]
    assert server.bodies[1]["messages"][1]["content"].startswith(" t0 t1")


def test_an_error_within_a_stream_is_told() -> None:
    with known_server(Behaviour(fail_every=1)) as server:
        result = run("chat", "--server", server.url, text="Hello\n")
    assert result.returncode == 1
    assert "500: no luck" in result.stderr


def test_parameters_have_the_names_of_the_api() -> None:
    given = {"max_new_tokens": 5, "stop_strings": {"b", "a"}, "top_k": 3, "do_sample": True}
    assert fields_of(given) == {"max_tokens": 5, "stop": ["a", "b"], "top_k": 3, "temperature": 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--server", "nowhere"], "http://127.0.0.1:8000"),
        (["--server", "http://127.0.0.1:9"], "Connection refused"),
        (["--server", "http://127.0.0.1:9", "--property", "A=1"], "a model in this process"),
    ],
)
def test_a_wrong_server_is_named(options: list[str], message: str) -> None:
    result = invoke("chat", *options)
    assert result.exit_code in (1, 2)
    assert message in " ".join(result.stderr.replace("│", " ").split())
