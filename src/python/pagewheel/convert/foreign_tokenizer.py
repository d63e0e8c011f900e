"""Tokenizers that pagewheel does not read itself: transformers and openvino_tokenizers do."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import openvino as ov

from .errors import ConversionError
from .source_folder import TOKENIZER_SUFFIXES, SourceFolder


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
            if file is not None:
                shutil.copyfile(file, place / each.name)
