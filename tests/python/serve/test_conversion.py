"""Models that are converted at their first use: in a process that harms nobody."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from convert import tiny_llama
from serving import serving, tiny_settings
from waiting import eventually

from pagewheel.convert import ConversionError, converted_folder
from pagewheel.serve.models.conversion import _NICE, Conversion, ConversionLimits
from pagewheel.serve.settings import ModelSettings, ServerSettings

COMPLETIONS = "/v1/completions"
NO_LIMITS = ConversionLimits(seconds=0)


@pytest.fixture
def gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that no cache knows."""
    monkeypatch.setenv("PAGEWHEEL_CACHE", str(tmp_path / "cache"))
    return tiny_llama.write_for_many_steps(tmp_path / "other.gguf")


def test_a_model_is_converted_once_and_progress_is_logged(
    gguf: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    folder = Conversion("other", gguf, NO_LIMITS).run()
    stages = [vars(each)["stage"] for each in caplog.records if each.message == "converting"]
    assert len(stages) > 2
    assert all(vars(each)["model"] == "other" for each in caplog.records)
    caplog.clear()
    assert converted_folder(gguf) == Conversion("other", gguf, NO_LIMITS).run() == folder
    assert not caplog.records


def test_a_folder_that_is_converted_is_taken_as_it_is(tiny_folder: Path) -> None:
    assert Conversion("tiny", tiny_folder, NO_LIMITS).run() == tiny_folder


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (ConversionLimits(seconds=0.05), "longer than 0.05 seconds"),
        (ConversionLimits(memory_bytes=1 << 20), "1048576 bytes|ended"),
    ],
)
def test_a_conversion_beyond_its_limits_ends(
    gguf: Path, limits: ConversionLimits, message: str
) -> None:
    with pytest.raises(ConversionError, match=message):
        Conversion("other", gguf, limits).run()
    assert converted_folder(gguf) is None
    Conversion("other", gguf, NO_LIMITS).run()


def test_a_conversion_is_given_up_when_the_server_ends(gguf: Path) -> None:
    conversion = Conversion("other", gguf, NO_LIMITS)
    errors: list[str] = []

    def run() -> None:
        try:
            conversion.run()
        except ConversionError as error:
            errors.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    eventually(lambda: conversion._process is not None)
    conversion.end()
    thread.join(10)
    assert errors == ["the server ends"]
    with pytest.raises(ConversionError, match="the server ends"):
        conversion.run()


CONVERT = """
import sys
from pathlib import Path
from pagewheel.serve.models.conversion import Conversion, ConversionLimits
Conversion("other", Path(sys.argv[1]), ConversionLimits()).run()
"""


def test_a_conversion_ends_with_a_server_that_is_killed(gguf: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", CONVERT, str(gguf)]) as server:
        own = psutil.Process(server.pid)
        eventually(lambda: bool(own.children()))
        (child,) = own.children()
        wanted = min(19, own.nice() + _NICE)
        eventually(lambda: not child.is_running() or child.nice() == wanted)
        child.suspend()  # it is not through before its server is gone
        assert child.is_running()
        server.kill()
    eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, 10)


def test_a_conversion_whose_server_was_gone_before_does_not_begin(gguf: Path) -> None:
    command = [sys.executable, "-m", "pagewheel.serve.models.conversion"]
    no_parent = str(os.getpid() + 1)
    ended = subprocess.run([*command, no_parent, "0", str(gguf)], capture_output=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stdout == b""
    assert converted_folder(gguf) is None


def test_a_file_that_is_no_model_says_why_in_the_log_alone(
    tiny_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(range(256)) * 40)
    (pinned,) = tiny_settings(tiny_folder).models
    settings = ServerSettings((pinned, ModelSettings("broken", broken)), port=0)
    with serving(settings) as served:
        body = {"prompt": "a", "max_tokens": 2}
        answer = served.post(COMPLETIONS, {**body, "model": "broken"})
        assert answer.status_code == 503
        assert str(broken) not in answer.text
        (failed,) = [each for each in caplog.records if each.message == "load failed"]
        assert "GGUF" in vars(failed)["error"]
        assert served.post(COMPLETIONS, {**body, "model": "tiny"}).status_code == 200


@pytest.mark.all_cores
def test_a_conversion_holds_no_tokens_of_others(tiny_folder: Path, gguf: Path) -> None:
    (pinned,) = tiny_settings(tiny_folder).models
    other = ModelSettings("other", gguf, scheduler=pinned.scheduler)
    with serving(ServerSettings((pinned, other), port=0)) as served:
        body = {"model": "tiny", "prompt": "a", "max_tokens": 3900, "ignore_eos": True}
        asked = {"model": "other", "prompt": "a", "max_tokens": 2}
        statuses: list[int] = []
        arrived: list[float] = []

        def ask() -> None:
            statuses.append(served.post(COMPLETIONS, asked).status_code)

        asking = threading.Thread(target=ask)
        asking.start()
        while not statuses:
            with served.http.stream("POST", COMPLETIONS, json={**body, "stream": True}) as answer:
                for line in answer.iter_lines():
                    if line.startswith("data: {"):
                        arrived.append(time.monotonic())
        asking.join()
        assert statuses == [200]
    assert max(after - before for before, after in pairwise(arrived)) < 2.0


def test_a_conversion_holds_no_other_model_back(
    tiny_folder: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pinned,) = tiny_settings(tiny_folder).models
    models = (
        ModelSettings("converted", gguf, scheduler=pinned.scheduler),
        ModelSettings("there", tiny_folder, scheduler=pinned.scheduler),
    )
    goes_on = threading.Event()
    run = Conversion.run

    def wait_then_run(self: Conversion) -> Path:
        if self._source == gguf:
            goes_on.wait(60)
        return run(self)

    monkeypatch.setattr(Conversion, "run", wait_then_run)
    statuses: list[int] = []
    with serving(ServerSettings(models, port=0)) as served:
        body = {"prompt": "a", "max_tokens": 2}

        def ask() -> None:
            statuses.append(served.post(COMPLETIONS, {**body, "model": "converted"}).status_code)

        asking = threading.Thread(target=ask)
        asking.start()
        eventually(lambda: served.server.service.registry._entries["converted"].users == 1)
        try:
            answer = served.post(COMPLETIONS, {**body, "model": "there", "timeout": 20})
        finally:
            goes_on.set()
            asking.join()
        assert answer.status_code == 200
    assert statuses == [200]
