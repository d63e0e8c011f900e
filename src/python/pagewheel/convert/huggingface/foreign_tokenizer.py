"""Tokenizers that pagewheel does not read itself: transformers and openvino_tokenizers do."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import openvino as ov

from ..errors import ConversionError
from .source_folder import TOKENIZER_SUFFIXES, SourceFolder

# Settings that are text. Any other may be taken for the path of a file, wherever that is.
_TEXTS = frozenset(
    {"tokenizer_class", "processor_class", "chat_template", "padding_side", "truncation_side"}
    | {"errors", "lang", "language", "src_lang", "tgt_lang", "task"}
)
_SETTINGS = frozenset({"tokenizer_config.json", "special_tokens_map.json"})


def convert_foreign_tokenizer(folder: SourceFolder) -> tuple[ov.Model, ov.Model]:
    """The graphs of tokenizer and detokenizer. Raises ConversionError."""
    from openvino_tokenizers import convert_tokenizer
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory(prefix="pagewheel-") as name:
        _copy_tokenizer(folder, Path(name))
        try:
            tokenizer = AutoTokenizer.from_pretrained(
                name, local_files_only=True, trust_remote_code=False
            )
            converted = convert_tokenizer(tokenizer, with_detokenizer=True)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # transformers raises what it pleases, tokenizers panics
            reason = str(error).replace(name, str(folder.path))
            raise ConversionError(
                f"{folder.path}: the tokenizer cannot be converted: {reason:.300}"
            ) from error
    if not isinstance(converted, tuple):
        raise ConversionError(f"{folder.path}: the tokenizer has no detokenizer")
    return converted


def _copy_tokenizer(folder: SourceFolder, place: Path) -> None:
    for each in sorted(folder.path.iterdir()):
        if each.suffix in TOKENIZER_SUFFIXES:
            file = folder.file(each.name)
            if file is None:
                continue
            if each.name in _SETTINGS:
                settings = _without_paths(folder.read_json(each.name) or {})
                (place / each.name).write_text(json.dumps(settings), encoding="utf-8")
            else:
                shutil.copyfile(file, place / each.name)


def _without_paths(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that cannot name a file."""
    kept = {}
    for key, value in settings.items():
        if key == "sp_model_kwargs" and isinstance(value, dict):
            kept[key] = {k: v for k, v in value.items() if not isinstance(v, str)}
        elif not isinstance(value, str) or key in _TEXTS or key.endswith("_token"):
            kept[key] = value
    return kept
