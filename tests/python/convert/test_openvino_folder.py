"""OpenVINO folders that others wrote: what may be missing, and what is named."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import openvino as ov
import openvino.opset13 as ops
import pytest
from conftest import F32, greedy
from convert import tiny_models
from openvino_core import CORE

import pagewheel
from pagewheel.convert import convert, resolve_model

TEXT = tiny_models.random_ids(90)


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tiny_models.save(tiny_models.make("mistral"), tmp_path_factory.mktemp("source"))
    return convert(source, tmp_path_factory.mktemp("converted") / "model", progress=False)


@pytest.fixture
def folder(converted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(converted, tmp_path / "folder"))


def generated(folder: Path, **properties: str) -> list[int]:
    scheduler = pagewheel.SchedulerConfig()
    pipeline = pagewheel.ContinuousBatchingPipeline(folder, scheduler, "CPU", {**F32, **properties})
    return list(pipeline.generate([TEXT], greedy(16))[0].m_generation_ids[0])


def rename_input(folder: Path, old: str, new: str) -> None:
    path = folder / "openvino_model.xml"
    model = CORE.read_model(path)
    model.input(old).tensor.set_names({new})
    ov.save_model(model, folder / "changed.xml", compress_to_fp16=False)
    del model
    (folder / "changed.xml").replace(path)
    (folder / "changed.bin").replace(path.with_suffix(".bin"))


@pytest.mark.parametrize("backend", ["native", "openvino"])
def test_windows_are_found_without_pagewheel_json(
    converted: Path, folder: Path, backend: str
) -> None:
    for name in ("pagewheel.json", "generation_config.json", "tokenizer_config.json"):
        (folder / name).unlink()
    assert resolve_model(folder) == folder
    expected = generated(converted, attention_backend=backend)
    assert generated(folder, attention_backend=backend) == expected
    if backend == "openvino":  # which finds them in the graph
        (folder / "config.json").unlink()
        assert generated(folder, attention_backend=backend) == expected


@pytest.mark.parametrize("name", ["openvino_tokenizer.xml", "openvino_detokenizer.xml"])
def test_missing_graph_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"(has|holds) no {name}"):
        pagewheel.LLMPipeline(folder, "CPU")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("input_ids", "inputs_embeds", "no input input_ids"),
        ("attention_mask", "mask", "no input attention_mask"),
        ("position_ids", "token_type_ids", "an input 'token_type_ids' that nothing fills"),
    ],
)
def test_input_that_nobody_fills_is_named(folder: Path, old: str, new: str, words: str) -> None:
    rename_input(folder, old, new)
    with pytest.raises(ValueError, match=words):
        pagewheel.LLMPipeline(folder, "CPU")


def opened_elsewhere(folder: Path) -> str:
    """What opening the folder raises in a process of its own, which must not end by a signal."""
    code = (
        "import sys, pagewheel\n"
        "try:\n    pagewheel.LLMPipeline(sys.argv[1], 'CPU')\n"
        "except ValueError as error:\n    print(error)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "pagewheel.json", "tokenizer_config.json"]
)
def test_json_without_an_end_of_levels_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_text('{"rotary": ' + '{"a":[' * 100_000 + "]}" * 100_000 + "}")
    words = opened_elsewhere(folder)
    assert name in words and "allowed: 100" in words


@pytest.mark.parametrize("value", [2**32 - 1, 2**63, 2**64 - 1, -1, 0.5])
def test_a_context_that_no_model_has_is_refused(folder: Path, value: float) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "max_position_embeddings": value}))
    with pytest.raises(ValueError, match=r"config\.json.*max_position_embeddings is .*allowed"):
        pagewheel.LLMPipeline(folder, "CPU")


def constants(xml: Path) -> Iterator[tuple[int, int]]:
    """Offset and size of each, as the graph's text says."""
    for data in ElementTree.parse(xml).iter("data"):
        if "offset" in data.attrib:
            yield int(data.attrib["offset"]), int(data.attrib["size"])


@pytest.mark.parametrize("graph", ["openvino_tokenizer", "openvino_detokenizer"])
@pytest.mark.parametrize("value", [-4000, 100_000, 2**31 - 1])
def test_a_string_outside_of_its_table_is_refused(folder: Path, graph: str, value: int) -> None:
    content = bytearray((folder / f"{graph}.bin").read_bytes())
    offset = next(at for at, size in constants(folder / f"{graph}.xml") if size > 1000)
    content[offset : offset + 4] = struct.pack("<i", value)
    (folder / f"{graph}.bin").write_bytes(content)
    words = opened_elsewhere(folder)
    assert f"{graph}.xml" in words and "string 0 of a table goes from" in words


def test_a_variable_without_a_name_is_refused(folder: Path) -> None:
    path = folder / "openvino_model.xml"
    text = path.read_text()
    damaged = re.sub(r"<data variable_id=[^>]*>", "", text, count=1)
    assert damaged != text
    path.write_text(damaged)
    assert "no variable_id" in opened_elsewhere(folder)


def test_positions_that_are_counted_off_the_cache_are_refused(folder: Path, tmp_path: Path) -> None:
    """As in exports of Qwen3.5: with pages the cache's length, and so each position, would be 0."""
    model = CORE.read_model(folder / "openvino_model.xml")
    inputs = {each.any_name: each for each in model.inputs}
    keys = next(node for node in model.get_ordered_ops() if node.get_type_name() == "ReadValue")
    past = ops.gather(ops.shape_of(keys), ops.constant(2), ops.constant(0))
    tokens = ops.gather(ops.shape_of(inputs["input_ids"].node), ops.constant(1), ops.constant(0))
    counted = ops.range(past, ops.add(past, tokens), ops.constant(np.int64(1)), "i64")
    counted = ops.unsqueeze(counted, ops.constant(0))
    for reader in inputs["position_ids"].get_target_inputs():
        reader.replace_source_output(counted.output(0))
    shutil.copytree(folder, tmp_path / "counted")
    ov.save_model(model, tmp_path / "counted/openvino_model.xml", compress_to_fp16=False)
    with pytest.raises(ValueError, match="rotates keys, but not by its input position_ids"):
        pagewheel.LLMPipeline(tmp_path / "counted", "CPU")


def test_what_is_no_graph_of_openvinos_goes_to_none_of_its_readers(folder: Path) -> None:
    (folder / "openvino_tokenizer.xml").write_text('node { name: "a" op: "Const" }')
    assert "no OpenVINO graph" in opened_elsewhere(folder)
