"""A GGUF file of a mixture of experts' shape, cut to a few layers, with random weights.

Shapes are those of Qwen3-30B-A3B in Q4_0 and of gpt-oss-20b, whose experts are in MXFP4. What such
a model says means nothing; what it takes is what a mixture of experts takes. The tokenizer is that
of another GGUF file. Needs the gguf package.

    python -m benchmarks.random_mixture TOKENIZER.gguf FILE.gguf [--shape gpt-oss] [--layers N] ...
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.large_llama import WEIGHT, copy_tokenizer, random_bytes


@dataclass(frozen=True)
class _Block:
    """So many weights in so many bytes, of which those from `scale_at` on are the scale, and of
    Q2_K that of the minimums.
    """

    weights: int
    size: int
    scale: np.ndarray[Any, Any]
    scale_at: int = 0


def _half(scale: float) -> np.ndarray[Any, Any]:
    return np.array([scale], np.float16).view(np.uint8)


_BLOCKS = {
    "Q4_0": _Block(32, 18, _half(WEIGHT / 4.6)),
    "Q8_0": _Block(32, 34, _half(WEIGHT / 74)),
    "Q2_K": _Block(256, 84, np.concatenate([_half(WEIGHT / 12), _half(WEIGHT / 8)]), 80),
    "Q3_K": _Block(256, 110, _half(WEIGHT / 43), 108),
    # A positive and a negative number of 0.008 to 0.03, of which seven bits are fixed.
    "BF16": _Block(2, 4, np.array([0x3C, 0x40, 0xBC], np.uint8), 1),
    "MXFP4": _Block(32, 17, np.array([120], np.uint8)),  # an exponent: 2 ** -7
}
Tensor = tuple[str, tuple[int, ...], str | None]


@dataclass(frozen=True)
class Shape:
    """Sizes of rows are multiples of a block's weights."""

    layers: int = 8
    hidden: int = 2048
    inner: int = 768
    experts: int = 128
    active: int = 8
    heads: int = 32
    kv_heads: int = 4
    head_size: int = 128
    context: int = 16384
    kind: str = "Q4_0"  # of experts


SHAPES = {
    "qwen3moe": Shape(),
    "gpt-oss": Shape(
        layers=6,
        hidden=2880,
        inner=2880,
        experts=32,
        active=4,
        heads=64,
        kv_heads=8,
        head_size=64,
        kind="MXFP4",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="qwen3moe")
    parser.add_argument("--kind", choices=_BLOCKS, help="of experts; default: the shape's")
    for each in fields(Shape):
        if each.name != "kind":
            name = "--" + each.name.replace("_", "-")
            parser.add_argument(name, type=int, help="default: the shape's")
    given = vars(parser.parse_args())
    tokenizer, file, name = (given.pop(each) for each in ("tokenizer", "file", "shape"))
    changes = {key: value for key, value in given.items() if value is not None}
    write_random_mixture(tokenizer, file, name, replace(SHAPES[name], **changes))


def write_random_mixture(tokenizer: Path, file: Path, name: str, shape: Shape) -> None:
    """`name` is one of SHAPES. Takes twice the memory of the largest tensor."""
    import gguf

    writer = gguf.GGUFWriter(file, name)
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
    if name == "gpt-oss":
        writer.add_sliding_window(128)
    add_tensors(
        writer, [*_tensors_outside(shape, vocabulary), *_tensors_in_layers(name, shape)], {}
    )


def add_tensors(writer: Any, tensors: list[Tensor], known: Mapping[str, Any]) -> None:
    """Ends the file with these tensors. `known` has the values of some by their names, or names
    in each block.
    """
    import gguf

    for tensor, sizes, kind in tensors:
        if kind is None:
            writer.add_tensor_info(tensor, sizes, np.dtype(np.float32), 4 * math.prod(sizes))
            continue
        block = _BLOCKS[kind]
        stored = (*sizes[:-1], sizes[-1] // block.weights * block.size)
        raw = gguf.GGMLQuantizationType[kind]
        size = math.prod(stored)
        writer.add_tensor_info(tensor, stored, np.dtype(np.uint8), size, raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    rng = np.random.default_rng(0)
    for tensor, sizes, kind in tensors:
        values = known.get(tensor, known.get(tensor.split(".", 2)[-1]))
        values = random_values(rng, tensor, sizes, kind) if values is None else values
        writer.write_tensor_data(values)
    writer.close()


def _tensors_outside(shape: Shape, vocabulary: int) -> Iterator[Tensor]:
    """Name, sizes and type (None is f32) of each tensor."""
    yield "token_embd.weight", (vocabulary, shape.hidden), "Q4_0"
    yield "output.weight", (vocabulary, shape.hidden), "Q4_0"
    yield "output_norm.weight", (shape.hidden,), None


def _tensors_in_layers(name: str, shape: Shape) -> Iterator[Tensor]:
    hidden, stack = shape.hidden, (shape.experts, shape.inner, shape.hidden)
    rows, kv_rows = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    is_gpt_oss = name == "gpt-oss"
    dense, expert = "Q8_0" if is_gpt_oss else "Q4_0", shape.kind
    matrices: list[Tensor] = [
        ("attn_q", (rows, hidden), dense),
        ("attn_k", (kv_rows, hidden), dense),
        ("attn_v", (kv_rows, hidden), dense),
        ("attn_output", (hidden, rows), dense),
        ("ffn_gate_exps", stack, expert),
        ("ffn_up_exps", stack, expert),
        ("ffn_down_exps", (shape.experts, hidden, shape.inner), expert),
        ("ffn_gate_inp", (shape.experts, hidden), None),
    ]
    vectors: list[Tensor] = [("attn_norm", (hidden,), None)]
    if is_gpt_oss:
        vectors += [("post_attention_norm", (hidden,), None), ("attn_sinks", (shape.heads,), None)]
    else:
        norms = ("attn_q_norm", "attn_k_norm")
        vectors += [("ffn_norm", (hidden,), None)]
        vectors += [(norm, (shape.head_size,), None) for norm in norms]
    for layer in range(shape.layers):
        for tensor, sizes, kind in matrices + vectors:
            yield f"blk.{layer}.{tensor}.weight", sizes, kind
        for tensor, sizes, _ in matrices if is_gpt_oss else ():
            yield f"blk.{layer}.{tensor}.bias", sizes[:-1], None


def random_values(
    rng: np.random.Generator, name: str, sizes: tuple[int, ...], kind: str | None
) -> np.ndarray[Any, Any]:
    """Blocks of random codes; zeros for a bias, ones for a norm; a router whose choice is even."""
    if kind is not None:
        block = _BLOCKS[kind]
        blocks = random_bytes(rng, math.prod(sizes) // block.weights, block.size)
        blocks[:, block.scale_at : block.scale_at + len(block.scale)] = block.scale
        return blocks.reshape(-1)
    if name.endswith(".bias"):
        return np.zeros(sizes, np.float32)
    if len(sizes) == 1:
        return np.ones(sizes, np.float32)
    return rng.normal(0, 1 / math.sqrt(sizes[-1]), sizes).astype(np.float32)


if __name__ == "__main__":
    main()
