"""The samples run on the default model and print something."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[3] / "samples/python"


@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.glob("*.py")))
def test_sample_runs(sample: str, smollm2_folder: Path) -> None:
    run = subprocess.run(
        [sys.executable, SAMPLES / sample, smollm2_folder],
        input="Hello\n",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    assert len(run.stdout) > 20
