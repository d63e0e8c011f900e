"""Folders as optimum-intel exports them, out of tests/data/optimum."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

DATA = Path(__file__).parents[2] / "data" / "optimum"
NAMES = sorted(folder.name for folder in DATA.iterdir() if folder.is_dir())
KEPT = 64  # elements; the fixtures have zeros in place of larger constants


def unpack(name: str, folder: Path, tokenizers: Path) -> Path:
    """The model `name` with random weights, and the tokenizers of another model's folder."""
    folder.mkdir(parents=True)
    graph = gzip.decompress((DATA / name / "openvino_model.xml.gz").read_bytes())
    weights = bytearray(gzip.decompress((DATA / name / "openvino_model.bin.gz").read_bytes()))
    _fill(graph, weights)
    (folder / "openvino_model.xml").write_bytes(graph)
    (folder / "openvino_model.bin").write_bytes(weights)
    shutil.copy(DATA / name / "config.json", folder)
    for file in tokenizers.glob("openvino_*tokenizer.*"):
        shutil.copy(file, folder)
    return folder


def _fill(graph: bytes, weights: bytearray) -> None:
    """Norms' weights and the graph's numbers are small and stand in the fixture."""
    generator = np.random.default_rng(7)
    for layer in ElementTree.fromstring(graph).iter("layer"):
        data = layer.find("data")
        if layer.get("type") != "Const" or data is None or data.get("element_type") != "f32":
            continue
        shape = [int(size) for size in (data.get("shape") or "").split(",") if size.strip()]
        if np.prod(shape) > KEPT:
            values = generator.standard_normal(shape, np.float32) / np.float32(shape[-1] ** 0.5)
            offset = int(data.get("offset", ""))
            assert not any(weights[offset : offset + values.nbytes])
            weights[offset : offset + values.nbytes] = values.tobytes()
