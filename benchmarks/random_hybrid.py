"""A GGUF file of Qwen3.5 0.8B's shape, gated delta nets in three layers of four, random weights.

In Q4_0, but for what llama.cpp keeps wider. The vocabulary and its tokenizer are those of another
GGUF file, so that the head is as large as that one's. Needs the gguf package.

    python -m benchmarks.random_hybrid TOKENIZER.gguf FILE.gguf [--layers N] [--experts N] [--head]
    python -m benchmarks.random_hybrid TOKENIZER.gguf FILE.gguf --wide --layers 4 --experts 256

With `--experts` each layer has so many, and a shared one, of Qwen3.5 35B-A3B's inner size. With
`--wide` hidden size and heads are that model's: the second command cuts it to 4 layers. With
`--head` there is a head for multi-token prediction, which always guesses the token with the next
number.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.large_llama import copy_tokenizer
from benchmarks.random_mixture import Tensor, add_tensors, random_values

INNER, KV_HEADS, HEAD_SIZE = 3584, 2, 256
KEY_HEADS, DELTA_SIZE, TAPS = 16, 128, 4
INTERVAL = 4  # each such layer attends
EXPERT_INNER, ACTIVE = 512, 8


@dataclass(frozen=True)
class Shape:
    layers: int
    experts: int = 0
    hidden: int = 1024
    heads: int = 8
    value_heads: int = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--layers", type=int, default=24, help="default %(default)s")
    parser.add_argument("--experts", type=int, default=0, help="of a layer; default: it is dense")
    parser.add_argument("--head", action="store_true")
    parser.add_argument("--wide", action="store_true")
    given = parser.parse_args()
    shape = Shape(given.layers, given.experts)
    if given.wide:
        shape = replace(shape, hidden=2048, heads=16, value_heads=32)
    write_random_hybrid(given.tokenizer, given.file, shape, given.head)


def write_random_hybrid(tokenizer: Path, file: Path, shape: Shape, head: bool = False) -> None:
    """Takes twice the memory of the largest tensor."""
    import gguf

    writer = gguf.GGUFWriter(file, "qwen35moe" if shape.experts else "qwen35")
    vocabulary = copy_tokenizer(gguf.GGUFReader(tokenizer), writer)
    writer.add_block_count(shape.layers + head)
    if head:
        writer.add_nextn_predict_layers(1)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(ACTIVE)
        writer.add_expert_feed_forward_length(EXPERT_INNER)
        writer.add_expert_shared_feed_forward_length(EXPERT_INNER)
    writer.add_context_length(32768)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_SIZE)
    writer.add_value_length(HEAD_SIZE)
    writer.add_rope_dimension_count(HEAD_SIZE // 4)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e7)
    writer.add_ssm_conv_kernel(TAPS)
    writer.add_ssm_state_size(DELTA_SIZE)
    writer.add_ssm_group_count(KEY_HEADS)
    writer.add_ssm_time_step_rank(shape.value_heads)
    writer.add_ssm_inner_size(shape.value_heads * DELTA_SIZE)
    writer.add_full_attention_interval(INTERVAL)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    tensors: list[Tensor] = [
        ("token_embd.weight", (vocabulary, shape.hidden), "Q8_0"),
        ("output_norm.weight", (shape.hidden,), None),
        *_layers(shape),
    ]
    known: dict[str, np.ndarray[Any, Any]] = {"ssm_a": _decay_rates(shape.value_heads)}
    if head:
        tensors += [("output.weight", (vocabulary, shape.hidden), "Q8_0"), *_head(shape)]
        known |= _successors(vocabulary, shape.hidden)
    add_tensors(writer, tensors, known)


def _head(shape: Shape) -> Iterator[Tensor]:
    hidden = shape.hidden
    own: list[Tensor] = [("nextn.eh_proj.weight", (hidden, 2 * hidden), "Q8_0")]
    own += [(f"nextn.{each}.weight", (hidden,), None) for each in ("enorm", "hnorm")]
    own += [("nextn.shared_head_norm.weight", (hidden,), None)]
    for name, sizes, kind in [*own, *_attention(shape), *_beside_mixers(shape)]:
        yield f"blk.{shape.layers}.{name}", sizes, kind


def _successors(vocabulary: int, hidden: int) -> dict[str, np.ndarray[Any, Any]]:
    """What the head reads is the embedding alone, of which its layer changes little. The output's
    row of a token is the embedding of the one before it.
    """
    name, sizes = "token_embd.weight", (vocabulary, hidden)
    embeddings = random_values(np.random.default_rng(2), name, sizes, "Q8_0")
    rows = embeddings.reshape(vocabulary, -1)
    projection = np.zeros((hidden, 2 * hidden // 32, 34), np.uint8)  # Q8_0: a scale and 32 codes
    projection[..., :2] = np.array([1 / 127], np.float16).view(np.uint8)
    channel = np.arange(hidden)
    projection[channel, channel // 32, 2 + channel % 32] = 127
    return {
        name: embeddings,
        "output.weight": np.roll(rows, 1, axis=0).reshape(-1),
        "nextn.eh_proj.weight": projection.reshape(-1),
    }


def _decay_rates(heads: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Between 0.01 and 16, as models begin."""
    return -np.random.default_rng(1).uniform(0.01, 16, heads).astype(np.float32)


