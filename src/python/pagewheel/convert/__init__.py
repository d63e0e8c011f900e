"""From a model's file to an OpenVINO IR folder: `convert` and `resolve_model`."""

from __future__ import annotations

import os
from pathlib import Path

from .cache import cached_entry, entry_key, files_sha256, publish
from .errors import ConversionError
from .folder_format import MODEL_FILE
from .gguf_split import shard_paths
from .progress import stages

__all__ = ["ConversionError", "convert", "resolve_model"]

_STAGES = 6


def convert(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    progress: bool = True,
) -> Path:
    """Converts a GGUF file and returns the folder with the OpenVINO model.

    Without `output` the folder is an entry of the cache, made once per content. With it,
    the folder is made there; it must not exist yet or be empty.

    Raises FileNotFoundError where `source` is missing, FileExistsError where `output` is
    not empty, ConversionError where the file is damaged or not supported.
    """
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"no such model file: {path}")
    target = None if output is None else Path(output)
    if target is not None and target.exists() and not _is_empty_folder(target):
        raise FileExistsError(f"the output folder is not empty: {target}")
    with stages(f"converting {path.name}", _STAGES, progress) as report:
        report("reading the file")
        sha256 = files_sha256(shard_paths(path))

        def build(folder: Path) -> None:
            from .folder import write_folder  # what converts is loaded only where it is needed

            write_folder(path, sha256, folder, report)
            if files_sha256(shard_paths(path)) != sha256:
                raise ConversionError(f"{path} changed while it was being converted")

        if target is None:
            return cached_entry(entry_key(sha256), build)
        publish(target, build)
        return target


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def resolve_model(source: str | os.PathLike[str]) -> Path:
    """The OpenVINO model folder for whatever the user names.

    A folder with openvino_model.xml is returned as it is; a GGUF file is converted, once,
    into the cache. Raises FileNotFoundError for a path that does not exist, ConversionError
    for one that is nothing pagewheel reads.
    """
    path = Path(source)
    if path.is_file():
        return convert(path)
    if not path.is_dir():
        raise FileNotFoundError(f"no such model: {path}")
    if (path / MODEL_FILE).is_file():
        return path
    if (path / "config.json").is_file() and any(path.glob("*.safetensors")):
        raise ConversionError(
            f"{path}: Hugging Face folders (config.json and safetensors) are not supported yet; "
            "give a .gguf file or an OpenVINO IR folder"
        )
    raise ConversionError(
        f"{path} holds no {MODEL_FILE}; give a .gguf file or an OpenVINO IR folder"
    )
