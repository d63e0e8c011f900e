"""The table of architectures, and what describes a model by it.

A name here and a file beside it are an architecture: its config.json, its checkpoint, its GGUF
files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import ConversionError
from ..decoder.architecture import Architecture
from . import (
    deepseek,
    eagle3,
    falcon_h1,
    gemma,
    gemma3n,
    gemma4,
    gpt_oss,
    granite_hybrid,
    kimi_linear,
    lfm2,
    llama,
    mamba2,
    mixtures,
    nemotron_h,
    olmo_hybrid,
    phi3,
    phimoe,
    qwen,
    qwen_hybrid,
    yoco,
)
from .entry import Family, GGUFArchitecture, ModelType, Part, Recipe, tensor_name
from .gguf_config import GGUFConfig
from .reader import ModelConfig, Reader

_MODULES = (
    *(llama, qwen, gpt_oss, deepseek, mixtures, phi3, phimoe),
    *(gemma, gemma3n, gemma4, yoco, lfm2, qwen_hybrid, olmo_hybrid, kimi_linear),
    *(granite_hybrid, mamba2, falcon_h1, nemotron_h),
)
_FAMILIES: tuple[Family, ...] = tuple(each.FAMILY for each in _MODULES)
MODEL_TYPES: Mapping[str, ModelType] = {
    each.name: each for family in _FAMILIES for each in family.model_types
}
GGUF_ARCHITECTURES: Mapping[str, GGUFArchitecture] = {
    each.name: each for family in _FAMILIES for each in family.gguf
}
# What a config.json may leave out, where its model type does not say otherwise.
_DEFAULTS = {"rms_norm_eps": 1e-6, "max_position_embeddings": 2048}


def read_architecture(
    values: Mapping[str, Any], where: str, *, context_length: int | None = None
) -> Architecture:
    """The architecture a config.json describes; `where` names the file in errors.

    `context_length` asks for so many positions of a model whose rotary frequencies depend on
    it (longrope). Raises ConversionError for a model type or a value that is not supported.
    """
    name = str(values.get("model_type"))
    model_type = eagle3.MODEL_TYPE if eagle3.is_head(values) else MODEL_TYPES.get(name)
    if model_type is None:
        raise ConversionError(
            f"{where}: the model type {name!r} is not supported; "
            f"supported: {', '.join(sorted(MODEL_TYPES))}"
        )
    config = ModelConfig({**_DEFAULTS, **model_type.defaults, **values}, where)
    try:
        return model_type.read(Reader(config, context_length))
    except ConversionError as error:
        if str(error).startswith(where):
            raise
        raise config.fail(str(error)) from None
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError) as error:
        raise config.fail(f"the config is damaged: {type(error).__name__}: {error}") from error


def _model_type(arch: Architecture) -> ModelType:
    return MODEL_TYPES[arch.model_type] if arch.eagle3 is None else eagle3.MODEL_TYPE


def recipe(arch: Architecture, name: str) -> Recipe:
    """The parts of a Hugging Face checkpoint that make the weight `name`."""
    return _model_type(arch).recipe(arch, name) or (Part(tensor_name(name)),)


def other_recipe(arch: Architecture, name: str) -> Recipe | None:
    """The same of checkpoints that lack those parts."""
    return _model_type(arch).other_recipe(arch, name)


def gguf_architecture(file: GGUFConfig) -> GGUFArchitecture:
    """The entry of the file's architecture. Raises ConversionError where there is none."""
    if file.name not in GGUF_ARCHITECTURES:
        raise file.fail(
            f"the architecture {file.name!r} is not supported; "
            f"supported: {', '.join(GGUF_ARCHITECTURES)}"
        )
    return GGUF_ARCHITECTURES[file.name]
