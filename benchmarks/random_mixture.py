"""A GGUF file of Qwen3-30B-A3B's shape, cut to a few layers, with random weights in Q4_0.

What it says means nothing; what it takes is what a mixture of experts takes. The tokenizer is that
of another GGUF file. Needs the gguf package.

    python -m benchmarks.random_mixture TOKENIZER.gguf FILE.gguf [--layers N] ...
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.large_llama import WEIGHT, copy_tokenizer, random_bytes


@dataclass(frozen=True)
class Shape:
    """Sizes of rows are multiples of 32, the weights of a block."""

    layers: int = 8
    hidden: int = 2048
    inner: int = 768
    experts: int = 128
    active: int = 8
    heads: int = 32
    kv_heads: int = 4
    head_size: int = 128
    context: int = 16384


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("file", type=Path)
    for each in fields(Shape):
        name = "--" + each.name.replace("_", "-")
        parser.add_argument(name, type=int, default=each.default, help="default %(default)s")
    given = vars(parser.parse_args())
    tokenizer, file = given.pop("tokenizer"), given.pop("file")
    write_random_mixture(tokenizer, file, Shape(**given))


def write_random_mixture(tokenizer: Path, file: Path, shape: Shape) -> None:
    """Takes twice the memory of the largest tensor."""
    import gguf

    writer = gguf.GGUFWriter(file, "qwen3moe")
    vocabulary = copy_tokenizer(gguf.GGUFReader(tokenizer), writer)
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.inner)
    writer.add_expert_count(shape.experts)
    writer.add_expert_used_count(shape.active)
    writer.add_expert_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    raw = gguf.GGMLQuantizationType.Q4_0
    tensors = list(_tensors(shape, vocabulary))
    for name, sizes, quantized in tensors:
        if quantized:
            stored = (*sizes[:-1], sizes[-1] // 32 * 18)
            writer.add_tensor_info(
                name, stored, np.dtype(np.uint8), math.prod(stored), raw_dtype=raw
            )
        else:
            writer.add_tensor_info(name, sizes, np.dtype(np.float32), 4 * math.prod(sizes))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    rng = np.random.default_rng(0)
    for _, sizes, quantized in tensors:
        writer.write_tensor_data(_values(rng, sizes, quantized))
    writer.close()


def _tensors(shape: Shape, vocabulary: int) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """Name, sizes and whether it is quantised, of each tensor."""
    hidden, stack = shape.hidden, (shape.experts, shape.inner, shape.hidden)
    rows, kv_rows = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    yield "token_embd.weight", (vocabulary, hidden), True
    yield "output.weight", (vocabulary, hidden), True
    yield "output_norm.weight", (hidden,), False
    for layer in range(shape.layers):
        for name, sizes, quantized in [
            ("attn_q", (rows, hidden), True),
            ("attn_k", (kv_rows, hidden), True),
            ("attn_v", (kv_rows, hidden), True),
            ("attn_output", (hidden, rows), True),
            ("ffn_gate_exps", stack, True),
            ("ffn_up_exps", stack, True),
            ("ffn_down_exps", (shape.experts, hidden, shape.inner), True),
            ("ffn_gate_inp", (shape.experts, hidden), False),
            ("attn_q_norm", (shape.head_size,), False),
            ("attn_k_norm", (shape.head_size,), False),
            ("attn_norm", (hidden,), False),
            ("ffn_norm", (hidden,), False),
        ]:
            yield f"blk.{layer}.{name}.weight", sizes, quantized


def _values(
    rng: np.random.Generator, sizes: tuple[int, ...], quantized: bool
) -> np.ndarray[Any, Any]:
    """Blocks of random codes; ones for a norm; a router whose choice is even."""
    if not quantized:
        if len(sizes) == 1:
            return np.ones(sizes, np.float32)
        return rng.normal(0, 1 / math.sqrt(sizes[-1]), sizes).astype(np.float32)
    blocks = random_bytes(rng, math.prod(sizes) // 32, 18)
    blocks[:, :2] = np.array([WEIGHT / 4.6], np.float16).view(np.uint8)
    return blocks.reshape(-1)


if __name__ == "__main__":
    main()
