"""What a llama GGUF file may hold, and the error for what it may not."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convert import tiny_llama
from gguf.constants import GGMLQuantizationType as Kind

from pagewheel.convert import ConversionError, convert
from pagewheel.convert.gguf.file import GGUFFile
from pagewheel.convert.gguf.source import GGUFSource


def source(path: Path) -> GGUFSource:
    return GGUFSource(GGUFFile(path))


def test_other_architecture_is_named(tmp_path: Path) -> None:
    path = tiny_llama.write(tmp_path / "a.gguf", architecture="mamba")
    with pytest.raises(ConversionError, match=r"'mamba'.*supported: llama"):
        convert(path)


@pytest.mark.parametrize(
    "key",
    [
        "llama.block_count",
        "llama.attention.head_count",
        "llama.context_length",
        "llama.attention.layer_norm_rms_epsilon",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.merges",
    ],
)
def test_missing_key_is_named(tmp_path: Path, key: str) -> None:
    path = tiny_llama.write(tmp_path / "a.gguf", metadata={key: None})
    with pytest.raises(ConversionError, match=key.replace(".", r"\.")):
        convert(path)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("llama.attention.head_count", 3, "heads|shape"),
        ("llama.attention.head_count", 0, "positive"),
        ("llama.attention.head_count_kv", 3, "multiple"),
        ("llama.embedding_length", 256, "shape"),
        ("llama.block_count", 3, r"blk\.2"),
        ("llama.block_count", 1, r"blk\.1"),
        ("llama.block_count", "two", "block_count"),
        ("llama.rope.dimension_count", 31, "dimension_count"),
        ("llama.rope.scaling.type", "yarn", "original_context_length"),
        ("llama.rope.scaling.type", "spiral", "'spiral'"),
        ("llama.expert_count", 8, "expert_used_count"),
        ("llama.attention.sliding_window", 64, "sliding_window"),
        ("tokenizer.ggml.eos_token_id", 99999, "eos_token_id"),
        ("tokenizer.ggml.model", "rwkv", "'rwkv'"),
        ("tokenizer.ggml.pre", "klingon", "'klingon'"),
        ("tokenizer.ggml.merges", ["justone"], "merges"),
        ("tokenizer.ggml.token_type", [1, 1], "token types"),
    ],
)
def test_contradiction_is_named(tmp_path: Path, key: str, value: Any, words: str) -> None:
    path = tiny_llama.write(tmp_path / "a.gguf", metadata={key: value})
    with pytest.raises(ConversionError, match=words):
        convert(path)


@pytest.mark.parametrize("value", [2**31, 2**32 - 1, 2**63, 2**64 - 1])
def test_a_context_that_no_model_has_is_refused(tmp_path: Path, value: int) -> None:
    path = tiny_llama.write(tmp_path / "a.gguf")
    content = bytearray(path.read_bytes())
    key = b"llama.context_length"
    at = content.index(key) + len(key)
    content[at : at + 8] = struct.pack("<IQ", 10, value)  # a number of 64 bits for one of 32
    path.write_bytes(content)
    with pytest.raises(
        ConversionError, match=rf"llama\.context_length must be at most 2147483647, got {value}"
    ):
        convert(path)


def test_missing_tensor_is_named(tmp_path: Path) -> None:
    def remove(tensors: dict[str, Any]) -> None:
        del tensors["blk.1.ffn_up.weight"]

    path = tiny_llama.write(tmp_path / "a.gguf", edit=remove)
    with pytest.raises(ConversionError, match=r"'blk\.1\.ffn_up\.weight' is missing"):
        source(path)


def test_unknown_tensor_is_not_ignored(tmp_path: Path) -> None:
    def add(tensors: dict[str, Any]) -> None:
        tensors["blk.0.attn_q.bias"] = np.ones(tiny_llama.HIDDEN, np.float32)

    path = tiny_llama.write(tmp_path / "a.gguf", edit=add)
    with pytest.raises(ConversionError, match=r"'blk\.0\.attn_q\.bias'"):
        source(path)


def test_unsupported_tensor_type_is_named(tmp_path: Path) -> None:
    raw = np.zeros((tiny_llama.HIDDEN, tiny_llama.HIDDEN), np.int16)
    name = "blk.1.attn_output.weight"
    path = tiny_llama.write(tmp_path / "a.gguf", raw_kinds={name: (raw, Kind.I16)})
    with pytest.raises(ConversionError, match=r"blk\.1\.attn_output\.weight.*I16.*supported"):
        convert(path)


def test_scale_that_is_no_number_is_refused(tmp_path: Path) -> None:
    raw = np.zeros((tiny_llama.HIDDEN, tiny_llama.HIDDEN // 32 * 34), np.uint8)
    raw[3, :2] = np.array([np.nan], np.float16).view(np.uint8)
    name = "blk.0.attn_output.weight"
    path = tiny_llama.write(tmp_path / "a.gguf", raw_kinds={name: (raw, Kind.Q8_0)})
    with pytest.raises(ConversionError, match="not finite"):
        convert(path)


def test_more_tokens_than_embeddings_is_refused(tmp_path: Path) -> None:
    def cut(tensors: dict[str, Any]) -> None:
        tensors["token_embd.weight"] = tensors["token_embd.weight"][:200]

    path = tiny_llama.write(tmp_path / "a.gguf", edit=cut)
    with pytest.raises(ConversionError, match="200"):
        convert(path)


def test_linear_scaling_divides_the_frequencies(tmp_path: Path) -> None:
    plain = source(tiny_llama.write(tmp_path / "a.gguf")).architecture.rotary[0]
    metadata = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    scaled = source(tiny_llama.write(tmp_path / "b.gguf", metadata=metadata)).architecture.rotary[0]
    assert scaled.inverse_frequencies == tuple(f / 4.0 for f in plain.inverse_frequencies)


def test_frequencies_are_double_precision(tmp_path: Path) -> None:
    rotary = source(tiny_llama.write(tmp_path / "a.gguf")).architecture.rotary[0]
    assert rotary.inverse_frequencies[3] == 10000.0 ** (-6 / tiny_llama.HEAD_SIZE)


@pytest.mark.parametrize(
    ("divisors", "words"),
    [
        (np.ones(5, np.float32), r"has shape \[5\], the rotary dimensions ask for \[16\]"),
        (np.ones(65_537, np.float32), "must be at most 65536 long, got 65537"),
        (np.zeros(16, np.float32), "must hold positive numbers"),
        (np.full(16, np.inf, np.float32), "must hold positive numbers"),
        (np.ones((2, 16), np.float32), "is missing or no vector"),
    ],
    ids=["short", "long", "zeros", "infinite", "matrix"],
)
def test_frequency_divisors_that_fit_no_head_are_refused(
    tmp_path: Path, divisors: np.ndarray[Any, Any], words: str
) -> None:
    def add(tensors: dict[str, Any]) -> None:
        tensors["rope_freqs.weight"] = divisors

    path = tiny_llama.write(tmp_path / "a.gguf", edit=add, kind=Kind.F32)
    with pytest.raises(ConversionError, match=f"'rope_freqs.weight'.*{words}"):
        source(path)
