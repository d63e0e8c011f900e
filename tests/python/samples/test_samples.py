"""Each sample runs, and shows what it is about. samples/README.md names them all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from convert import tiny_models

ROOT = Path(__file__).parents[3]
PYTHON = sorted(path.stem for path in (ROOT / "samples/python").glob("*.py"))
CPP = sorted(path.stem for path in (ROOT / "samples/cpp").glob("*.cpp"))
BUILT = ROOT / os.environ.get("PAGEWHEEL_BUILD_DIR", "build") / "samples/cpp"

# What the output has in it, in this order, in either language.
SHOWS = {
    "cache_eviction": [r"400 tokens in at most 6 blocks of the cache"],
    "eviction_policy": [r"the policy was asked [1-9]\d* times"],
    "endless_generation": [r"250 tokens, 8 blocks", r"750 tokens, 16 blocks", r"1000 tokens, 16 b"],
    "prefix_caching": [
        r"2\d\d tokens are pinned",
        r"2[45]\d of 2\d\d prompt tokens were cached",
        r"[34]\d\d tokens came from",
        r"2[56]\d of 2[56]\d prompt tokens were cached",
    ],
    "async_serving": [r"The capital of France is\W*Paris", r"5, 6, 7"],
    "priorities": [
        r"one too many: .*4 requests wait already",
        r"hopeless: (TIMEOUT|timed out) with 0 tokens",
        r"urgent: finished with 20",
        r"patient: finished with 20",
        r"late: (TIMEOUT|timed out) with [1-9]",
    ],
    "logits_processor": [r"\n0 times (one of )?'e"],
    "continuous_batching": [r"capital of France is\W*Paris"],
    "model_files": [r", opened", r"Water boils at", r", opened", r"Water boils at"],
}


def check(sample: str, *command: object) -> None:
    run = subprocess.run(
        list(map(str, command)), input="Hello\n", capture_output=True, text=True, timeout=180
    )
    assert run.returncode == 0, run.stderr
    assert len(run.stdout) > 20
    assert re.search(".*".join(SHOWS.get(sample, [])), run.stdout, re.I | re.S), run.stdout


@pytest.mark.parametrize("sample", [name for name in PYTHON if name != "model_files"])
def test_python_sample_shows_its_feature(sample: str, smollm2_folder: Path) -> None:
    check(sample, sys.executable, ROOT / f"samples/python/{sample}.py", smollm2_folder)


def test_a_batch_is_answered_by_models_as_they_come(tiny_folder: Path, tmp_path: Path) -> None:
    gguf = tiny_folder.parent / "tiny.gguf"
    huggingface = tiny_models.save(tiny_models.make("llama"), tmp_path / "huggingface")
    sample = ROOT / "samples/python/model_files.py"
    check("model_files", sys.executable, sample, gguf, huggingface)


def test_cpp_answers_by_models_as_they_come(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = BUILT / "model_files"
    if not program.is_file():
        pytest.skip(f"{program} is not built")
    monkeypatch.setenv("PAGEWHEEL_CACHE", str(tmp_path / "cache"))
    huggingface = tiny_models.save(tiny_models.make("llama"), tmp_path / "huggingface")
    check("model_files", program, tiny_folder.parent / "tiny.gguf", huggingface)


@pytest.mark.parametrize("sample", [name for name in CPP if name != "model_files"])
def test_cpp_sample_shows_its_feature(sample: str, smollm2_folder: Path, tmp_path: Path) -> None:
    program = BUILT / sample
    if not program.is_file():
        pytest.skip(f"{program} is not built")
    wants_a_prompt = {"greedy", "multinomial", "beam_search", "eviction_policy", "logits_processor"}
    arguments: list[object] = ["Hello"] if sample in wants_a_prompt else []
    if sample == "prefix_caching":
        arguments = [tmp_path / "prefixes"]
    check(sample, program, smollm2_folder, *arguments)


def test_the_table_has_every_sample() -> None:
    page = (ROOT / "samples/README.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\((python|cpp)/(\w+)\.\w+\)", page)
    assert sorted(linked) == sorted(
        [("cpp", name) for name in CPP] + [("python", name) for name in PYTHON]
    )
