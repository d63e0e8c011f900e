"""Runs a converted decoder's stateful graph in f32, without pagewheel's engine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from openvino_core import CORE

EXACT = {
    "INFERENCE_PRECISION_HINT": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
    "KV_CACHE_PRECISION": "f32",
}


class Decoder:
    """Runs the stateful model on one sequence."""

    def __init__(self, model: ov.Model | Path) -> None:
        """`model` is a converted folder or a graph."""
        if isinstance(model, Path):
            model = CORE.read_model(model / "openvino_model.xml")
        self.request = CORE.compile_model(model, "CPU", EXACT).create_infer_request()
        self.past = 0

    def reset(self) -> None:
        self.request.reset_state()
        self.past = 0

    def __call__(self, ids: list[int], *, first_position: int | None = None) -> Any:
        """Logits f32 [len(ids), vocab] of the next tokens."""
        start = self.past if first_position is None else first_position
        self.past += len(ids)
        outputs = self.request.infer(
            {
                "input_ids": np.array([ids], np.int64),
                "attention_mask": np.ones((1, self.past), np.int64),
                "position_ids": np.arange(start, start + len(ids), dtype=np.int64)[None],
                "beam_idx": np.zeros(1, np.int32),
            }
        )
        return outputs["logits"][0].copy()


def relative(got: Any, expected: Any) -> float:
    """The largest error of a position, relative to the position's logits."""
    error = np.linalg.norm(got - expected, axis=-1) / np.linalg.norm(expected, axis=-1)
    return float(error.max())


def runtime_layers(model: ov.Model, config: dict[str, str]) -> Counter[tuple[str, str]]:
    compiled = CORE.compile_model(model, "CPU", config)
    infos = [op.get_rt_info() for op in compiled.get_runtime_model().get_ops()]
    return Counter(
        (info["layerType"].astype(str), info["runtimePrecision"].astype(str)) for info in infos
    )
