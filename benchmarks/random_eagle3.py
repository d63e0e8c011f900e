"""A head of EAGLE-3 for a random Llama, which always guesses the token with the next number.

The Llama is one of benchmarks.large_llama. The layer has its shape, the output matrix all tokens.
Needs the gguf package.

    python -m benchmarks.random_eagle3 MODEL.gguf FOLDER
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

Weights = np.ndarray[Any, np.dtype[np.float32]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    write_random_eagle3(given.model, given.folder)


def write_random_eagle3(model: Path, folder: Path) -> None:
    import gguf
    from safetensors.numpy import save_file

    reader = gguf.GGUFReader(model)

    def field(name: str) -> int:
        found = reader.get_field(f"llama.{name}")
        if found is None:
            raise SystemExit(f"{model}: no llama.{name}")
        return int(found.contents())

    raw = next(each for each in reader.tensors if each.name == "token_embd.weight")
    embeddings = gguf.quants.dequantize(raw.data, raw.tensor_type)
    hidden, heads = field("embedding_length"), field("attention.head_count")
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": field("feed_forward_length"),
        "num_hidden_layers": 1,
        "num_attention_heads": heads,
        "num_key_value_heads": field("attention.head_count_kv"),
        "head_dim": hidden // heads,
        "vocab_size": len(embeddings),
        "max_position_embeddings": field("context_length"),
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
    }
    tensors = _tensors(config, embeddings)
    folder.mkdir()
    halves = {name: each.astype(np.float16, order="C") for name, each in tensors.items()}
    save_file(halves, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))


def _tensors(config: dict[str, Any], embeddings: Weights) -> dict[str, Weights]:
    """A token attends to itself and takes its own embedding, in as many directions as the values
    have, in place of what the state has of the token before. The output's row of a token is the
    embedding of the one before it.
    """
    rng = np.random.default_rng(0)
    hidden, inner, size = (config[k] for k in ("hidden_size", "intermediate_size", "head_dim"))
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]

    def random(rows: int, columns: int, scale: float) -> Weights:
        return scale * rng.standard_normal((rows, columns), np.float32)

    common = embeddings.mean(0)
    rows = embeddings - common
    normed = embeddings / np.sqrt((embeddings**2).mean(1, keepdims=True))
    directions = random(hidden, kv_heads * size, 1)
    directions -= np.outer(common, common @ directions) / (common @ common)
    values = np.linalg.qr(directions)[0].T
    kept = np.linalg.norm(normed[:1000] @ values.T, axis=1).mean() / hidden**0.5
    output = np.zeros((hidden, heads * size), np.float32)
    for head in range(kv_heads):  # one of those that share keys
        at = head * heads // kv_heads * size
        output[:, at : at + size] = values[head * size : (head + 1) * size].T
    same = 3 * values[:size]
    none = random(heads * size, hidden, 1e-5)
    return {
        "fc.weight": random(hidden, 3 * hidden, 1e-5),
        "midlayer.hidden_norm.weight": np.ones(hidden, np.float32),
        "midlayer.input_layernorm.weight": np.ones(hidden, np.float32),
        "midlayer.post_attention_layernorm.weight": np.ones(hidden, np.float32),
        "midlayer.self_attn.q_proj.weight": np.hstack([np.tile(same, (heads, 1)), none]),
        "midlayer.self_attn.k_proj.weight": np.hstack(
            [np.tile(same, (kv_heads, 1)), none[: kv_heads * size]]
        ),
        "midlayer.self_attn.v_proj.weight": np.hstack([values, -kept * values]),
        "midlayer.self_attn.o_proj.weight": output,
        "midlayer.mlp.gate_proj.weight": random(inner, hidden, 0.02),
        "midlayer.mlp.up_proj.weight": random(inner, hidden, 0.02),
        "midlayer.mlp.down_proj.weight": random(hidden, inner, 1e-5),
        "norm.weight": np.ones(hidden, np.float32),
        "lm_head.weight": np.roll(rows, 1, axis=0) / np.linalg.norm(rows, axis=1).mean(),
    }


if __name__ == "__main__":
    main()
