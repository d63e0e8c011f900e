"""A GGUF file of Qwen3.5 0.8B's shape, gated delta nets in three layers of four, random weights.

In Q4_0, but for what llama.cpp keeps wider. The vocabulary and its tokenizer are those of another
GGUF file, so that the head is as large as that one's. Needs the gguf package.

    python -m benchmarks.random_hybrid TOKENIZER.gguf FILE.gguf [--layers N] [--experts N] [--head]

With `--experts` each layer has so many, and a shared one, of Qwen3.5 35B-A3B's inner size. With
`--head` there is a head for multi-token prediction, which always guesses the token with the next
number.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.large_llama import copy_tokenizer
from benchmarks.random_mixture import Tensor, add_tensors, random_values

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_SIZE = 1024, 3584, 8, 2, 256
DELTA_HEADS, DELTA_SIZE, TAPS = 16, 128, 4
INTERVAL = 4  # each such layer attends
EXPERT_INNER, ACTIVE = 512, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--layers", type=int, default=24, help="default %(default)s")
    parser.add_argument("--experts", type=int, default=0, help="of a layer; default: it is dense")
    parser.add_argument("--head", action="store_true")
    given = parser.parse_args()
    write_random_hybrid(given.tokenizer, given.file, given.layers, given.experts, given.head)


def write_random_hybrid(
    tokenizer: Path, file: Path, layers: int, experts: int = 0, head: bool = False
) -> None:
    """Takes twice the memory of the largest tensor."""
    import gguf

    writer = gguf.GGUFWriter(file, "qwen35moe" if experts else "qwen35")
    vocabulary = copy_tokenizer(gguf.GGUFReader(tokenizer), writer)
    writer.add_block_count(layers + head)
    if head:
        writer.add_nextn_predict_layers(1)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(ACTIVE)
        writer.add_expert_feed_forward_length(EXPERT_INNER)
        writer.add_expert_shared_feed_forward_length(EXPERT_INNER)
    writer.add_context_length(32768)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_SIZE)
    writer.add_value_length(HEAD_SIZE)
    writer.add_rope_dimension_count(HEAD_SIZE // 4)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e7)
    writer.add_ssm_conv_kernel(TAPS)
    writer.add_ssm_state_size(DELTA_SIZE)
    writer.add_ssm_group_count(DELTA_HEADS)
    writer.add_ssm_time_step_rank(DELTA_HEADS)
    writer.add_ssm_inner_size(DELTA_HEADS * DELTA_SIZE)
    writer.add_full_attention_interval(INTERVAL)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    tensors: list[Tensor] = [
        ("token_embd.weight", (vocabulary, HIDDEN), "Q8_0"),
        ("output_norm.weight", (HIDDEN,), None),
        *_layers(layers, experts),
    ]
    known: dict[str, np.ndarray[Any, Any]] = {"ssm_a": _decay_rates()}
    if head:
        tensors += [("output.weight", (vocabulary, HIDDEN), "Q8_0"), *_head(layers, experts)]
        known |= _successors(vocabulary)
    add_tensors(writer, tensors, known)


def _head(block: int, experts: int) -> Iterator[Tensor]:
    own: list[Tensor] = [("nextn.eh_proj.weight", (HIDDEN, 2 * HIDDEN), "Q8_0")]
    own += [(f"nextn.{each}.weight", (HIDDEN,), None) for each in ("enorm", "hnorm")]
    own += [("nextn.shared_head_norm.weight", (HIDDEN,), None)]
    for name, sizes, kind in [*own, *_attention(), *_beside_mixers(experts)]:
        yield f"blk.{block}.{name}", sizes, kind


def _successors(vocabulary: int) -> dict[str, np.ndarray[Any, Any]]:
    """What the head reads is the embedding alone, of which its layer changes little. The output's
    row of a token is the embedding of the one before it.
    """
    name, sizes = "token_embd.weight", (vocabulary, HIDDEN)
    embeddings = random_values(np.random.default_rng(2), name, sizes, "Q8_0")
    rows = embeddings.reshape(vocabulary, -1)
    projection = np.zeros((HIDDEN, 2 * HIDDEN // 32, 34), np.uint8)  # Q8_0: a scale and 32 codes
    projection[..., :2] = np.array([1 / 127], np.float16).view(np.uint8)
    channel = np.arange(HIDDEN)
    projection[channel, channel // 32, 2 + channel % 32] = 127
    return {
        name: embeddings,
        "output.weight": np.roll(rows, 1, axis=0).reshape(-1),
        "nextn.eh_proj.weight": projection.reshape(-1),
    }


def _decay_rates() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Between 0.01 and 16, as models begin."""
    return -np.random.default_rng(1).uniform(0.01, 16, DELTA_HEADS).astype(np.float32)


def _layers(layers: int, experts: int) -> Iterator[Tensor]:
    for layer in range(layers):
        own = _delta() if (layer + 1) % INTERVAL else _attention()
        for name, sizes, kind in [*own, *_beside_mixers(experts)]:
            yield f"blk.{layer}.{name}", sizes, kind


def _delta() -> list[Tensor]:
    width = DELTA_HEADS * DELTA_SIZE
    return [
        ("attn_qkv.weight", (3 * width, HIDDEN), "Q4_0"),
        ("attn_gate.weight", (width, HIDDEN), "Q4_0"),
        ("ssm_beta.weight", (DELTA_HEADS, HIDDEN), "Q8_0"),
        ("ssm_alpha.weight", (DELTA_HEADS, HIDDEN), "Q8_0"),
        ("ssm_conv1d.weight", (3 * width, TAPS), None),
        ("ssm_a", (DELTA_HEADS,), None),
        ("ssm_dt.bias", (DELTA_HEADS,), None),
        ("ssm_norm.weight", (DELTA_SIZE,), None),
        ("ssm_out.weight", (HIDDEN, width), "Q4_0"),
    ]


def _attention() -> list[Tensor]:
    rows, kv_rows = HEADS * HEAD_SIZE, KV_HEADS * HEAD_SIZE
    return [
        ("attn_q.weight", (2 * rows, HIDDEN), "Q4_0"),
        ("attn_k.weight", (kv_rows, HIDDEN), "Q4_0"),
        ("attn_v.weight", (kv_rows, HIDDEN), "Q4_0"),
        ("attn_q_norm.weight", (HEAD_SIZE,), None),
        ("attn_k_norm.weight", (HEAD_SIZE,), None),
        ("attn_output.weight", (HIDDEN, rows), "Q4_0"),
    ]


def _beside_mixers(experts: int) -> Iterator[Tensor]:
    for name in ("attn_norm", "post_attention_norm"):
        yield f"{name}.weight", (HIDDEN,), None
    mlps: list[tuple[str, tuple[int, ...], int]] = [("", (), INNER)]
    if experts:
        mlps = [("_exps", (experts,), EXPERT_INNER), ("_shexp", (), EXPERT_INNER)]
        yield "ffn_gate_inp.weight", (experts, HIDDEN), None
        yield "ffn_gate_inp_shexp.weight", (HIDDEN,), None
    for suffix, count, inner in mlps:
        yield f"ffn_gate{suffix}.weight", (*count, inner, HIDDEN), "Q4_0"
        yield f"ffn_up{suffix}.weight", (*count, inner, HIDDEN), "Q4_0"
        yield f"ffn_down{suffix}.weight", (*count, HIDDEN, inner), "Q4_0"


if __name__ == "__main__":
    main()
