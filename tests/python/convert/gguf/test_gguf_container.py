"""Damaged GGUF files are refused with an error, quickly, whatever their bytes say."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from convert import tiny_llama

from pagewheel.convert import ConversionError
from pagewheel.convert.gguf.file import GGUFFile


def header(*, tensors: int = 0, keys: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def refused(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(ConversionError) as error:
        GGUFFile(path)
    assert str(path) in str(error.value)
    return str(error.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.gguf"):
        GGUFFile(tmp_path / "nowhere.gguf")


@pytest.mark.parametrize("content", [b"", b"GG", b"GGUF", b"PK\x03\x04 no model here", b"\0" * 64])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    refused(tmp_path / "a.gguf", content)


def test_unknown_version_is_named(tmp_path: Path) -> None:
    assert "version 9" in refused(tmp_path / "a.gguf", header(version=9))


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = tiny_llama.write(tmp_path / "whole.gguf").read_bytes()
    for length in (*range(24, 3000, 7), *range(3000, len(whole), 9973), len(whole) - 64):
        assert "trunca" in refused(tmp_path / "cut.gguf", whole[:length])


@pytest.mark.parametrize("item_type", [0, 4, 8])
def test_huge_array_length_costs_nothing(tmp_path: Path, item_type: int) -> None:
    value = text("a.b") + struct.pack("<IIQ", 9, item_type, 2**60)
    message = refused(tmp_path / "a.gguf", header(keys=1) + value + b"\0" * 100_000)
    assert "'a.b'" in message


def test_huge_counts_cost_nothing(tmp_path: Path) -> None:
    refused(tmp_path / "a.gguf", header(keys=2**63) + b"\0" * 100_000)
    refused(tmp_path / "a.gguf", header(tensors=2**63) + b"\0" * 100_000)


def test_huge_string_is_refused(tmp_path: Path) -> None:
    content = header(keys=1) + text("key") + struct.pack("<IQ", 8, 2**62)
    assert "'key'" in refused(tmp_path / "a.gguf", content + b"\0" * 1000)


def test_unknown_value_type_is_named(tmp_path: Path) -> None:
    content = header(keys=1) + text("key") + struct.pack("<I", 77)
    assert "77" in refused(tmp_path / "a.gguf", content)


def test_tensor_beyond_the_end_is_named(tmp_path: Path) -> None:
    entry = text("big.weight") + struct.pack("<IQQIQ", 2, 2**31, 2**31, 0, 0)
    assert "'big.weight'" in refused(tmp_path / "a.gguf", header(tensors=1) + entry)


def test_unknown_tensor_type_is_named(tmp_path: Path) -> None:
    entry = text("odd.weight") + struct.pack("<IQIQ", 1, 32, 4242, 0)
    message = refused(tmp_path / "a.gguf", header(tensors=1) + entry)
    assert "'odd.weight'" in message and "4242" in message


def test_repeated_key_is_refused(tmp_path: Path) -> None:
    key = text("key") + struct.pack("<II", 4, 1)
    assert "twice" in refused(tmp_path / "a.gguf", header(keys=2) + key + key)
