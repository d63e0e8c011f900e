"""scripts/bench_amx, with as little work as shows that each of its parts runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILD = ROOT / os.environ.get("PAGEWHEEL_BUILD_DIR", "build")


@pytest.mark.skipif(
    not (BUILD / "benchmarks/cpp/peaks").exists(), reason="the benchmarks in C++ are not built"
)
def test_it_prints_correctness_first_and_says_what_is_missing(tiny_folder: Path) -> None:
    command = [sys.executable, "scripts/bench_amx", "--tiny", "--model", str(tiny_folder)]
    done = subprocess.run(
        [*command, "--build", str(BUILD)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    titles = re.findall(r"^==== (.*) \[", done.stdout, re.M)
    assert titles[0] == "machine"
    assert titles[1].startswith("tests of kernels, ")
    assert titles[-1] == "done"
    names = ("tests of ops", "tiles equal", "peaks", "a step", "linear", "attention", "few rows")
    order = [next(i for i, t in enumerate(titles) if t.startswith(name)) for name in names]
    assert order == sorted(order)
    has_tiles = bool(re.search(r"^tdpbf16ps [\d.]+ tera", done.stdout, re.M))
    assert has_tiles != ("AMX is missing or cannot be used here" in done.stdout)
    assert re.search(r"^ +512 rows  int8 [\d.]+ ms", done.stdout, re.M)
    assert re.search(r"^prefill 64, u8 cache: [\d.]+ T/s", done.stdout, re.M)


@pytest.mark.skipif(
    not (BUILD / "benchmarks/cpp/peaks").exists(), reason="the benchmarks in C++ are not built"
)
def test_it_fails_with_a_program(tmp_path: Path, tiny_folder: Path) -> None:
    for folder, name in (("tests", "isa_names"), ("tests", "test_kernels"), ("tests", "test_ops")):
        program = tmp_path / folder / "cpp" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\necho scalar; exit 3\n", encoding="utf-8")
        program.chmod(0o755)
    (tmp_path / "benchmarks").symlink_to(BUILD / "benchmarks")
    done = subprocess.run(
        [sys.executable, "scripts/bench_amx", "--tiny", "--model", str(tiny_folder),
         "--build", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout
    assert "FAILED: " in done.stdout
