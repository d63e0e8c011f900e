"""Damaged mixtures of experts in foreign graphs: an error that says what is wrong, or a reason."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import foreign_folders
import numpy as np
import openvino as ov
import openvino.opset13 as ops
import pytest
from convert import tiny_models
from openvino_core import CORE

import pagewheel
from pagewheel._pagewheel import describe_operations
from pagewheel.convert import convert

# Of the fixture: 4 experts, hidden size 64, 96 inside, scales for each 32.
Change = Callable[[ov.Model], None]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mixtral")
    source = tiny_models.save(tiny_models.make("llama-even"), path / "llama")
    tokenizers = convert(source, path / "tokenizers", progress=False)
    folder = foreign_folders.unpack("mixtral", path / "exported", tokenizers)
    foreign_folders.compress(folder)
    return folder


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "model"))


def change_graph(folder: Path, change: Change) -> None:
    path = folder / "openvino_model.xml"
    model = CORE.read_model(path)
    change(model)
    model.validate_nodes_and_infer_types()
    ov.save_model(model, folder / "changed.xml", compress_to_fp16=False)
    del model
    for suffix in (".xml", ".bin"):
        (folder / "changed").with_suffix(suffix).replace(path.with_suffix(suffix))


def node_of(model: ov.Model, kind: str, part: str) -> ov.Node:
    nodes = model.get_ordered_ops()
    return next(n for n in nodes if n.get_type_name() == kind and part in n.get_friendly_name())


def put(node: ov.Node, port: int, value: np.ndarray) -> None:
    node.input(port).replace_source_output(ops.constant(value).output(0))


def more_scores_than_experts(model: ov.Model) -> None:
    gate = node_of(model, "MatMul", "layers.0.mlp.gate")
    put(gate, 1, np.random.default_rng(1).standard_normal((6, 64), np.float32))


def more_chosen_than_experts(model: ov.Model) -> None:
    more_scores_than_experts(model)
    put(node_of(model, "TopK", "layers.0.mlp"), 1, np.array(5))


def numbers_out_of_range(model: ov.Model) -> None:
    scatter = node_of(model, "ScatterElementsUpdate", "layers.0.mlp")
    raised = ops.add(scatter.input_value(1), ops.constant(np.array(3, np.int32)))
    scatter.input(1).replace_source_output(raised.output(0))


def scales_of_all_rows(model: ov.Model) -> None:
    matmul = node_of(model, "MatMul", "layers.0.mlp.experts")
    scaled = matmul.input_value(1).get_node().input_value(0).get_node()
    put(scaled, 1, np.full((4, 1, 2, 1), 0.01, np.float32))


def load(folder: Path) -> pagewheel.LLMPipeline:
    return pagewheel.LLMPipeline(folder, "CPU", linear_backend="native")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (more_scores_than_experts, "chooses 2 of 6 experts, and the layer has 4"),
        (more_chosen_than_experts, "chooses 5 of 6 experts, and the layer has 4"),
    ],
)
def test_a_router_to_experts_that_there_are_not_is_refused(
    folder: Path, change: Change, message: str
) -> None:
    change_graph(folder, change)
    with pytest.raises(pagewheel.InvalidArgumentError, match=message):
        load(folder)


def test_a_number_that_is_no_expert_ends_the_request_alone(folder: Path) -> None:
    change_graph(folder, numbers_out_of_range)
    pipeline = load(folder)
    for _ in range(2):
        with pytest.raises(pagewheel.PagewheelError, match=r"a row chose expert [4-6] of 4"):
            pipeline.generate("a b c", max_new_tokens=1, apply_chat_template=False)


def test_scales_that_are_not_its_groups_leave_the_layer_to_openvino(folder: Path) -> None:
    change_graph(folder, scales_of_all_rows)
    left = describe_operations(str(folder), "CPU", {}).left
    assert any("scales or zero points have another shape than its groups" in one for one in left)
    pagewheel.LLMPipeline(folder, "CPU").generate(
        "a b c", max_new_tokens=1, apply_chat_template=False
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("4, 96, 2, 32", "5, 96, 2, 32"),  # of experts
        ("4, 96, 2, 32", "4, 96, 3, 32"),  # of the hidden size
        ("4, 64, 3, 32", "4, 64, 2, 32"),  # of what gate and up give
        ("4, 96, 2, 1", "4, 96, 3, 1"),  # scales
        ("4, 96, 2, 1", "3, 96, 2, 1"),
        ("4, 96, 2, 32", "4, 96, 2, 4611686018427387904"),
    ],
)
def test_stacks_that_do_not_fit_are_refused(folder: Path, before: str, after: str) -> None:
    xml = folder / "openvino_model.xml"
    text = xml.read_text()
    assert f'shape="{before}"' in text
    xml.write_text(text.replace(f'shape="{before}"', f'shape="{after}"', 1))
    with pytest.raises(pagewheel.PagewheelError, match=r"openvino_model\.xml"):
        load(folder)


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_truncated_stacks_are_refused(folder: Path, kept: int) -> None:
    file = folder / "openvino_model.bin"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) * kept // 3])
    with pytest.raises(pagewheel.PagewheelError, match="openvino_model"):
        load(folder)
