"""Loading takes the packed weights' size and, beside it, at most the largest tensor's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from convert import tiny_llama

from benchmarks.large_llama import Shape, write_large_llama
from pagewheel.convert import convert

# Loads a small model first, so that libraries are there and their memory is counted before.
MEASURE = """
import sys
from pathlib import Path
import pagewheel

def value(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024

def load(folder):
    scheduler = pagewheel.SchedulerConfig()
    scheduler.num_kv_blocks = 4
    return pagewheel.LLMPipeline(folder, "CPU", scheduler_config=scheduler)

small, folder = sys.argv[1:]
kept = load(small)
before = value("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
pipeline = load(folder)
loaded = value("VmHWM") - before
pipeline.generate("a", max_new_tokens=20, ignore_eos=True, apply_chat_template=False)
print(loaded, value("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_weights_are_there_once_while_a_model_is_loaded(tmp_path: Path) -> None:
    shape = Shape(layers=12, hidden=1024, inner=3072, heads=8, kv_heads=8, context=512)
    tokenizer = tiny_llama.write(tmp_path / "small.gguf")
    write_large_llama(tokenizer, tmp_path / "model.gguf", shape)
    folder = convert(tmp_path / "model.gguf", tmp_path / "converted", progress=False)
    small = convert(tokenizer, tmp_path / "small", progress=False)
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, str(small), str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    loaded, generated = map(int, run.stdout.split())
    written = (folder / "openvino_model.bin").stat().st_size
    assert written > 60 << 20
    largest = shape.hidden * shape.inner  # in 8 bits
    allowance = 40 << 20  # the graph, a step's buffers, huge pages: far below a second copy
    print(loaded >> 20, generated >> 20, written >> 20)
    assert loaded <= written + largest + allowance
    assert generated <= written + largest + allowance
