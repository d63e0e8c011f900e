"""Tiny random decoders whose layers read earlier layers' caches, and what they compute, in torch.

No library has such models with Llama's names, so the decoder is written down here, in float64.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from convert.tiny_models import VOCABULARY, byte_tokenizer
from safetensors.torch import save_file
from torch.nn.functional import silu

_COMMON = {
    "model_type": "yoco",
    "vocab_size": VOCABULARY,
    "hidden_size": 60,
    "intermediate_size": 52,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_WINDOWS_FIRST = {
    "sliding_window": 40,
    "layer_types": ["sliding_attention"] * 2 + ["full_attention"] * 3,
}

Owners = list[int | None]

# name -> (each layer's owner, None for itself; what differs from _COMMON). Owners that
# `num_kv_shared_layers` does not give are written to config.json as `cache_of_layer`.
PATTERNS: dict[str, tuple[Owners, dict[str, Any]]] = {
    "half": ([None, None, 1, 1], {"num_kv_shared_layers": 2}),
    "half-unsaid": ([None, None, None, 2, 2], {"num_kv_shared_layers": None, **_WINDOWS_FIRST}),
    "all-but-the-first": ([None, 0, 0, 0], {"num_kv_shared_layers": 3, "attention_bias": True}),
    "ends-before-the-last": ([None, 0, 0, None], {"tie_word_embeddings": True}),
    "every-other": ([None, 0, None, 2, None, 4], {"num_key_value_heads": [3, 3, 1, 1, 6, 6]}),
    "two-owners-alternating": ([None, None, 0, 1, 0, 1], {
        "sliding_window": 40, "layer_types": ["sliding_attention", "full_attention"] * 3}),
    "an-owner-among-them": ([None, None, 0, None, 1, 3], {
        "num_key_value_heads": [2, 3, 2, 3, 3, 3]}),
}  # fmt: skip


@dataclass(frozen=True)
class Yoco:
    """`weights` are f32 under Hugging Face's names, `owners` whose cache each layer reads."""

    config: dict[str, Any]
    owners: Owners
    weights: dict[str, torch.Tensor]


def make(name: str) -> Yoco:
    owners, changes = PATTERNS[name]
    if "num_kv_shared_layers" not in changes:
        changes = {**changes, "cache_of_layer": owners}
    return make_of(owners, changes, seed=sum(map(ord, name)))


