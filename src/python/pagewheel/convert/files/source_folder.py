"""Reading what a model is converted from: JSON, the parts of a split GGUF file, a folder.

No name and no link leads out of a folder. The module imports next to nothing: to find a converted
model must be quick.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from ...errors import ConversionError
from .folders import file_sha256

# As the C++ core's: what reads or writes deeper values calls itself for each level.
_MAX_LEVELS = 100


def parse_json_object(text: str, where: str) -> dict[str, Any]:
    """Raises ConversionError for what is no JSON, no object, too deep, or no Unicode."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise _too_deep(where) from None
    except ValueError as error:
        raise ConversionError(f"{where} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConversionError(f"{where} must hold an object, not {value!r:.40}")
    level: list[Any] = [value]
    for _ in range(_MAX_LEVELS):
        level = [inner for outer in level for inner in _parts(outer)]
        if not level:
            break
    else:
        raise _too_deep(where)
    if "\\ud" in text.lower():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ConversionError(f"{where} has half a character: {error}") from None
    return value


def _parts(value: Any) -> list[Any]:
    """The arrays and objects in an array or object."""
    values = value.values() if isinstance(value, dict) else value
    return [each for each in values if isinstance(each, (dict, list))]


def _too_deep(where: str) -> ConversionError:
    return ConversionError(
        f"{where} has more than {_MAX_LEVELS} arrays and objects in each other; "
        f"allowed: {_MAX_LEVELS}"
    )


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in the file. Raises ConversionError, or OSError where it cannot be read."""
    return parse_json_object(_read_utf8(path), str(path))


def _read_utf8(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConversionError(f"{path} is not UTF-8: {error}") from None


SPLIT_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def shard_paths(path: Path) -> list[Path]:
    """The files of a model, first to last, given any of them; [path] where it is one file.

    Goes by the name alone; raises FileNotFoundError naming the first that is missing.
    """
    match = SPLIT_NAME.fullmatch(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    paths = []
    for number in range(1, count + 1):
        shard = path.with_name(f"{match['stem']}-{number:05}-of-{match['count']}.gguf")
        if not shard.is_file():
            raise FileNotFoundError(f"no such file: {shard}, part {number} of {count} of a model")
        paths.append(shard)
    return paths or [path]


# What tokenizers are made of. No Python: transformers never sees a folder's own code.
TOKENIZER_SUFFIXES = frozenset({".json", ".txt", ".model", ".tiktoken", ".codes", ".jinja"})
# Files whose content decides what is made of the folder.
_SUFFIXES = TOKENIZER_SUFFIXES | {".safetensors"}


class SourceFolder:
    """Files of one folder.

    Links are followed while they stay inside; in a snapshot of Hugging Face's cache, whose
    files are links to "blobs" beside "snapshots", they may lead there, and to the "blobs" that
    the cache's repositories share.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._roots = [path.resolve()]
        snapshots = path.absolute().parent
        if snapshots.name == "snapshots" and snapshots.parent.name.startswith("models--"):
            self._roots.append((snapshots.parent / "blobs").resolve())
            self._roots.append((snapshots.parents[1] / "blobs").resolve())

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
        return None if path is None else _read_utf8(path)

    def read_json(self, name: str) -> dict[str, Any] | None:
        """The object in the file, or None where there is none."""
        path = self.file(name)
        return None if path is None else read_json_object(path)


def folder_sha256(path: Path) -> str:
    """Over the names and contents of the files that matter."""
    folder = SourceFolder(path)
    names = sorted(each.name for each in path.iterdir() if each.suffix in _SUFFIXES)
    files = [(name, folder.file(name)) for name in names]
    lines = [f"{name} {file_sha256(file)}" for name, file in files if file is not None]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
