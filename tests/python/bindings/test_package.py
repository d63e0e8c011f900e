"""The installed package serves Python's type checkers and C++ projects."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pagewheel
from pagewheel.convert import resolve_model


def installed() -> Path:
    return Path(pagewheel.__file__).parent


def test_the_stub_lists_what_the_module_has() -> None:
    stub = (installed() / "_pagewheel.pyi").read_text()
    for name in pagewheel.__all__:
        if hasattr(pagewheel._pagewheel, name):
            assert re.search(rf"^(class|def) {name}\b", stub, re.MULTILINE), name
    assert (installed() / "py.typed").exists()


def test_libraries_are_found_without_environment_variables() -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    code = "import pagewheel; print(pagewheel.SchedulerConfig())"
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd="/")


def test_a_converted_model_is_found_without_loading_the_converter(smollm2_gguf: Path) -> None:
    resolve_model(smollm2_gguf)
    code = (
        "import sys, pagewheel.convert\n"
        "print(pagewheel.convert.resolve_model(sys.argv[1]))\n"
        "assert not {'openvino', 'numpy', 'gguf'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, smollm2_gguf], check=True)


PROGRAM = """
#include <pagewheel/pagewheel.hpp>
#include <iostream>
int main() {
    try {
        pagewheel::LLMPipeline pipeline("/nowhere");
    } catch (const ov::Exception& error) {
        std::cout << error.what();
    }
}
"""
CMAKE = """
cmake_minimum_required(VERSION 3.21)
project(consumer LANGUAGES CXX)
find_package(pagewheel REQUIRED)
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE pagewheel::pagewheel)
"""


def test_a_cmake_project_builds_against_the_wheel(tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.fail("cmake is a test dependency")
    (tmp_path / "main.cpp").write_text(PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    asked = [sys.executable, "-m", "pagewheel", "--cmake-dir"]
    folder = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    configure = ["cmake", "-S", ".", "-B", "build", "-G", "Ninja", f"-Dpagewheel_DIR={folder}"]
    subprocess.run(configure, check=True, cwd=tmp_path)
    subprocess.run(["cmake", "--build", "build"], check=True, cwd=tmp_path)
    run = subprocess.run([tmp_path / "build/consumer"], check=True, capture_output=True, text=True)
    assert "does not exist" in run.stdout