def make_of(owners: Owners, changes: dict[str, Any], seed: int) -> Yoco:
    config = {**_COMMON, "num_hidden_layers": len(owners), **changes}
    generator = torch.Generator().manual_seed(seed)

    def value(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        random = torch.randn(shape, generator=generator)
        if "norm" in name:
            return 1.0 + 0.3 * random
        return 0.5 * random if len(shape) == 1 else random / shape[-1] ** 0.5

    shapes = _shapes(config, owners)
    return Yoco(config, owners, {name: value(name, shape) for name, shape in shapes.items()})


def make_at_random(rng: random.Random) -> Yoco:
    """Any sharing, heads and windows."""
    head, largest = rng.choice([16, 32]), rng.choice([2, 3, 4])
    owners: Owners = []
    kv_heads: list[int] = []
    types = []
    for layer in range(rng.randrange(1, 7)):
        own = [each for each in range(layer) if owners[each] is None]
        owner = rng.choice(own) if own and rng.random() < 0.6 else None
        owners.append(owner)
        kv_heads.append(rng.choice([1, largest]) if owner is None else kv_heads[owner])
        types.append(rng.choice(["sliding_attention", "full_attention"]))
    changes = {
        "cache_of_layer": owners,
        "hidden_size": rng.choice([24, 40]),
        "head_dim": head,
        "num_attention_heads": largest * rng.choice([1, 2]),
        "num_key_value_heads": kv_heads,
        "attention_bias": rng.random() < 0.3,
        "tie_word_embeddings": rng.random() < 0.5,
        "sliding_window": rng.choice([5, 20]),
        "layer_types": types,
    }
    return make_of(owners, changes, rng.randrange(2**31))


def save(model: Yoco, folder: Path) -> Path:
    """The model's folder, with a tokenizer of bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(model.config), encoding="utf-8")
    save_file(model.weights, str(folder / "model.safetensors"))
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def _kv_heads(config: dict[str, Any]) -> list[int]:
    heads = config["num_key_value_heads"]
    return heads if isinstance(heads, list) else [heads] * config["num_hidden_layers"]


def _shapes(config: dict[str, Any], owners: Owners) -> dict[str, tuple[int, ...]]:
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    query = config["num_attention_heads"] * head
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = (VOCABULARY, hidden)
    for layer, (owner, kv_heads) in enumerate(zip(owners, _kv_heads(config), strict=True)):
        matrices = {
            "self_attn.q_proj": (query, hidden),
            "self_attn.k_proj": (kv_heads * head, hidden),
            "self_attn.v_proj": (kv_heads * head, hidden),
            "self_attn.o_proj": (hidden, query),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        for name, shape in matrices.items():
            if owner is not None and name.endswith(("k_proj", "v_proj")):
                continue
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
            if config.get("attention_bias") and "self_attn" in name:
                shapes[f"model.layers.{layer}.{name}.bias"] = shape[:1]
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"model.layers.{layer}.{norm}.weight"] = (hidden,)
    return shapes


def logits(model: Yoco, ids: list[int]) -> Any:
    """f32 [len(ids), vocab]."""
    return _Decoder(model)(ids).float().numpy()


class _Decoder:
    def __init__(self, model: Yoco) -> None:
        self.config = model.config
        self.owners = model.owners
        self.weights = {name: weight.double() for name, weight in model.weights.items()}

    def __call__(self, ids: list[int]) -> torch.Tensor:
        embeddings = self.weights["model.embed_tokens.weight"]
        hidden = embeddings[torch.tensor(ids)]
        caches: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for layer, owner in enumerate(self.owners):
            normed = self.norm(hidden, f"layers.{layer}.input_layernorm")
            prefix = f"layers.{layer}.self_attn"
            if owner is None:
                keys = self.rotated(self.heads(self.linear(normed, f"{prefix}.k_proj")))
                caches[layer] = keys, self.heads(self.linear(normed, f"{prefix}.v_proj"))
            query = self.rotated(self.heads(self.linear(normed, f"{prefix}.q_proj")))
            attended = self.attend(query, *caches[layer if owner is None else owner], layer)
            hidden = hidden + self.linear(attended, f"{prefix}.o_proj")
            normed = self.norm(hidden, f"layers.{layer}.post_attention_layernorm")
            mlp = f"layers.{layer}.mlp"
            gate, up = (self.linear(normed, f"{mlp}.{each}_proj") for each in ("gate", "up"))
            hidden = hidden + self.linear(silu(gate) * up, f"{mlp}.down_proj")
        head = self.weights.get("lm_head.weight", embeddings)
        return self.norm(hidden, "norm") @ head.T

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ self.weights[f"model.{name}.weight"].T + self.weights.get(
            f"model.{name}.bias", 0.0
        )

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        root = (x.square().mean(-1, keepdim=True) + self.config["rms_norm_eps"]).sqrt()
        return self.weights[f"model.{name}.weight"] * x / root

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, heads * d] -> [heads, tokens, d]."""
        return x.unflatten(-1, (-1, self.config["head_dim"])).transpose(0, 1)

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        size = self.config["head_dim"]
        frequencies = self.config["rope_theta"] ** (-torch.arange(0, size, 2).double() / size)
        angles = torch.arange(x.shape[1]).double()[:, None] * frequencies
        first, second = x.chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    def attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, layer: int
    ) -> torch.Tensor:
        """[heads, tokens, d] each, fewer heads of keys and values -> [tokens, heads * d]."""
        repeats = len(query) // len(keys)
        keys, values = (each.repeat_interleave(repeats, 0) for each in (keys, values))
        scores = query @ keys.transpose(1, 2) / self.config["head_dim"] ** 0.5
        tokens = torch.arange(query.shape[1])
        distance = tokens[:, None] - tokens
        types = self.config.get("layer_types")
        sliding = types is not None and types[layer] == "sliding_attention"
        hidden = (distance < 0) | (sliding and distance >= self.config["sliding_window"])
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        return (weights @ values).transpose(0, 1).flatten(1)
