"""Writes a converted model as an OpenVINO IR folder, laid out as optimum-intel does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openvino as ov

from .architecture import Architecture
from .attention_description import describe_rotary
from .chat_format import derive_chat_format
from .errors import ConversionError
from .folder_format import DESCRIPTION_FILE, FORMAT_VERSION, MODEL_FILE
from .gguf_file import GGUFFile
from .gguf_source import GGUFSource
from .graph import build_model
from .tokenizer import build_tokenizer
from .vocabulary import Vocabulary, read_vocabulary

Report = Callable[[str], None]


def write_folder(source: Path, sha256: str, output: Path, report: Report) -> None:
    """Converts the GGUF file `source` into the existing, empty folder `output`.

    `report` is called with the name of each stage as it starts. Raises ConversionError.
    """
    with GGUFFile(source) as file:
        report("reading the model")
        gguf = GGUFSource(file)
        vocabulary = read_vocabulary(gguf.metadata, gguf.architecture.context_length)
        if len(vocabulary.tokens) > gguf.architecture.vocab_size:
            raise ConversionError(
                f"{source}: {len(vocabulary.tokens)} tokens, but embeddings for only "
                f"{gguf.architecture.vocab_size}"
            )
        report("converting the tokenizer")
        tokenizer, detokenizer = build_tokenizer(vocabulary)
        ov.save_model(tokenizer, output / "openvino_tokenizer.xml", compress_to_fp16=False)
        ov.save_model(detokenizer, output / "openvino_detokenizer.xml", compress_to_fp16=False)
        report("converting the weights")
        model = build_model(gguf.architecture, gguf.weight)
        report("writing the model")
        ov.save_model(model, output / MODEL_FILE, compress_to_fp16=False)
    report("writing the configuration")
    _write_json(output / "config.json", _config(gguf.config, vocabulary))
    _write_json(output / "generation_config.json", _generation_config(vocabulary))
    _write_json(output / "tokenizer_config.json", _tokenizer_config(vocabulary))
    if vocabulary.chat_template is not None:
        template = output / "chat_template.jinja"
        template.write_bytes(vocabulary.chat_template.encode())
    description = _description(source, sha256, gguf.architecture, vocabulary)
    _write_json(output / DESCRIPTION_FILE, description)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _eos_ids(vocabulary: Vocabulary) -> int | list[int] | None:
    if len(vocabulary.end_ids) <= 1:
        return vocabulary.eos_id if not vocabulary.end_ids else vocabulary.end_ids[0]
    return list(vocabulary.end_ids)


def _config(config: dict[str, Any], vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        **config,
        "bos_token_id": vocabulary.bos_id,
        "eos_token_id": vocabulary.eos_id,
        "pad_token_id": vocabulary.pad_id,
    }


def _generation_config(vocabulary: Vocabulary) -> dict[str, Any]:
    # No sampling defaults: a GGUF file holds none, and invented ones would surprise.
    values = {
        "bos_token_id": vocabulary.bos_id,
        "eos_token_id": _eos_ids(vocabulary),
        "pad_token_id": vocabulary.pad_id,
    }
    return {name: value for name, value in values.items() if value is not None}


def _tokenizer_config(vocabulary: Vocabulary) -> dict[str, Any]:
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


def _description(
    source: Path, sha256: str, arch: Architecture, vocabulary: Vocabulary
) -> dict[str, Any]:
    chat_format = None
    if vocabulary.chat_template is not None:
        chat_format = derive_chat_format(
            vocabulary.chat_template,
            bos_token=vocabulary.text(vocabulary.bos_id) or "",
            eos_token=vocabulary.text(vocabulary.eos_id) or "",
        )
    return {
        "format": FORMAT_VERSION,
        "source": {"file": source.name, "sha256": sha256, "kind": "gguf"},
        "rotary": describe_rotary(arch),
        "sliding_windows": list(arch.windows),
        "chat_format": None if chat_format is None else chat_format.to_json(),
    }
