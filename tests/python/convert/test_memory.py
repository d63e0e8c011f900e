"""Converting takes the result's own size and, beside it, at most the largest tensor's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from convert.gguf_models import write
from convert.tiny_models import save
from gguf.constants import GGMLQuantizationType as Kind
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

# Converts a small model first, so that libraries are loaded and their memory is counted before.
MEASURE = """
import sys
from pathlib import Path
from pagewheel.convert import convert

def value(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024

small, source, folder, options = sys.argv[1:]
convert(small, folder + "-small", progress=False)
before = value("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
convert(source, folder, progress=False, **eval(options))
print(value("VmHWM") - before)
"""


def peak(tmp_path: Path, small: Path, source: Path, **options: object) -> tuple[int, int]:
    """Bytes of memory above what the process had, and of the folder that was written."""
    folder = tmp_path / "converted"
    command = [sys.executable, "-c", MEASURE, str(small), str(source), str(folder), repr(options)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return int(run.stdout), sum(each.stat().st_size for each in folder.iterdir())


def llama(layers: int, hidden: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=8,
        head_dim=32,
    )
    return LlamaForCausalLM(config).to(torch.bfloat16).eval()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_stays_within_the_result_and_its_largest_tensor(tmp_path: Path) -> None:
    hidden = 1024
    small = save(llama(1, 64), tmp_path / "small")
    model = llama(9, hidden)
    source = save(model, tmp_path / "source", max_shard_size="40MB")
    assert len(list(source.glob("*.safetensors"))) > 2
    file = write(model, tmp_path / "model.gguf", Kind.Q8_0)
    largest = 2 * 3 * hidden * hidden
    allowance = 12 << 20  # Python's own objects and what numpy takes for one chunk
    for index, (path, options) in enumerate(
        [(source, {}), (source, {"weight_format": "int8"}), (file, {})]
    ):
        memory, written = peak(tmp_path / str(index), small, path, **options)
        print(memory >> 20, written >> 20)
        assert memory <= written + largest + allowance


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_stack_of_experts_is_there_once(tmp_path: Path) -> None:
    """The checkpoint has a tensor for each; the stack of a layer is the largest tensor here."""
    sizes = {"hidden_size": 512, "intermediate_size": 3072, "num_local_experts": 8}
    config = MixtralConfig(
        **sizes, vocab_size=300, num_hidden_layers=1, num_attention_heads=8, num_key_value_heads=8
    )
    model = MixtralForCausalLM(config).to(torch.bfloat16).eval()
    small = save(llama(1, 64), tmp_path / "small")
    source = save(model, tmp_path / "source")
    memory, written = peak(tmp_path, small, source)
    stack = 2 * 8 * 512 * 3072
    print(memory >> 20, written >> 20)
    assert memory <= written + stack + (12 << 20)
