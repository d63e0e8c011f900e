"""A folder a model is read from: no name and no link leads out of it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ..errors import ConversionError
from ..files.cache import file_sha256
from ..files.json_file import parse_json_object

# What tokenizers are made of. No Python: transformers never sees a folder's own code.
TOKENIZER_SUFFIXES = frozenset({".json", ".txt", ".model", ".tiktoken", ".codes", ".jinja"})
# Files whose content decides what is made of the folder.
_SUFFIXES = TOKENIZER_SUFFIXES | {".safetensors"}


class SourceFolder:
    """Files of one folder.

    Links are followed while they stay inside; in a snapshot of Hugging Face's cache, whose
    files are links to "blobs" beside "snapshots", they may lead there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._roots = [path.resolve()]
        snapshots = path.absolute().parent
        if snapshots.name == "snapshots" and snapshots.parent.name.startswith("models--"):
            self._roots.append((snapshots.parent / "blobs").resolve())

    def file(self, name: str) -> Path | None:
        """The file, or None where there is none. Raises ConversionError where it lies outside."""
        if not name or Path(name).name != name or "\\" in name:
            raise ConversionError(f"{self.path}: {name!r} is no plain file name")
        path = self.path / name
        if not any(path.resolve().is_relative_to(root) for root in self._roots):
            raise ConversionError(f"{path} links out of the folder, to {path.resolve()}")
        return path if path.is_file() else None

    def read_text(self, name: str) -> str | None:
        path = self.file(name)
        if path is None:
            return None
        try:
            return path.read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConversionError(f"{path} is not UTF-8: {error}") from None

    def read_json(self, name: str) -> dict[str, Any] | None:
        """The object in the file, or None where there is none."""
        text = self.read_text(name)
        if text is None:
            return None
        return parse_json_object(text, str(self.path / name))


def folder_sha256(path: Path) -> str:
    """Over the names and contents of the files that matter."""
    folder = SourceFolder(path)
    names = sorted(each.name for each in path.iterdir() if each.suffix in _SUFFIXES)
    files = [(name, folder.file(name)) for name in names]
    lines = [f"{name} {file_sha256(file)}" for name, file in files if file is not None]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
