"""Any damage to a header gives a ConversionError or a file that can be read, never more."""

from __future__ import annotations

import random
import struct
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest
from convert import tiny_llama, tiny_models
from convert.gguf_models import write
from convert.gguf_writing import finish
from folder_fuzz import ODD_NUMBERS, damaged

from pagewheel.convert import ConversionError
from pagewheel.convert.gguf.file import GGUFFile
from pagewheel.convert.gguf.source import GGUFSource

HEADER_CASES = 10_000
MODEL_CASES = 1_500


def small_file(path: Path) -> Path:
    """One key of each kind and a few tensors."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.rope.freq_base", 10000.0)
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_array("tokenizer.ggml.tokens", ["a", "bc", "déf", ""])
    writer.add_array("tokenizer.ggml.scores", [0.5, -1.0])
    writer.add_array("tokenizer.ggml.token_type", [1, 2, 3])
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.add_tensor("norm.weight", np.ones(8, np.float32))
    quantised = gguf.quantize(np.ones((2, 64), np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("q.weight", quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    finish(writer)
    return path


def test_damaged_headers_and_directories(tmp_path: Path) -> None:
    whole = small_file(tmp_path / "whole.gguf").read_bytes()
    path = tmp_path / "damaged.gguf"
    generator = random.Random(11)
    refused = 0
    tracemalloc.start()
    for _ in range(HEADER_CASES):
        path.unlink(missing_ok=True)  # to overwrite it would wait for the disk
        path.write_bytes(damaged(whole, len(whole) - 800, generator))
        try:
            with GGUFFile(path) as file:
                assert all(tensor.data.size for tensor in file.tensors.values())
        except ConversionError as error:
            assert str(path) in str(error)
            refused += 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused > HEADER_CASES // 2
    assert peak < 2 << 20  # a file of 2 KB never makes this much


def test_damaged_metadata_of_a_model(tmp_path: Path) -> None:
    whole = tiny_llama.write(tmp_path / "whole.gguf").read_bytes()
    numbers_end = whole.index(b"tokenizer.ggml.model")
    path = tmp_path / "damaged.gguf"
    generator = random.Random(12)
    refused = 0
    for _ in range(MODEL_CASES):
        content = bytearray(whole)
        at = generator.randrange(24, numbers_end - 4)
        content[at : at + 4] = struct.pack("<I", generator.choice(ODD_NUMBERS) & 0xFFFFFFFF)
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        try:
            with GGUFFile(path) as file:
                GGUFSource(file)
        except ConversionError as error:
            assert str(path) in str(error)
            refused += 1
    assert refused > MODEL_CASES // 2


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("gemma3n", "gemma3n.altup.num_inputs"),
        ("gemma4", "gemma4.attention.shared_kv_layers"),
        ("deepseek_v2", "deepseek2.attention.kv_lora_rank"),
        ("deepseek_v2", "deepseek2.expert_count"),
        ("deepseek_v3", "deepseek2.attention.q_lora_rank"),
    ],
)
def test_huge_counts_are_refused_before_anything_is_made_of_them(
    tmp_path: Path, name: str, key: str
) -> None:
    path = write(tiny_models.make(name), tmp_path / "model.gguf")
    content = bytearray(path.read_bytes())
    at = content.index(key.encode()) + len(key) + 4
    content[at : at + 4] = struct.pack("<I", 2**31 - 1)
    path.write_bytes(content)
    tracemalloc.start()
    with GGUFFile(path) as file, pytest.raises(ConversionError, match=r"2147483647"):
        GGUFSource(file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.parametrize("offset", [1, 32, 2**40])
def test_tensors_that_overlap_or_are_misplaced_are_refused(tmp_path: Path, offset: int) -> None:
    content = bytearray(small_file(tmp_path / "whole.gguf").read_bytes())
    at = content.index(b"norm.weight") + len("norm.weight") + 4 + 8 + 4
    content[at : at + 8] = struct.pack("<Q", offset)
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content)
    with pytest.raises(ConversionError, match=r"norm\.weight"):
        GGUFFile(path)
