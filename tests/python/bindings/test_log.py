"""Messages go to the program's callback, or to stderr."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import batching_pipeline, greedy

import pagewheel
from pagewheel import LogLevel

Messages = list[tuple[LogLevel, str]]


@pytest.fixture(autouse=True)
def _stderr_afterwards() -> Iterator[None]:
    yield
    pagewheel.set_log_callback(None)


@pytest.fixture
def config_json(tmp_path: Path) -> Path:
    """A generation config that warns of one value."""
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps({"top_p": 7}))
    return path


def collect() -> Messages:
    messages: Messages = []
    pagewheel.set_log_callback(lambda level, text: messages.append((level, text)))
    return messages


def test_warnings_go_to_the_callback_and_without_it_to_stderr(
    config_json: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    messages = collect()
    pagewheel.GenerationConfig(config_json)
    [(level, text)] = messages
    assert level == LogLevel.WARNING
    assert text.startswith(f'"{config_json}": top_p is left at its default: top_p is 7; allowed')
    assert capfd.readouterr().err == ""
    pagewheel.set_log_callback(None)
    pagewheel.GenerationConfig(config_json)
    assert len(messages) == 1
    assert capfd.readouterr().err == f"pagewheel warning: {text}\n"


def test_warnings_of_a_models_compilation_go_to_the_callback(
    tiny_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    messages = collect()
    pipeline = batching_pipeline(tiny_folder, {"CACHE_DIR": str(tmp_path)})
    [(level, text)] = messages
    assert level == LogLevel.WARNING
    assert text.startswith("CACHE_DIR is left out")
    assert "CACHE_DIR" not in capfd.readouterr().err
    assert pipeline.generate([[10, 11]], [greedy(3)])[0].m_generation_ids


def test_a_callback_serves_a_pipeline_that_another_thread_makes(
    tiny_folder: Path, tmp_path: Path
) -> None:
    messages = collect()
    properties = {"CACHE_DIR": str(tmp_path)}
    thread = threading.Thread(target=batching_pipeline, args=(tiny_folder, properties))
    thread.start()
    thread.join()
    assert len(messages) == 1


@pytest.mark.parametrize("value", [1, "print", [print]])
def test_what_is_no_callable_is_refused_and_the_callback_stays(
    value: object, config_json: Path
) -> None:
    messages = collect()
    with pytest.raises(TypeError, match=r"callback must be None or a callable, got <class"):
        pagewheel.set_log_callback(value)
    pagewheel.GenerationConfig(config_json)
    assert len(messages) == 1


def test_a_callback_that_raises_harms_nothing(
    config_json: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: reported.append(unraisable))

    def callback(level: LogLevel, text: str) -> None:
        raise LookupError(text)

    pagewheel.set_log_callback(callback)
    assert pagewheel.GenerationConfig(config_json).top_p == 1
    assert [report.exc_type for report in reported] == [LookupError]
    assert "warning: " in capfd.readouterr().err


def test_ctrl_c_in_a_callback_reaches_the_program(config_json: Path) -> None:
    def callback(level: LogLevel, text: str) -> None:
        raise KeyboardInterrupt

    pagewheel.set_log_callback(callback)
    with pytest.raises(KeyboardInterrupt):
        pagewheel.GenerationConfig(config_json)
        for _ in range(1000):  # where the interpreter looks for signals
            pass


def test_a_callback_may_call_everything(
    config_json: Path, tiny_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []

    def first(level: LogLevel, text: str) -> None:
        pipeline = batching_pipeline(tiny_folder)
        seen.append(str(pipeline.generate([[10, 11]], [greedy(3)])[0].m_generation_ids))
        pagewheel.GenerationConfig(config_json)  # has a warning too: no callback inside a callback
        pagewheel.set_log_callback(lambda level, text: seen.append("second"))

    pagewheel.set_log_callback(first)
    pagewheel.GenerationConfig(config_json)
    pagewheel.GenerationConfig(config_json)
    assert len(seen) == 2
    assert seen[1] == "second"
    assert capfd.readouterr().err.count("warning: ") == 1


def test_a_callback_is_let_go_when_it_is_replaced() -> None:
    class Callback:
        def __init__(self) -> None:
            self.gone = gone

        def __call__(self, level: LogLevel, text: str) -> None: ...

        def __del__(self) -> None:
            self.gone.set()

    gone = threading.Event()
    pagewheel.set_log_callback(Callback())
    assert not gone.is_set()
    pagewheel.set_log_callback(None)
    assert gone.is_set()


def test_a_message_with_a_name_that_is_not_utf8_arrives(config_json: Path) -> None:
    strange = os.fsdecode(os.fsencode(config_json.parent) + b"/\xff.json")
    Path(strange).write_text(config_json.read_text())
    messages = collect()
    pagewheel.GenerationConfig(Path(strange))
    [(_, text)] = messages
    assert "\\xff.json" in text


PROGRAM = """
import os, sys, threading, pagewheel
path = sys.argv[1]
seen = []
pagewheel.set_log_callback(lambda level, text: seen.append(text))
def talk():
    while True:
        pagewheel.GenerationConfig(path)
thread = threading.Thread(target=talk, daemon=True)
thread.start()
while not seen:
    pass
for _ in range(20):
    child = os.fork()
    if child == 0:
        count = len(seen)
        pagewheel.GenerationConfig(path)
        os._exit(0 if len(seen) == count + 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_child_keeps_it_and_a_program_ends_while_a_thread_talks(config_json: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, config_json]
    for _ in range(3):
        subprocess.run(command, check=True, timeout=60, stderr=subprocess.DEVNULL)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_cache_that_memory_makes_smaller_than_the_context_is_told(tiny_folder: Path) -> None:
    meminfo = Path("/proc/meminfo").read_text(encoding="ascii").split()
    available = 1024 * int(meminfo[meminfo.index("MemAvailable:") + 1])
    per_token = 2 * 2 * 2 * 32  # of 2 layers' keys and values, 2 heads of 32, a byte each or more
    messages = collect()

    def load(**settings: object) -> list[str]:
        messages.clear()
        scheduler = pagewheel.SchedulerConfig()
        for name, value in settings.items():
            setattr(scheduler, name, value)
        pagewheel.ContinuousBatchingPipeline(tiny_folder, scheduler, "CPU")
        return [text for level, text in messages if level == LogLevel.WARNING]

    [warning] = load(memory_fraction=1024 * per_token / available)
    assert warning.startswith("the KV cache holds ")
    assert "context is 4096 tokens" in warning
    assert "cache_size or num_kv_blocks" in warning
    assert load() == []
    assert load(num_kv_blocks=4) == []  # whoever asks for it knows
