"""Writes a converted model as an OpenVINO IR folder, laid out as optimum-intel does."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openvino as ov

from ..errors import ConversionError
from .chat_format import derive_chat_format
from .decoder.architecture import Architecture, QueryKeyNorm
from .files.folders import (
    DESCRIPTION_FILE,
    DESCRIPTION_VERSION,
    FORMAT_VERSION,
    HEAD_FILE,
    MODEL_FILE,
)
from .files.source_folder import SourceFolder
from .gguf.file import GGUFFile
from .gguf.source import GGUFSource
from .gguf.vocabulary import read_vocabulary
from .graph.model import build_model
from .graph.nodes import WeightReader
from .huggingface.source import HuggingFaceSource
from .huggingface.tokenizer_json import (
    UnsupportedTokenizerError,
    chat_template,
    read_tokenizer_json,
)
from .tokenizers.tokenizer import build_tokenizer
from .tokenizers.vocabulary import Vocabulary
from .weights.compress import compressing
from .weights.compression import Compression


def describe_rotary(arch: Architecture) -> dict[str, Any]:
    """`kinds` are the model's rotary embeddings, `layers` each attention's kind or -1 for none.

    The first kind's entries stand beside them too: a model with one kind is described by these.
    """
    kinds: list[dict[str, Any]] = [
        {
            "dims": each.dims,
            "theta": each.theta,
            "inverse_frequencies": list(each.inverse_frequencies),
            "attention_scaling": each.attention_scaling,
            "pairing": "half",
            "interleaved": False,
        }
        for each in arch.rotary
    ]
    rotary = (each.rotary for each in arch.attentions.values())
    layers = [-1 if each is None else each for each in rotary]
    first = kinds[0] if kinds else {"pairing": "half"}
    described = {**first, "kinds": kinds, "layers": layers}
    norms = {each.query_key_norm for each in arch.attentions.values()}
    if QueryKeyNorm.ROTATED_HEAD in norms:
        described["unsupported"] = "keys are normed after their rotation, and cannot be rotated on"
    return described


Report = Callable[[str], None]


@dataclass(frozen=True)
class Sources:
    """What a folder is written from.

    `tokenizer` are the graphs of tokenizer and detokenizer, if the folder has any; `source` goes to
    pagewheel.json; `head` guesses further tokens.
    """

    architecture: Architecture
    weight: WeightReader
    tokenizer: Callable[[], tuple[ov.Model, ov.Model]] | None
    config: dict[str, Any]
    generation_config: dict[str, Any]
    tokenizer_config: dict[str, Any]
    chat_template: str | None
    source: dict[str, Any]
    head: tuple[Architecture, WeightReader] | None = None


def write_gguf_folder(source: Path, sha256: str, output: Path, report: Report) -> None:
    """Converts the GGUF file `source` into the existing, empty folder `output`.

    `report` is called with the name of each stage as it starts. Raises ConversionError.
    """
    with GGUFFile(source) as file:
        report("reading the model")
        gguf = GGUFSource(file)
        vocabulary = read_vocabulary(file, gguf.architecture.context_length)
        check_vocabulary_size(str(source), vocabulary, gguf.architecture)
        head = gguf.head()
        ids = {
            "bos_token_id": vocabulary.bos_id,
            "eos_token_id": vocabulary.eos_id,
            "pad_token_id": vocabulary.pad_id,
        }
        sources = Sources(
            architecture=gguf.architecture,
            weight=gguf.weight,
            tokenizer=lambda: build_tokenizer(vocabulary),
            config={**gguf.config, **ids},
            generation_config=generation_config(vocabulary),
            tokenizer_config=tokenizer_config(vocabulary),
            chat_template=vocabulary.chat_template,
            source={"file": shown_name(source), "sha256": sha256, "kind": "gguf"},
            head=None if head is None else (head.architecture, head.weight),
        )
        write_folder(sources, output, report)


def shown_name(path: Path) -> str:
    """The file's or folder's name as text, which not every name is."""
    return os.fsencode(path.name).decode(errors="replace")


def check_vocabulary_size(where: str, vocabulary: Vocabulary, arch: Architecture) -> None:
    if len(vocabulary.tokens) > arch.vocab_size:
        raise ConversionError(
            f"{where}: {len(vocabulary.tokens)} tokens, but embeddings for only {arch.vocab_size}"
        )


def write_folder(sources: Sources, output: Path, report: Report) -> None:
    """Fills the existing, empty folder `output`; the description, written last, ends it."""
    if sources.tokenizer is not None:
        report("converting the tokenizer")
        tokenizer, detokenizer = sources.tokenizer()
        ov.save_model(tokenizer, output / "openvino_tokenizer.xml", compress_to_fp16=False)
        ov.save_model(detokenizer, output / "openvino_detokenizer.xml", compress_to_fp16=False)
    report("converting the weights")
    model = build_model(sources.architecture, sources.weight)
    report("writing the model")
    ov.save_model(model, output / MODEL_FILE, compress_to_fp16=False)
    del model
    if sources.head is not None:
        ov.save_model(build_model(*sources.head), output / HEAD_FILE, compress_to_fp16=False)
    report("writing the configuration")
    write_json(output / "config.json", sources.config)
    write_json(output / "generation_config.json", sources.generation_config)
    write_json(output / "tokenizer_config.json", sources.tokenizer_config)
    if sources.chat_template is not None:
        (output / "chat_template.jinja").write_bytes(sources.chat_template.encode())
    write_json(output / DESCRIPTION_FILE, _description(sources))


def write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def generation_config(vocabulary: Vocabulary) -> dict[str, Any]:
    """No sampling defaults: a GGUF file holds none, and invented ones would surprise."""
    ends = list(vocabulary.end_ids)
    values = {
        "bos_token_id": vocabulary.bos_id,
        "eos_token_id": ends if len(ends) > 1 else next(iter(ends), vocabulary.eos_id),
        "pad_token_id": vocabulary.pad_id,
    }
    return {name: value for name, value in values.items() if value is not None}


def tokenizer_config(vocabulary: Vocabulary) -> dict[str, Any]:
    values = {
        "add_bos_token": vocabulary.add_bos,
        "add_eos_token": vocabulary.add_eos,
        "bos_token": vocabulary.text(vocabulary.bos_id),
        "eos_token": vocabulary.text(vocabulary.eos_id),
        "pad_token": vocabulary.text(vocabulary.pad_id),
        "unk_token": vocabulary.text(vocabulary.unk_id),
        "chat_template": vocabulary.chat_template,
        "clean_up_tokenization_spaces": False,
        "model_max_length": vocabulary.context_length,
        "padding_side": "left",
    }
    return {name: value for name, value in values.items() if value is not None}


def _description(sources: Sources) -> dict[str, Any]:
    arch, chat_format = sources.architecture, None
    if sources.chat_template is not None:

        def text(name: str) -> str:
            value = sources.tokenizer_config.get(name)
            return str((value.get("content") if isinstance(value, dict) else value) or "")

        chat_format = derive_chat_format(
            sources.chat_template, bos_token=text("bos_token"), eos_token=text("eos_token")
        )
    return {
        "version": DESCRIPTION_VERSION,
        "format": FORMAT_VERSION,
        "source": sources.source,
        "context_length": arch.context_length,
        "rotary": describe_rotary(arch),
        "sliding_windows": list(arch.windows),
        "attention_soft_cap": arch.attention_soft_cap,
        "chat_format": None if chat_format is None else chat_format.to_json(),
    }


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
    # A head of EAGLE-3 has the tokens of its model.
    has_tokens = arch.eagle3 is None
    vocabulary = _vocabulary(folder, source) if has_tokens else None
    if vocabulary is None:
        text_config = settings
    else:
        check_vocabulary_size(str(path), vocabulary, arch)
        text_config = {**tokenizer_config(vocabulary), **settings}
        generation = generation or generation_config(vocabulary)
    compression = compression.chosen(source.num_parameters, only_drafts=arch.eagle3 is not None)

    def compressed(source: HuggingFaceSource) -> WeightReader:
        return compressing(source.weight, compression, source.give_back_pages)

    head = source.head()
    sources = Sources(
        architecture=arch,
        weight=compressed(source),
        tokenizer=(lambda: _tokenizer(folder, vocabulary)) if has_tokens else None,
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
        head=None if head is None else (head.architecture, compressed(head)),
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
    from .huggingface.tokenizer_json import convert_foreign_tokenizer

    return convert_foreign_tokenizer(folder)


def _generation_config(config: dict[str, Any]) -> dict[str, Any]:
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    return {name: config[name] for name in names if config.get(name) is not None}
