"""Models that were fetched by name: each has a note in the cache, to be found, listed and removed.

Imports nothing heavy: a model that is here opens without a look at the network.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .convert.files.folders import DESCRIPTION_FILE, cache_root, discard, write_atomically


@dataclass(frozen=True)
class PulledModel:
    """One model. `files` has each file's size; they lie in the hub's cache or downloads_folder().

    `sha256` is what the converter knows its content by; empty where nothing is to convert.
    """

    name: str
    path: Path
    form: str
    files: Mapping[Path, int]
    sha256: str = ""
    last_use: float = 0.0  # seconds since 1970

    @property
    def num_bytes(self) -> int:
        return sum(self.files.values())

    def is_whole(self) -> bool:
        """Whether all files are there, in their sizes."""
        with contextlib.suppress(OSError):
            return all(file.stat().st_size == size for file, size in self.files.items())
        return False


def downloads_folder() -> Path:
    """Gives the folder of what was fetched from elsewhere than the hub."""
    return cache_root() / "downloads"


def plain_name(name: str) -> str:
    """A name as its note has it."""
    return name.removeprefix("hub:")


def save_note(model: PulledModel) -> None:
    note = {
        "name": model.name,
        "path": str(model.path),
        "form": model.form,
        "files": {str(file): size for file, size in model.files.items()},
        "sha256": model.sha256,
    }
    write_atomically(_note(model.name), json.dumps(note, indent=1).encode())


def find_pulled(name: str) -> PulledModel | None:
    """The model of that name if all of it is here. Being found is its last use."""
    model = _read(_note(plain_name(name)))
    if model is None or not model.is_whole():
        return None
    with contextlib.suppress(OSError):  # a cache that cannot be written
        os.utime(_note(model.name))
    return model


def pulled_models() -> list[PulledModel]:
    """Lists all, by name, also those of which files are missing."""
    models = map(_read, (cache_root() / "pulled").glob("*.json"))
    return sorted((each for each in models if each is not None), key=lambda each: each.name)


def remove_pulled(name: str) -> PulledModel:
    """Removes what was fetched by that name and what it was converted to. Raises KeyError.

    Files that another pulled model or another program's snapshot uses too stay.
    """
    note = _note(plain_name(name))
    model = _read(note)
    if model is None:
        raise KeyError(name)
    note.unlink()
    others = pulled_models()
    remove_files(model, kept={file for other in others for file in other.files})
    if model.sha256 not in {other.sha256 for other in others}:
        for entry in converted_entries().get(model.sha256, ()):
            discard(entry)
    return model


def remove_files(model: PulledModel, kept: set[Path]) -> None:
    """Removes files from the two places where fetched files may lie, and from nowhere else."""
    files = {file for file in model.files if file not in kept}
    for file in [each for each in files if each.is_relative_to(downloads_folder())]:
        files.remove(file)
        file.unlink(missing_ok=True)
        if file.parent != downloads_folder():
            with contextlib.suppress(OSError):  # not empty
                file.parent.rmdir()
    snapshots = {file.parents[i] for file in files for i in range(2, len(file.parents))}
    for repository in {each for each in snapshots if each.name.startswith("models--")}:
        _remove_from_hub_cache(repository, files)


def _remove_from_hub_cache(repository: Path, files: set[Path]) -> None:
    from huggingface_hub import scan_cache_dir

    cache = scan_cache_dir(repository.parent)
    for found in cache.repos:
        if found.repo_path != repository:
            continue
        cached = [file for revision in found.revisions for file in revision.files]
        ours = [file for file in cached if file.file_path in files]
        if len(ours) == len(cached):
            cache.delete_revisions(*(each.commit_hash for each in found.revisions)).execute()
        else:
            cache.delete_files(*ours).execute()


def converted_entries() -> dict[str, list[Path]]:
    """Folders of the cache of converted models, by the SHA-256 of what they were made from."""
    entries: dict[str, list[Path]] = {}
    for entry in _converted():
        try:
            description = json.loads((entry / DESCRIPTION_FILE).read_bytes())
            digest = str(description["source"]["sha256"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            digest = ""  # damaged: nobody's
        entries.setdefault(digest, []).append(entry)
    return entries


def clear_converted() -> int:
    """Removes all converted models, which are made anew when they are next opened. Their number."""
    entries = list(_converted())
    for entry in entries:
        discard(entry)
    return len(entries)


def folder_bytes(folder: Path) -> int:
    """Adds the sizes of all files below it."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())


def _converted() -> Iterator[Path]:
    folder = cache_root() / "models"
    if folder.is_dir():
        yield from (each for each in folder.iterdir() if not each.name.startswith("."))


def _note(name: str) -> Path:
    digest = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:32]
    return cache_root() / "pulled" / f"{digest}.json"


def _read(note: Path) -> PulledModel | None:
    """Gives None without a note, or with a damaged one."""
    try:
        values = json.loads(note.read_bytes())
        return PulledModel(
            name=str(values["name"]),
            path=Path(values["path"]),
            form=str(values["form"]),
            files={Path(file): int(size) for file, size in values["files"].items()},
            sha256=str(values["sha256"]),
            last_use=note.stat().st_mtime,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
