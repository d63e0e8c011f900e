"""A GGUF file of Llama 2 7B's shape with random weights, in the mixture of types called Q4_K_M.

What it says means nothing; what it takes is what a model of its size takes. The tokenizer is that
of another GGUF file. Needs the gguf package.

    python -m benchmarks.large_llama TOKENIZER.gguf FILE.gguf [--layers N] ...

With `--successor` its likeliest token is always the one with the next number.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

WEIGHT = 0.02  # standard deviation, as checkpoints of this size have


@dataclass(frozen=True)
class Shape:
    """Sizes of rows are multiples of 256, the weights of a block."""

    layers: int = 32
    hidden: int = 4096
    inner: int = 11008
    heads: int = 32
    kv_heads: int = 32  # 8 as in Llama 3
    context: int = 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("file", type=Path)
    for each in fields(Shape):
        name = "--" + each.name.replace("_", "-")
        parser.add_argument(name, type=int, default=each.default, help="default %(default)s")
    parser.add_argument("--successor", action="store_true")
    given = vars(parser.parse_args())
    tokenizer, file, successor = (given.pop(each) for each in ("tokenizer", "file", "successor"))
    write_large_llama(tokenizer, file, Shape(**given), successor)


def write_large_llama(tokenizer: Path, file: Path, shape: Shape, successor: bool = False) -> None:
    """Takes twice the memory of the largest tensor."""
    import gguf

    writer = gguf.GGUFWriter(file, "llama")
    vocabulary = copy_tokenizer(gguf.GGUFReader(tokenizer), writer)
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    # openvino-genai reads no file without these two.
    writer.add_rope_dimension_count(shape.hidden // shape.heads)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    rng = np.random.default_rng(0)
    tensors = list(_tensors(shape, vocabulary, "Q4_K" if successor else "Q6_K"))
    for name, sizes, kind in tensors:
        if kind is None:
            writer.add_tensor_info(name, sizes, np.dtype(np.float32), 4 * sizes[0])
            continue
        raw = gguf.GGMLQuantizationType[kind]
        weights, size = gguf.GGML_QUANT_SIZES[raw]  # of a block
        row = sizes[1] // weights * size
        writer.add_tensor_info(
            name, (sizes[0], row), np.dtype(np.uint8), sizes[0] * row, raw_dtype=raw
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    known = _successors(rng, vocabulary * shape.hidden // 256, vocabulary) if successor else {}
    for name, sizes, kind in tensors:
        values = known.get(name)
        values = _values(rng, math.prod(sizes), kind) if values is None else values
        writer.write_tensor_data(values)
    writer.close()


def copy_tokenizer(source: Any, writer: Any) -> int:
    """Copies what the file says of its tokenizer, and returns the number of tokens."""
    tokens = 0
    for name, field in source.fields.items():
        if not name.startswith("tokenizer."):
            continue
        value = field.contents()
        if name == "tokenizer.ggml.tokens":
            tokens = len(value)
        writer.add_key_value(name, value, field.types[0], *field.types[1:2])
    return tokens


def _tensors(
    shape: Shape, vocabulary: int, output: str
) -> Iterator[tuple[str, tuple[int, ...], str | None]]:
    """Name, sizes and type (None is f32) of each tensor; `output` is the output matrix's."""
    hidden, inner = shape.hidden, shape.inner
    kv_rows = hidden // shape.heads * shape.kv_heads
    yield "token_embd.weight", (vocabulary, hidden), "Q4_K"
    yield "output.weight", (vocabulary, hidden), output
    yield "output_norm.weight", (hidden,), None
    for layer in range(shape.layers):
        # llama.cpp's mixture has more bits for these two in half of the layers.
        finer = "Q6_K" if layer % 2 else "Q4_K"
        for name, rows, columns, kind in [
            ("attn_q", hidden, hidden, "Q4_K"),
            ("attn_k", kv_rows, hidden, "Q4_K"),
            ("attn_v", kv_rows, hidden, finer),
            ("attn_output", hidden, hidden, "Q4_K"),
            ("ffn_gate", inner, hidden, "Q4_K"),
            ("ffn_up", inner, hidden, "Q4_K"),
            ("ffn_down", hidden, inner, finer),
        ]:
            yield f"blk.{layer}.{name}.weight", (rows, columns), kind
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{name}.weight", (hidden,), None


def _successors(
    rng: np.random.Generator, count: int, vocabulary: int
) -> dict[str, np.ndarray[Any, Any]]:
    """A token's row of the output is the embedding of the one before it, which is so large that
    layers change little of it.
    """
    embeddings = _values(rng, 256 * count, "Q4_K", 400 * WEIGHT)
    output = np.roll(embeddings.reshape(vocabulary, -1), 1, axis=0).reshape(-1)
    return {"token_embd.weight": embeddings, "output.weight": output}


def _values(
    rng: np.random.Generator, count: int, kind: str | None, weight: float = WEIGHT
) -> np.ndarray[Any, Any]:
    """Ones, or blocks of 256 weights of random codes and scales around `weight`."""
    if kind is None:
        return np.ones(count, np.float32)
    if kind == "Q4_K":
        # d and dmin, 8 scales and minima of 6 bits, 256 codes; a minimum is half a code's range.
        blocks = random_bytes(rng, count // 256, 144)
        scale = weight / (32 * 4.6)
        blocks[:, :4] = np.array([scale, 7.5 * scale], np.float16).view(np.uint8)
        return blocks.reshape(-1)
    # 128 bytes of low and 64 of high bits, 16 signed scales, d.
    blocks = random_bytes(rng, count // 256, 210)
    blocks[:, 208:] = np.array([WEIGHT / (64 * 18.5)], np.float16).view(np.uint8)
    return blocks.reshape(-1)


def random_bytes(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray[Any, Any]:
    return np.frombuffer(rng.bytes(rows * columns), np.uint8).reshape(rows, columns).copy()


if __name__ == "__main__":
    main()
