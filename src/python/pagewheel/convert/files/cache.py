"""Converted models on disk, keyed by the content they were made from.

An entry appears by one rename of a finished, synced folder and is never changed after,
so readers need no lock and a killed conversion leaves nothing but a temporary folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from .folder_format import DESCRIPTION_FILE, FORMAT_VERSION, MODEL_FILE

_TEMPORARY_PREFIX = ".tmp-"
_TEMPORARY_MAX_AGE = 24 * 3600.0
# A file changed within this many seconds may change again without a new mtime.
_RACY_SECONDS = 2.0


def cache_root() -> Path:
    """$PAGEWHEEL_CACHE, else $XDG_CACHE_HOME/pagewheel, else ~/.cache/pagewheel."""
    own = os.environ.get("PAGEWHEEL_CACHE")
    if own:
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "pagewheel"


def file_sha256(path: Path) -> str:
    """The file's SHA-256; hashed once per (path, size, mtime, inode) and then remembered."""
    path = path.resolve()
    stat = path.stat()
    identity = [stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_dev]
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
    note = cache_root() / "sources" / f"{name}.json"
    try:
        remembered = json.loads(note.read_text(encoding="utf-8"))
        if remembered["path"] == str(path) and remembered["identity"] == identity:
            return str(remembered["sha256"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass  # no note, or a damaged one: hash again
    digest = _hash(path)
    if time.time() - stat.st_mtime > _RACY_SECONDS:
        value = {"path": str(path), "identity": identity, "sha256": digest}
        with contextlib.suppress(OSError):  # a cache that cannot be written only costs time
            write_atomically(note, json.dumps(value).encode())
    return digest


def files_sha256(paths: Sequence[Path]) -> str:
    """The SHA-256 of a model in one file, or one over those of its parts."""
    digests = [file_sha256(path) for path in paths]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(4 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces the file at once: a reader sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY_PREFIX, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink()
        raise


def entry_key(sha256: str) -> str:
    """The name of the entry for a source: changes with whatever changes the result."""
    parts = (
        sha256,
        f"format {FORMAT_VERSION}",
        f"openvino {version('openvino')}",
        f"openvino-tokenizers {version('openvino-tokenizers')}",
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]


def is_whole(entry: Path) -> bool:
    """Whether the folder has the model and the file that is written last."""
    return (entry / MODEL_FILE).is_file() and (entry / DESCRIPTION_FILE).is_file()


def cached_entry(key: str, build: Callable[[Path], None]) -> Path:
    """The entry's folder; where there is none, `build` fills an empty folder first."""
    entry = cache_root() / "models" / key
    if not is_whole(entry):
        _publish(entry, build)
    return entry


def _publish(entry: Path, build: Callable[[Path], None]) -> None:
    """Builds a folder beside `entry` and renames it to that.

    If another process was faster, its folder stays and ours is removed: both came from the
    same content. A damaged entry (files deleted by hand) is replaced.
    """
    entry.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale_temporaries(entry.parent)
    temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX, dir=entry.parent))
    try:
        build(temporary)
        temporary.chmod(0o755)  # mkdtemp's folders are for the owner only
        sync_folder(temporary)
        if entry.exists() and not is_whole(entry):
            _discard(entry)
        try:
            temporary.rename(entry)
        except OSError:
            if not is_whole(entry):
                raise
        else:
            sync(entry.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _remove_stale_temporaries(folder: Path) -> None:
    """Removes what killed conversions left here more than a day ago."""
    limit = time.time() - _TEMPORARY_MAX_AGE
    for path in folder.glob(f"{_TEMPORARY_PREFIX}*"):
        try:
            if path.stat().st_mtime < limit:
                shutil.rmtree(path)
        except OSError:
            pass  # another process is removing it too


def _discard(entry: Path) -> None:
    # Renamed first, so that nobody sees it half deleted.
    aside = Path(tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX, dir=entry.parent))
    with contextlib.suppress(FileNotFoundError):  # another process did it
        entry.rename(aside / "entry")
    shutil.rmtree(aside, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Puts the folder and its files on disk."""
    for path in folder.iterdir():
        sync(path)
    sync(folder)


def sync(path: Path) -> None:
    """Puts a file, or a folder's list of files, on disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open a folder
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
