"""From a model's file or folder to an OpenVINO IR folder: `convert` and `resolve_model`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ..errors import ConversionError, InvalidArgumentError, ModelNotFoundError
from .files.folders import (
    MODEL_FILE,
    cache_root,
    cached_entry,
    entry_key,
    files_sha256,
    is_whole,
    output_folder,
)
from .files.source_folder import shard_paths
from .progress import stages

__all__ = ["ConversionError", "convert", "converted_folder", "resolve_model"]

_STAGES = 6


def convert(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    weight_format: str = "auto",
    symmetric: bool = False,
    group_size: int = 64,
    context_length: int | None = None,
    progress: bool | Callable[[str], None] = True,
) -> Path:
    """Converts a GGUF file or a Hugging Face folder and returns the OpenVINO model's folder.

    `source` may be a name too, as resolve_model() takes it.

    Without `output` the folder is an entry of the cache, made once per content and options.
    With it, the folder is made there, with its parents; it must not exist yet or be empty. If
    the conversion fails or is interrupted, nothing of it is left, and what others put into the
    folder meanwhile stays.

    For Hugging Face folders: `weight_format` "auto" (as the checkpoint has them, int8 from a
    billion parameters on and for heads of EAGLE-3), "f16", "int8" (a scale for each row) or
    "int4" (a scale for each `group_size` of 32, 64 or 128 neighbours; embeddings and head int8);
    `symmetric` leaves zero points out. `context_length` asks a model whose rotary frequencies
    depend on it (longrope) for more than its original context. A GGUF file keeps its own weights.

    `progress` shows a bar on a terminal; a function is called with each stage's name instead.

    Raises FileNotFoundError where `source` is missing, FileExistsError where `output` is a file
    or not empty, another OSError where it cannot be written, ValueError for an option that is
    not allowed, ConversionError where the source is damaged or not supported.
    """
    path = _local(source, progress)
    if not path.exists():
        raise ModelNotFoundError(f"no such model file or folder: {path}")
    if not path.is_dir() and not path.is_file():
        raise ConversionError(f"{path} is a device or a pipe; allowed are files and folders")
    title = f"converting {path.name}"
    options = (weight_format, symmetric, group_size, context_length)
    if output is None:
        with stages(title, _STAGES, progress) as report:
            return cached_entry(*_conversion(path, options, report))
    with output_folder(Path(output)) as folder, stages(title, _STAGES, progress) as report:
        _, build = _conversion(path, options, report)
        build(folder)
    return Path(output)


_Options = tuple[str, bool, int, int | None]
_DEFAULT_OPTIONS: _Options = ("auto", False, 64, None)
# The key of a conversion's result in the cache, and what fills an empty folder with it.
_Conversion = tuple[str, Callable[[Path], None]]


def _conversion(path: Path, options: _Options, report: Callable[[str], None]) -> _Conversion:
    report("reading the files")
    if path.is_dir():
        return _huggingface_conversion(path, options, report)
    weight_format, _, _, context_length = options
    if weight_format != "auto" or context_length is not None:
        raise InvalidArgumentError(
            f"{path} is a GGUF file, which keeps its weights and its context: "
            "weight_format must be 'auto' and context_length None"
        )
    return _gguf_conversion(path, report)


def _gguf_conversion(path: Path, report: Callable[[str], None]) -> _Conversion:
    sha256 = files_sha256(shard_paths(path))

    def build(folder: Path) -> None:
        from .folder import write_gguf_folder  # what converts is loaded only where it is needed

        write_gguf_folder(path, sha256, folder, report)
        _check_unchanged(path, sha256, files_sha256(shard_paths(path)))

    return entry_key(sha256), build


def _huggingface_conversion(
    path: Path, options: _Options, report: Callable[[str], None]
) -> _Conversion:
    from .files.source_folder import folder_sha256
    from .weights.compression import Compression

    weight_format, symmetric, group_size, context_length = options
    compression = Compression(weight_format, symmetric, group_size)
    if context_length is not None and context_length <= 0:
        raise InvalidArgumentError(f"context_length is {context_length}; it must be positive")
    sha256 = folder_sha256(path)

    def build(folder: Path) -> None:
        from .folder import write_huggingface_folder

        write_huggingface_folder(path, sha256, compression, context_length, folder, report)
        _check_unchanged(path, sha256, folder_sha256(path))

    return entry_key(f"{sha256} {compression} {context_length}"), build


def _check_unchanged(path: Path, before: str, after: str) -> None:
    if before != after:
        raise ConversionError(f"{path} changed while it was being converted")


def _copy_new_files(source: Path, target: Path) -> None:
    for file in source.iterdir():
        if not (target / file.name).exists():
            shutil.copyfile(file, target / file.name)


def converted_folder(source: str | os.PathLike[str]) -> Path | None:
    """What resolve_model() gives, if it has nothing to convert. Reads no more than it must.

    Raises FileNotFoundError, ConversionError or OSError as resolve_model() does.
    """
    path = Path(source)
    if (path / MODEL_FILE).is_file():
        return path
    if not path.is_file() and not _is_huggingface(path):
        return None
    key, _ = _conversion(path, _DEFAULT_OPTIONS, lambda _stage: None)
    entry = cache_root() / "models" / key
    return entry if is_whole(entry) else None


def _local(source: str | os.PathLike[str], progress: bool | Callable[[str], None]) -> Path:
    """The path itself, or that of what is fetched by name."""
    if Path(source).exists():
        return Path(source)
    from ..hub import local_model

    return local_model(source, progress=progress)


def _is_huggingface(path: Path) -> bool:
    return (path / "config.json").is_file() and any(path.glob("*.safetensors*"))


def resolve_model(
    source: str | os.PathLike[str],
    *,
    save_beside: bool = False,
    progress: bool | Callable[[str], None] = True,
) -> Path:
    """The OpenVINO model folder for whatever the user names.

    A name of the Hugging Face hub ("owner/name", "owner/name:Q4_K_M", "hub:owner/name") or the URL
    of a .gguf file is fetched first, once; a path that exists wins over a name. A folder with
    openvino_model.xml is returned as it is; a GGUF file or a Hugging Face folder is converted,
    once, into the cache. `save_beside` copies what a GGUF file became into the folder of that file,
    but leaves what is there. `progress` is convert()'s. Raises FileNotFoundError for what is
    neither a path nor a name, pagewheel.errors.FetchError for what could not be fetched,
    ConversionError for what is nothing that pagewheel reads.
    """
    path = _local(source, progress)
    if path.is_file():
        folder = convert(path, progress=progress)
        if save_beside and path == Path(source):
            _copy_new_files(folder, path.parent)
        return folder
    if not path.is_dir():
        raise ModelNotFoundError(f"no such model: {path}")
    if (path / MODEL_FILE).is_file():
        return path
    if _is_huggingface(path):
        return convert(path, progress=progress)
    raise ConversionError(
        f"{path} holds no {MODEL_FILE} and no config.json with safetensors; give a .gguf file, "
        "a Hugging Face folder or an OpenVINO IR folder"
    )
