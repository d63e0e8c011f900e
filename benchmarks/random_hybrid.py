"""A GGUF file of Qwen3.5 0.8B's shape, gated delta nets in three layers of four, random weights.

In Q4_0, but for what llama.cpp keeps wider. The vocabulary and its tokenizer are those of another
GGUF file, so that the head is as large as that one's. Needs the gguf package.

    python -m benchmarks.random_hybrid TOKENIZER.gguf FILE.gguf [--layers N]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.large_llama import copy_tokenizer
from benchmarks.random_mixture import Tensor, add_tensors

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_SIZE = 1024, 3584, 8, 2, 256
DELTA_HEADS, DELTA_SIZE, TAPS = 16, 128, 4
INTERVAL = 4  # each such layer attends


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--layers", type=int, default=24, help="default %(default)s")
    given = parser.parse_args()
    write_random_hybrid(given.tokenizer, given.file, given.layers)


def write_random_hybrid(tokenizer: Path, file: Path, layers: int) -> None:
    """Takes twice the memory of the largest tensor."""
    import gguf

    writer = gguf.GGUFWriter(file, "qwen35")
    vocabulary = copy_tokenizer(gguf.GGUFReader(tokenizer), writer)
    writer.add_block_count(layers)
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
    ]
    add_tensors(writer, [*tensors, *_layers(layers)], {"ssm_a": _decay_rates()})


def _decay_rates() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Between 0.01 and 16, as models begin."""
    return -np.random.default_rng(1).uniform(0.01, 16, DELTA_HEADS).astype(np.float32)


def _layers(layers: int) -> Iterator[Tensor]:
    width = DELTA_HEADS * DELTA_SIZE
    delta: list[Tensor] = [
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
    rows, kv_rows = HEADS * HEAD_SIZE, KV_HEADS * HEAD_SIZE
    attention: list[Tensor] = [
        ("attn_q.weight", (2 * rows, HIDDEN), "Q4_0"),
        ("attn_k.weight", (kv_rows, HIDDEN), "Q4_0"),
        ("attn_v.weight", (kv_rows, HIDDEN), "Q4_0"),
        ("attn_q_norm.weight", (HEAD_SIZE,), None),
        ("attn_k_norm.weight", (HEAD_SIZE,), None),
        ("attn_output.weight", (HIDDEN, rows), "Q4_0"),
    ]
    both: list[Tensor] = [
        ("attn_norm.weight", (HIDDEN,), None),
        ("post_attention_norm.weight", (HIDDEN,), None),
        ("ffn_gate.weight", (INNER, HIDDEN), "Q4_0"),
        ("ffn_up.weight", (INNER, HIDDEN), "Q4_0"),
        ("ffn_down.weight", (HIDDEN, INNER), "Q4_0"),
    ]
    for layer in range(layers):
        own = delta if (layer + 1) % INTERVAL else attention
        for name, sizes, kind in own + both:
            yield f"blk.{layer}.{name}", sizes, kind


if __name__ == "__main__":
    main()
