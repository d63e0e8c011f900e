"""C++ programs written for openvino_genai: another project, which uses the package."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import pagewheel

ROOT = Path(__file__).parents[3]
PROJECT = ROOT / "tests/cpp/compatibility"
PROMPT = "Why is the sky blue?"
TOKENS = 6  # that the programs ask for


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs are."""
    build = tmp_path_factory.mktemp("build")
    package = pagewheel.cmake_dir() / "openvino_genai"
    configure = [
        "cmake",
        "-S",
        PROJECT,
        "-B",
        build,
        "-G",
        "Ninja",
        f"-DOpenVINOGenAI_DIR={package}",
    ]
    subprocess.run(configure, check=True)
    subprocess.run(["cmake", "--build", build], check=True)
    return build


@pytest.fixture(scope="module")
def run(build: Path, smollm2_folder: Path) -> Callable[[str], str]:
    """What a program prints."""

    def run_program(name: str) -> str:
        command = [build / "programs", name, smollm2_folder, PROMPT]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run_program


@pytest.fixture(scope="module")
def pipe(smollm2_folder: Path) -> pagewheel.LLMPipeline:
    return pagewheel.LLMPipeline(smollm2_folder)


@pytest.fixture(scope="module")
def answer(pipe: pagewheel.LLMPipeline) -> str:
    return str(pipe.generate(PROMPT, max_new_tokens=TOKENS))


def test_generate_in_all_its_forms(run: Callable[[str], str], answer: str) -> None:
    assert run("generate") == answer + "\n"


def test_a_chat_and_a_history(run: Callable[[str], str], pipe: pagewheel.LLMPipeline) -> None:
    pipe.start_chat("Be brief.")
    answers = [str(pipe.generate(PROMPT, max_new_tokens=TOKENS)) for _ in range(2)]
    pipe.finish_chat()
    assert run("chat") == "".join(each + "\n" for each in answers)


def test_the_tokenizer(run: Callable[[str], str], pipe: pagewheel.LLMPipeline) -> None:
    ids = pipe.get_tokenizer().encode(PROMPT).input_ids.data[0].tolist()
    assert [int(each) for each in run("tokenize").split()] == ids


def test_requests_in_a_batch(run: Callable[[str], str], pipe: pagewheel.LLMPipeline) -> None:
    plain = pipe.generate(PROMPT, max_new_tokens=TOKENS, apply_chat_template=False, ignore_eos=True)
    assert run("batch") == str(plain) + "\n"


def test_streamers(run: Callable[[str], str], answer: str) -> None:
    assert run("stream") == answer + "\n"


def test_configs(run: Callable[[str], str]) -> None:
    assert run("configure") == ""


def test_errors_are_openvinos(run: Callable[[str], str]) -> None:
    messages = run("refuse").splitlines()
    assert 'model folder "/nowhere" does not exist' in messages
    assert all(messages)


def test_configs_of_structured_output(run: Callable[[str], str]) -> None:
    assert run("constrain") == ""


def test_parsers(run: Callable[[str], str]) -> None:
    assert run("parse") == ""


def test_a_model_that_is_in_no_file(run: Callable[[str], str], pipe: pagewheel.LLMPipeline) -> None:
    plain = pipe.generate(PROMPT, max_new_tokens=TOKENS, apply_chat_template=False, ignore_eos=True)
    assert run("memory") == str(plain) + "\n"


def test_what_is_not_there_yet_is_refused_by_name(run: Callable[[str], str]) -> None:
    assert run("not_yet") == ""


def test_no_name_is_one_of_openvino_genais_library(build: Path) -> None:
    """Both libraries may be in one process."""
    names = subprocess.run(
        ["nm", "--demangle", "--defined-only", build / "programs"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "pagewheel::openvino_genai::LLMPipeline" in names
    assert " ov::genai::" not in names


def test_without_python_the_package_is_a_component_of_its_own(tmp_path: Path) -> None:
    options = [f"-DPAGEWHEEL_BUILD_{part}=OFF" for part in ("TESTS", "SAMPLES", "BENCHMARKS")]
    subprocess.run(
        ["cmake", "-S", ROOT, "-B", tmp_path / "build", "-G", "Ninja", *options], check=True
    )
    prefix = tmp_path / "prefix"
    install = ["cmake", "--install", tmp_path / "build", "--prefix", prefix]
    subprocess.run([*install, "--component", "openvino_genai"], check=True)
    assert (prefix / "cmake/openvino_genai/OpenVINOGenAIConfig.cmake").exists()
    headers = prefix / "include/pagewheel/openvino_genai/openvino/genai"
    assert (headers / "llm_pipeline.hpp").exists()
    assert not (prefix / "cmake/pagewheelConfig.cmake").exists()
