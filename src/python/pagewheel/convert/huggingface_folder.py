"""Converts a Hugging Face folder: weights, tokenizer and what stands beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openvino as ov

from .errors import ConversionError
from .folder import (
    Report,
    Sources,
    check_vocabulary_size,
    generation_config,
    shown_name,
    tokenizer_config,
    write_folder,
)
from .huggingface.source import HuggingFaceSource
from .huggingface.source_folder import SourceFolder
from .huggingface.tokenizer_json import (
    UnsupportedTokenizerError,
    chat_template,
    read_tokenizer_json,
)
from .tokenizers.tokenizer import build_tokenizer
from .tokenizers.vocabulary import Vocabulary
from .weights.compress import compressing
from .weights.compression import Compression


def write_huggingface_folder(
    path: Path,
    sha256: str,
    compression: Compression,
    context_length: int | None,
    output: Path,
    report: Report,
) -> None:
    """Converts `path` into the existing, empty folder `output`. Raises ConversionError."""
    report("reading the model")
    folder = SourceFolder(path)
    source = HuggingFaceSource(folder, context_length=context_length)
    arch = source.architecture
    settings = folder.read_json("tokenizer_config.json") or {}
    generation = folder.read_json("generation_config.json")
    vocabulary = _vocabulary(folder, source)
    if vocabulary is None:
        text_config = settings
    else:
        check_vocabulary_size(str(path), vocabulary, arch)
        text_config = {**tokenizer_config(vocabulary), **settings}
        generation = generation or generation_config(vocabulary)
    compression = compression.chosen(source.num_parameters)
    sources = Sources(
        architecture=arch,
        weight=compressing(source.weight, compression, source.give_back_pages),
        tokenizer=lambda: _tokenizer(folder, vocabulary),
        # What the weights were quantised by is no longer true of them.
        config={k: v for k, v in source.config.items() if k != "quantization_config"},
        generation_config=generation or _generation_config(source.config),
        tokenizer_config=text_config,
        chat_template=chat_template(folder, settings),
        source={
            "file": shown_name(path.resolve()),
            "sha256": sha256,
            "kind": "huggingface",
            "weight_format": str(compression),
        },
    )
    write_folder(sources, output, report)


def _vocabulary(folder: SourceFolder, source: HuggingFaceSource) -> Vocabulary | None:
    """None where the tokenizer is left to transformers."""
    try:
        return read_tokenizer_json(folder, source.config, source.architecture.context_length)
    except UnsupportedTokenizerError as error:
        try:
            import transformers  # noqa: F401
        except ImportError:
            raise ConversionError(
                f"{error}; with the package transformers installed, such tokenizers are converted"
            ) from None
        return None


def _tokenizer(folder: SourceFolder, vocabulary: Vocabulary | None) -> tuple[ov.Model, ov.Model]:
    if vocabulary is not None:
        return build_tokenizer(vocabulary)
    from .huggingface.foreign_tokenizer import convert_foreign_tokenizer

    return convert_foreign_tokenizer(folder)


def _generation_config(config: dict[str, Any]) -> dict[str, Any]:
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    return {name: config[name] for name in names if config.get(name) is not None}