def _layers(shape: Shape) -> Iterator[Tensor]:
    for layer in range(shape.layers):
        own = _delta(shape) if (layer + 1) % INTERVAL else _attention(shape)
        for name, sizes, kind in [*own, *_beside_mixers(shape)]:
            yield f"blk.{layer}.{name}", sizes, kind


def _delta(shape: Shape) -> list[Tensor]:
    heads, hidden = shape.value_heads, shape.hidden
    width = heads * DELTA_SIZE
    channels = 2 * KEY_HEADS * DELTA_SIZE + width
    return [
        ("attn_qkv.weight", (channels, hidden), "Q4_0"),
        ("attn_gate.weight", (width, hidden), "Q4_0"),
        ("ssm_beta.weight", (heads, hidden), "Q8_0"),
        ("ssm_alpha.weight", (heads, hidden), "Q8_0"),
        ("ssm_conv1d.weight", (channels, TAPS), None),
        ("ssm_a", (heads,), None),
        ("ssm_dt.bias", (heads,), None),
        ("ssm_norm.weight", (DELTA_SIZE,), None),
        ("ssm_out.weight", (hidden, width), "Q4_0"),
    ]


def _attention(shape: Shape) -> list[Tensor]:
    hidden = shape.hidden
    rows, kv_rows = shape.heads * HEAD_SIZE, KV_HEADS * HEAD_SIZE
    return [
        ("attn_q.weight", (2 * rows, hidden), "Q4_0"),
        ("attn_k.weight", (kv_rows, hidden), "Q4_0"),
        ("attn_v.weight", (kv_rows, hidden), "Q4_0"),
        ("attn_q_norm.weight", (HEAD_SIZE,), None),
        ("attn_k_norm.weight", (HEAD_SIZE,), None),
        ("attn_output.weight", (hidden, rows), "Q4_0"),
    ]


def _beside_mixers(shape: Shape) -> Iterator[Tensor]:
    hidden, experts = shape.hidden, shape.experts
    for name in ("attn_norm", "post_attention_norm"):
        yield f"{name}.weight", (hidden,), None
    mlps: list[tuple[str, tuple[int, ...], int]] = [("", (), INNER)]
    if experts:
        mlps = [("_exps", (experts,), EXPERT_INNER), ("_shexp", (), EXPERT_INNER)]
        yield "ffn_gate_inp.weight", (experts, hidden), None
        yield "ffn_gate_inp_shexp.weight", (hidden,), None
    for suffix, count, inner in mlps:
        yield f"ffn_gate{suffix}.weight", (*count, inner, hidden), "Q4_0"
        yield f"ffn_up{suffix}.weight", (*count, inner, hidden), "Q4_0"
        yield f"ffn_down{suffix}.weight", (*count, hidden, inner), "Q4_0"


if __name__ == "__main__":
    main()
