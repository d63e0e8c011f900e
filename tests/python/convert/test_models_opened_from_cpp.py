"""C++ programs open GGUF files and Hugging Face folders through the `pagewheel` command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from convert import tiny_llama, tiny_models

import pagewheel
from pagewheel.convert import convert

PROGRAM = """
#include <pagewheel/pagewheel.hpp>
#include <iostream>
int main(int, char** arguments) try {
    const std::string mode = arguments[1];
    if (mode == "chat") {
        const pagewheel::Tokenizer tokenizer(arguments[2]);
        pagewheel::ChatHistory history{std::string(arguments[3])};
        history.set_tools_json(arguments[4]);
        std::cout << tokenizer.apply_chat_template(history, true);
        return 0;
    }
    const bool saves = mode == "save";
    pagewheel::LLMPipeline pipeline(arguments[2], "CPU", {{"enable_save_ov_model", saves}});
    pagewheel::GenerationConfig config;
    config.max_new_tokens = 8;
    config.ignore_eos = true;
    config.apply_chat_template = false;
    std::cout << pipeline.generate("the hill", config).texts.at(0);
} catch (const std::exception& error) {
    std::cerr << error.what();
    return 1;
}
"""
CMAKE = """
cmake_minimum_required(VERSION 3.21)
project(opener LANGUAGES CXX)
find_package(pagewheel REQUIRED)
add_executable(opener main.cpp)
target_link_libraries(opener PRIVATE pagewheel::pagewheel)
"""
# What `pip install` makes, for the Python that runs these tests.
COMMAND = """#!{python}
from pagewheel.cli import main
{before}
main()
"""


@pytest.fixture(scope="session")
def opener(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("opener")
    (folder / "main.cpp").write_text(PROGRAM)
    (folder / "CMakeLists.txt").write_text(CMAKE)
    configure = ["cmake", "-S", ".", "-B", "build", "-G", "Ninja"]
    configure.append(f"-Dpagewheel_DIR={pagewheel.cmake_dir()}")
    subprocess.run(configure, check=True, cwd=folder)
    subprocess.run(["cmake", "--build", "build"], check=True, cwd=folder)
    return folder / "build/opener"


def write_command(folder: Path, before: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    command = folder / "pagewheel"
    command.write_text(COMMAND.format(python=sys.executable, before=before))
    command.chmod(0o755)
    return command


@pytest.fixture
def command(tmp_path: Path) -> Path:
    return write_command(tmp_path / "bin")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_llama.write(tmp_path / "tiny.gguf")


def run(
    opener: Path,
    *arguments: object,
    environment: Mapping[str, object],
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [opener, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env=os.environ | {key: str(value) for key, value in environment.items()},
        check=False,
    )


def cached_models() -> list[Path]:
    return sorted(Path(os.environ["PAGEWHEEL_CACHE"]).glob("models/[!.]*"))


def text_in_python(path: Path) -> str:
    pipeline = pagewheel.LLMPipeline(path, "CPU")
    config = {"max_new_tokens": 8, "ignore_eos": True, "apply_chat_template": False}
    return str(pipeline.generate("the hill", **config))


def test_a_gguf_file_is_converted_once_into_pythons_cache(
    opener: Path, command: Path, model: Path
) -> None:
    path = f"{command.parent}:{os.environ['PATH']}"
    first = run(opener, "generate", model, environment={"PATH": path})
    assert first.returncode == 0, first.stderr
    assert "converting" in first.stderr
    (entry,) = cached_models()
    before = {file: file.stat().st_mtime_ns for file in entry.iterdir()}
    again = run(opener, "generate", model, environment={"PATH": path})
    assert again.stdout == first.stdout == text_in_python(model)
    assert cached_models() == [entry]
    assert {file: file.stat().st_mtime_ns for file in entry.iterdir()} == before


@pytest.mark.parametrize("name", ["--help", "-m x.gguf", "a 'b' \"c\" $(id) é\n.gguf"])
def test_names_reach_the_command_as_they_are(
    opener: Path, command: Path, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    tiny_llama.write(folder / name)
    ended = run(opener, "generate", name, environment={"PAGEWHEEL_COMMAND": command}, cwd=folder)
    assert ended.returncode == 0, ended.stderr
    assert [file.name for file in folder.iterdir()] == [name]


def test_a_huggingface_folder_opens(opener: Path, command: Path, tmp_path: Path) -> None:
    folder = tiny_models.save(tiny_models.make("llama3"), tmp_path / "checkpoint")
    ended = run(opener, "generate", folder, environment={"PAGEWHEEL_COMMAND": command})
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == text_in_python(folder)


def test_what_a_file_became_is_left_beside_it_where_that_is_asked_for(
    opener: Path, command: Path, model: Path
) -> None:
    (model.parent / "config.json").write_text("mine")
    ended = run(opener, "save", model, environment={"PAGEWHEEL_COMMAND": command})
    assert ended.returncode == 0, ended.stderr
    assert (model.parent / "openvino_model.xml").is_file()
    assert (model.parent / "config.json").read_text() == "mine"


def test_the_errors_of_a_conversion_reach_the_program(
    opener: Path, command: Path, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF\x03\0\0\0" + b"\xff" * 100)
    ended = run(opener, "generate", damaged, environment={"PAGEWHEEL_COMMAND": command})
    with pytest.raises(ValueError) as caught:
        convert(damaged)
    assert ended.returncode == 1
    assert f'"{damaged}" cannot be converted: ' in ended.stderr
    assert " ".join(str(caught.value).split()) in ended.stderr
    assert cached_models() == []


def test_without_the_command_the_error_says_what_to_install(opener: Path, model: Path) -> None:
    ended = run(opener, "generate", model, environment={"PATH": "/nowhere"})
    if "pip install pagewheel" not in ended.stderr:  # the package of the library has its command
        assert ended.returncode == 0, ended.stderr
    ended = run(opener, "generate", model, environment={"PAGEWHEEL_COMMAND": "/nowhere/pagewheel"})
    assert ended.returncode == 1
    assert "PAGEWHEEL_COMMAND is /nowhere/pagewheel" in ended.stderr


def test_the_folder_one_is_in_is_no_place_for_the_command(
    opener: Path, model: Path, tmp_path: Path
) -> None:
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "pagewheel").write_text(f"#!/bin/sh\ntouch {tmp_path}/taken\n")
    (trap / "pagewheel").chmod(0o755)
    for path in (".", "", ":/nowhere", "../trap"):
        run(opener, "generate", model, environment={"PATH": path}, cwd=trap)
    assert not (tmp_path / "taken").exists()


def test_a_conversion_that_is_killed_leaves_no_model(
    opener: Path, model: Path, tmp_path: Path
) -> None:
    killed = write_command(
        tmp_path / "killed",
        "import os, signal\n"
        "import pagewheel.convert.folder as folder\n"
        "folder.write_json = lambda *_: os.kill(os.getpid(), signal.SIGKILL)",
    )
    ended = run(opener, "generate", model, environment={"PAGEWHEEL_COMMAND": killed})
    assert ended.returncode == 1
    assert "was ended by signal 9" in ended.stderr
    assert cached_models() == []
    whole = write_command(tmp_path / "whole")
    ended = run(opener, "generate", model, environment={"PAGEWHEEL_COMMAND": whole})
    assert ended.returncode == 0, ended.stderr


def test_two_programs_convert_at_once(opener: Path, command: Path, model: Path) -> None:
    environment = os.environ | {"PAGEWHEEL_COMMAND": str(command)}
    both = [
        subprocess.Popen([opener, "generate", model], stdout=subprocess.PIPE, env=environment)
        for _ in range(2)
    ]
    texts = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert texts[0] == texts[1]
    assert len(cached_models()) == 1


def test_chats_with_tools_are_those_of_python(opener: Path, command: Path, tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{{ '<' + m.role + '>' + m.content }}{% endfor %}"
        "{% for t in tools %}{{ t | tojson }}{% endfor %}{{ '<assistant>' }}"
    )
    model = tiny_llama.write(tmp_path / "a.gguf", metadata={"tokenizer.chat_template": template})
    messages = json.dumps([{"role": "user", "content": "Wie ist das Wetter? <b> 'x'"}])
    tools = json.dumps([{"type": "function", "function": {"name": "weather", "z": 1, "a": []}}])
    ended = run(opener, "chat", model, messages, tools, environment={"PAGEWHEEL_COMMAND": command})
    assert ended.returncode == 0, ended.stderr
    tokenizer = pagewheel.Tokenizer(model)
    history = json.loads(messages)
    assert ended.stdout == tokenizer.apply_chat_template(history, True, tools=json.loads(tools))
