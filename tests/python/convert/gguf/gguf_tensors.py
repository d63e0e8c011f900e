"""Random tensors of every GGUF type: bytes whose numbers are all finite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Kind

# Where a block has f16 numbers; every other byte of a block may be anything.
_HALVES: Mapping[Kind, tuple[int, ...]] = {
    Kind.F16: (0,),
    Kind.Q4_0: (0,),
    Kind.Q4_1: (0, 2),
    Kind.Q5_0: (0,),
    Kind.Q5_1: (0, 2),
    Kind.Q8_0: (0,),
    Kind.Q2_K: (80, 82),
    Kind.Q3_K: (108,),
    Kind.Q4_K: (0, 2),
    Kind.Q5_K: (0, 2),
    Kind.Q6_K: (208,),
    Kind.IQ4_NL: (0,),
    Kind.IQ4_XS: (0,),
    Kind.TQ1_0: (52,),
    Kind.TQ2_0: (64,),
    Kind.IQ1_S: (0,),
    Kind.IQ2_XXS: (0,),
    Kind.IQ2_XS: (0,),
    Kind.IQ2_S: (0,),
    Kind.IQ3_XXS: (0,),
    Kind.IQ3_S: (0,),
}


def random_tensor(
    kind: Kind, rows: int, columns: int, rng: np.random.Generator
) -> np.ndarray[Any, Any]:
    """u8 [rows, bytes per row]; scales and minimums of both signs, some of them zero."""
    if kind is Kind.F32:
        return rng.standard_normal((rows, columns)).astype(np.float32).view(np.uint8)
    if kind is Kind.BF16:
        values = rng.standard_normal((rows, columns)).astype(np.float32)
        return np.ascontiguousarray(values.view(np.uint16)[:, 1::2]).view(np.uint8)
    weights, size = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (rows, columns // weights, size), dtype=np.uint8)
    for offset in _HALVES.get(kind, ()):
        numbers = rng.standard_normal((*blocks.shape[:2], 1)) * 0.05
        numbers[rng.random(numbers.shape) < 0.02] = 0
        blocks[..., offset : offset + 2] = numbers.astype(np.float16).view(np.uint8)
    if kind is Kind.MXFP4:
        blocks[..., 0] = rng.integers(100, 130, blocks.shape[:2])
    return blocks.reshape(rows, -1)
