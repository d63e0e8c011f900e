"""A decoder may not have openvino-tokenizers' operations, which trust their tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import openvino as ov
import openvino.opset13 as ops
import openvino_tokenizers
import pytest

import pagewheel


def foreign() -> ov.Node:
    """Joins two strings, of which one ends far behind the bytes."""
    begins, ends = ops.constant([0, 4], ov.Type.i32), ops.constant([4, 4_000_000], ov.Type.i32)
    text = ops.constant(np.frombuffer(b"textmore", np.uint8))
    node = openvino_tokenizers._get_factory().create(
        "UTF8Validate", [begins.output(0), ends.output(0), text.output(0)], {"replace_mode": True}
    )
    node.set_friendly_name("the_foreign_one")
    return node


def inside_of_a_condition() -> ov.Node:
    """In a graph of its own, which is not among the model's nodes."""
    condition = ops.if_op(ops.parameter([], ov.Type.boolean).output(0))
    for body in ("then", "else"):
        result = ops.result(foreign().output(2))
        getattr(condition, f"set_{body}_body")(ov.Model([result], [], body))
    then_result = condition.get_function(0).get_results()[0]
    else_result = condition.get_function(1).get_results()[0]
    condition.set_output(then_result, else_result)
    condition.set_argument(0, ops.constant(True, ov.Type.boolean).output(0))
    return condition


@pytest.mark.parametrize("make", [foreign, inside_of_a_condition])
def test_a_decoder_with_an_operation_of_the_tokenizers_is_refused(
    tiny_folder: Path, tmp_path: Path, make: Callable[[], ov.Node]
) -> None:
    folder = tmp_path / "hostile"
    shutil.copytree(tiny_folder, folder)
    model = ov.Core().read_model(tiny_folder / "openvino_model.xml")
    model.add_results([ops.result(make().outputs()[-1])])
    ov.save_model(model, folder / "openvino_model.xml", compress_to_fp16=False)
    pagewheel.Tokenizer(folder)  # from here on OpenVINO reads these operations
    with pytest.raises(ValueError, match=r"UTF8Validate \(the_foreign_one\) is not OpenVINO's own"):
        pagewheel.LLMPipeline(folder, "CPU")
