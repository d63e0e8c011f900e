"""Small GGUF files of the llama architecture with random weights.

python -m convert.tiny_llama FILE   # the one that C++ tests and the soak run
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from convert.gguf_writing import add_tensor, finish
from gguf.constants import GGMLQuantizationType as Kind

LAYERS, HIDDEN, HEADS, KV_HEADS, INNER = 2, 128, 4, 2, 192
HEAD_SIZE = HIDDEN // HEADS
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<keep me>"]
CONTROL, USER_DEFINED, NORMAL = 3, 4, 1
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CALLING_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}"
    "Answer with <tool_call>{...}</tool_call><|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['reasoning_content'] %}({{ m['reasoning_content'] }}){% endif %}{{ m['content'] }}"
    "{% for c in m['tool_calls'] or [] %}<tool_call>{{ c['function']['name'] }} "
    "{{ c['function']['arguments']['place'] }}</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_alphabet() -> list[str]:
    """GPT-2's 256 characters, by byte value."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(others)) for b in range(256)]


def vocabulary() -> tuple[list[str], list[int], list[str]]:
    """Tokens, token types and merges."""
    merges = ["Ġ t", "h e", "Ġt he", "l l", "e r", "Ġ Ġ", "ĠĠ Ġ"]
    tokens = SPECIALS + byte_alphabet() + [merge.replace(" ", "") for merge in merges]
    types = [CONTROL] * 3 + [USER_DEFINED] + [NORMAL] * (len(tokens) - 4)
    return tokens, types, merges


def tensors(rng: np.random.Generator, tied: bool) -> dict[str, np.ndarray[Any, Any]]:
    def matrix(rows: int, columns: int) -> np.ndarray[Any, Any]:
        return (rng.standard_normal((rows, columns)) * 0.3).astype(np.float32)

    vocab = len(vocabulary()[0])
    result = {"token_embd.weight": matrix(vocab, HIDDEN)}
    for layer in range(LAYERS):
        for name, (rows, columns) in {
            "attn_q": (HIDDEN, HIDDEN),
            "attn_k": (KV_HEADS * HEAD_SIZE, HIDDEN),
            "attn_v": (KV_HEADS * HEAD_SIZE, HIDDEN),
            "attn_output": (HIDDEN, HIDDEN),
            "ffn_gate": (INNER, HIDDEN),
            "ffn_up": (INNER, HIDDEN),
            "ffn_down": (HIDDEN, INNER),
        }.items():
            result[f"blk.{layer}.{name}.weight"] = matrix(rows, columns)
        for name in ("attn_norm", "ffn_norm"):
            result[f"blk.{layer}.{name}.weight"] = rng.uniform(0.5, 1.5, HIDDEN).astype(np.float32)
    result["output_norm.weight"] = rng.uniform(0.5, 1.5, HIDDEN).astype(np.float32)
    if not tied:
        result["output.weight"] = matrix(vocab, HIDDEN)
    return result


def write(
    path: Path,
    *,
    kind: Kind = Kind.Q8_0,
    tied: bool = True,
    architecture: str = "llama",
    metadata: Mapping[str, Any] | None = None,
    edit: Callable[[dict[str, np.ndarray[Any, Any]]], None] = lambda _tensors: None,
    raw_kinds: Mapping[str, tuple[np.ndarray[Any, Any], Kind]] | None = None,
) -> Path:
    """Writes the file. `metadata` overrides keys (None leaves one out), `edit` changes the
    tensors before they are quantised, `raw_kinds` replaces a tensor by bytes of a type."""
    tokens, types, merges = vocabulary()
    values: dict[str, Any] = {
        "llama.block_count": LAYERS,
        "llama.context_length": 512,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": INNER,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": TEMPLATE,
        **(metadata or {}),
    }
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in values.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
    content = tensors(np.random.default_rng(7), tied)
    edit(content)
    for name, tensor in content.items():
        if raw_kinds and name in raw_kinds:
            raw, raw_kind = raw_kinds[name]
            writer.add_tensor(name, raw, raw_dtype=raw_kind)
        else:
            add_tensor(writer, name, tensor, kind)
    finish(writer)
    return path


def write_for_many_steps(path: Path) -> Path:
    """With a context of 4,096 tokens."""
    return write(path, metadata={"llama.context_length": 4096})


def write_for_tools(path: Path) -> Path:
    """The same with a template that has tools, as Qwen's have."""
    metadata = {"llama.context_length": 4096, "tokenizer.chat_template": CALLING_TEMPLATE}
    return write(path, metadata=metadata)


if __name__ == "__main__":
    write_for_many_steps(Path(sys.argv[1]))
