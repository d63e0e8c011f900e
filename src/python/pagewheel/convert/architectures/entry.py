"""What the registry holds of an architecture: how each kind of source describes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..decoder.architecture import Architecture
from .checkpoint import Recipe
from .gguf_config import Config, GGUFConfig
from .reader import Reader


def _as_named(_arch: Architecture, _name: str) -> Recipe | None:
    return None


@dataclass(frozen=True)
class ModelType:
    """A `model_type` of config.json.

    `defaults` are those of transformers' configuration class: a config leaves out what equals
    them. `recipe` says where the checkpoint keeps a weight; None: in a tensor of its name.
    """

    name: str
    read: Callable[[Reader], Architecture]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    recipe: Callable[[Architecture, str], Recipe | None] = _as_named


@dataclass(frozen=True)
class GGUFArchitecture:
    """A `general.architecture` of GGUF files, whose numbers `config` puts in a config.json."""

    name: str
    config: Callable[[GGUFConfig], Config]
    # Names of tensors in a layer, beside those of gguf/names.py or in their place.
    names: Mapping[str, str] = field(default_factory=dict)
    # llama.cpp has reordered the rows of queries and keys: channels 2i and 2i + 1 rotate together.
    interleaved: bool = False
    # The checkpoint holds norm weights - 1; llama.cpp adds the 1 when it writes a file.
    norms_with_offset: bool = False
    # Rows that the checkpoint's recipe takes from a larger tensor are in such a tensor here too.
    fused_as_in_checkpoint: bool = False
    # rope_freqs.weight divides the frequencies; False: `config` has read it.
    frequency_divisors: bool = True


@dataclass(frozen=True)
class Family:
    """What one file adds to the registry. Several model types may share a GGUF architecture."""

    model_types: tuple[ModelType, ...]
    gguf: tuple[GGUFArchitecture, ...] = ()
