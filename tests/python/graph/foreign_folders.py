"""Folders as optimum-intel exports them, out of tests/data/optimum."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import openvino as ov
import openvino.opset13 as ops
from openvino_core import CORE

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


def compress(folder: Path) -> None:
    """Puts matrices and stacks of them in 8 bits with a scale for each 32, as NNCF writes them."""
    path = folder / "openvino_model.xml"
    model = CORE.read_model(path)
    for node in model.get_ordered_ops():
        if node.get_type_name() != "MatMul":
            continue
        constant = node.input_value(1).get_node()
        if constant.get_type_name() != "Constant" or constant.shape[-1] % 32:
            continue
        values = constant.data
        groups = values.reshape(*values.shape[:-1], -1, 32)
        scales = np.abs(groups).max(-1, keepdims=True) / 127
        held = ops.convert(ops.constant(np.round(groups / scales).astype(np.int8)), "f32")
        shape = ops.constant(np.array(values.shape, np.int64))
        weights = ops.reshape(ops.multiply(held, ops.constant(scales)), shape, False)
        node.input(1).replace_source_output(weights.output(0))
    model.validate_nodes_and_infer_types()
    ov.save_model(model, folder / "compressed.xml", compress_to_fp16=False)
    del model, node, constant, values  # which map the file
    for suffix in (".xml", ".bin"):
        (folder / "compressed").with_suffix(suffix).replace(path.with_suffix(suffix))


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
