"""A model in several files is one model, whichever of them is named."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from pagewheel.convert import ConversionError
from pagewheel.convert.files.folders import files_sha256
from pagewheel.convert.files.source_folder import shard_paths
from pagewheel.convert.gguf.file import GGUFFile


def write_parts(folder: Path, name: str = "model", count: int = 3) -> list[Path]:
    writer = gguf.GGUFWriter(folder / name, "llama", split_max_tensors=2)
    writer.add_uint32("llama.block_count", 2)
    for index in range(2 * count):
        writer.add_tensor(f"t{index}.weight", np.full((2, 32), index, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob(f"{name}-*.gguf"))


def values(file: GGUFFile) -> dict[str, Any]:
    return {
        name: float(tensor.data.view(np.float32)[0, 0]) for name, tensor in file.tensors.items()
    }


@pytest.mark.parametrize("named", [0, 1, 2])
def test_any_part_opens_the_whole_model(tmp_path: Path, named: int) -> None:
    parts = write_parts(tmp_path)
    assert len(parts) == 3 and shard_paths(parts[named]) == parts
    with GGUFFile(parts[named]) as file:
        assert file.metadata["llama.block_count"] == 2
        assert values(file) == {f"t{i}.weight": i for i in range(6)}


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    parts = write_parts(tmp_path)
    parts[1].unlink()
    with pytest.raises(FileNotFoundError, match="00002-of-00003"):
        GGUFFile(parts[0])


def test_a_part_of_another_place_is_refused(tmp_path: Path) -> None:
    parts = write_parts(tmp_path)
    shutil.copy(parts[2], parts[1])
    with pytest.raises(ConversionError, match=r"00002-of-00003.*must be part 1 .*says 2"):
        GGUFFile(parts[0])


def test_a_renamed_part_is_refused(tmp_path: Path) -> None:
    first = write_parts(tmp_path)[0]
    with pytest.raises(ConversionError, match="one of 3 parts"):
        GGUFFile(first.rename(tmp_path / "other.gguf"))


def test_the_cache_key_follows_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEWHEEL_CACHE", str(tmp_path / "cache"))
    parts = write_parts(tmp_path)
    before = files_sha256(parts)
    content = bytearray(parts[2].read_bytes())
    content[-1] ^= 1
    parts[2].write_bytes(content)
    assert files_sha256(parts) != before
