"""Heads of EAGLE-3, which draft for a model, as their authors and SpecForge publish them.

Their config.json says model_type llama; the name of the architecture tells them from models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..decoder.architecture import Architecture, Eagle3
from .entry import ModelType, Part, Recipe, tensor_name
from .reader import Reader


def is_head(values: Mapping[str, Any]) -> bool:
    """Whether a config.json is that of a head."""
    names = values.get("architectures")
    return isinstance(names, list) and any("Eagle3" in str(each) for each in names)


def _read(reader: Reader) -> Architecture:
    config = reader.config
    if config.model_type != "llama":
        raise config.fail(
            f"heads of EAGLE-3 are of the model type 'llama', not {config.model_type!r}"
        )
    vocab_size, hidden = config.positive("vocab_size"), config.positive("hidden_size")
    draft_size = config.positive("draft_vocab_size", vocab_size)
    if draft_size > vocab_size:
        raise config.fail(f"'draft_vocab_size' must be at most {vocab_size}, got {draft_size}")
    if config.positive("target_hidden_size", hidden) != hidden:
        raise config.fail(f"'target_hidden_size' must be {hidden}, the hidden size of the head")
    if config.layers != 1:
        raise config.fail(f"'num_hidden_layers' of a head must be 1, got {config.layers}")
    for key in ("norm_before_residual", "norm_before_fc"):
        if config.boolean(key):
            raise config.fail(f"{key!r} must be false in a head of EAGLE-3")
    arch = reader.architecture()
    return replace(arch, vocab_size=draft_size, tied_embeddings=False, eagle3=Eagle3(vocab_size))


def _recipe(_arch: Architecture, name: str) -> Recipe | None:
    if name == "d2t":
        return (Part(name),)
    moved = name.replace("layers.0.", "midlayer.")
    return None if moved == name else (Part(tensor_name(moved)),)


def _other_recipe(_arch: Architecture, name: str) -> Recipe | None:
    return None if name == "d2t" else (Part(tensor_name(name)),)


MODEL_TYPE = ModelType("llama", _read, {}, _recipe, _other_recipe)
