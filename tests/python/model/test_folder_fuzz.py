"""No damage to a model's files ends the process, hangs it or takes its memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from convert import tiny_llama
from folder_fuzz import files, fuzz
from fuzzing import TIMES

CASES = range(4 * TIMES)
pytestmark = pytest.mark.fuzz
# Those that once ended a process, of the first sixty.
FOUND = {
    "openvino_detokenizer.bin": (6, 40, 42, 43, 54, 56),
    "openvino_detokenizer.xml": (43,),
    "openvino_tokenizer.bin": (35,),
}


def test_damaged_model_folders_work_or_raise(tiny_folder: Path, tmp_path: Path) -> None:
    seeds = {name: (*FOUND.get(name, ()), *CASES) for name in files(tiny_folder)}
    findings = fuzz(tiny_folder, tmp_path, seeds)
    assert [str(each) for each in findings] == []


def test_damaged_gguf_files_work_or_raise(tmp_path: Path) -> None:
    path = tiny_llama.write(tmp_path / "tiny.gguf")
    answers: list[str] = []
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    findings = fuzz(
        path, scratch, {path.name: CASES}, lambda _file, _case, answer: answers.append(answer)
    )
    assert [str(each) for each in findings] == []
    assert len(set(answers)) > 2  # of which some are refused for what they are
