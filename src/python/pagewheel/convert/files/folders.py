"""Folders of converted models: their files' names, the cache, and the folder that a user names.

A cache entry is keyed by the content that it was made from. It appears by one rename of a finished,
synced folder and is never changed after, so readers need no lock and a killed conversion leaves
nothing but a temporary folder. The module imports next to nothing: to find a converted model must
be quick.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path

from ...errors import InvalidArgumentError

# Part of the cache key: raise it whenever the same source gives another folder.
FORMAT_VERSION = 9

# The version of pagewheel.json's keys: a reader that knows only lower ones refuses the folder. Its
# number stands in model/json_file.hpp of the C++ core, which says when it is raised.
DESCRIPTION_VERSION = 1

MODEL_FILE = "openvino_model.xml"
# The head that guesses further tokens, where the checkpoint has one.
HEAD_FILE = "openvino_mtp_model.xml"
# Written last: a folder that has it is whole.
DESCRIPTION_FILE = "pagewheel.json"


def check_description_version(description: dict[str, object]) -> None:
    """Raises ValueError where pagewheel.json was written for newer code, as the C++ core does."""
    number = description.get("version", 1)
    if type(number) is not int or not 1 <= number <= DESCRIPTION_VERSION:
        raise InvalidArgumentError(
            f"pagewheel.json: version is {number!r:.100}; allowed: 1 to {DESCRIPTION_VERSION}. "
            "A newer pagewheel may have written this folder: install that one, or convert the "
            "model again with this one"
        )


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
            discard(entry)
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


def discard(entry: Path) -> None:
    """Removes a folder, which is renamed first, so that nobody sees it half deleted."""
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


@contextmanager
def output_folder(output: Path) -> Iterator[Path]:
    """Gives an empty folder to fill, whose files are in `output` when the block ends.

    `output` is an empty folder, a link to one, or is made with its parents. The model's file
    comes last, so that nobody takes a part for a model. What others put there meanwhile stays.
    If the block raises, or another has taken a file's name by then, all that was made is removed.

    Raises FileExistsError where `output` is a file or not empty, another OSError where it cannot
    be made or written to, both before the block begins.
    """
    _check_is_free(output)
    with ExitStack() as undo:
        _make_folders(output, undo)
        temporary = _make_temporary(output)
        undo.callback(shutil.rmtree, temporary, ignore_errors=True)
        yield temporary
        sync_folder(temporary)
        with ExitStack() as undo_files:
            for file in sorted(temporary.iterdir(), key=lambda each: each.name == MODEL_FILE):
                _give_name(file, output / file.name, undo_files)
            undo_files.pop_all()
        shutil.rmtree(temporary)
        undo.pop_all()
        sync(output)


def _check_is_free(output: Path) -> None:
    if output.is_dir():
        if any(output.iterdir()):
            raise FileExistsError(f"the output folder is not empty: {output}")
    elif os.path.lexists(output):
        kind = "a link to nothing" if output.is_symlink() and not output.exists() else "a file"
        raise FileExistsError(f"the output must be a new or an empty folder, {output} is {kind}")


def _make_folders(output: Path, undo: ExitStack) -> None:
    missing = []
    while not output.is_dir():
        missing.append(output)
        output = output.parent
        if not output.is_dir() and os.path.lexists(output):
            raise NotADirectoryError(f"the output folder's parent is a file: {output}")
    for folder in reversed(missing):
        try:
            folder.mkdir()
        except FileExistsError:
            continue  # another has made it meanwhile and keeps it
        except OSError as error:
            raise _explained(error, f"cannot make the folder {folder}") from None
        undo.callback(_remove_if_empty, folder)


def _make_temporary(output: Path) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX, dir=output))
    except OSError as error:
        raise _explained(error, f"cannot write to the output folder {output}") from None


def _explained(error: OSError, message: str) -> OSError:
    return type(error)(f"{message}: {error.strerror}")


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # others have put something there
        folder.rmdir()


def _give_name(file: Path, target: Path, undo: ExitStack) -> None:
    """Gives the whole file the name `target` in one step, unless another has taken it."""
    # It is registered before the link is made: Ctrl-C may come right after that.
    undo.callback(_remove_link, file, target)
    try:
        if not _link(file, target):
            _rename(file, target, undo)
    except FileExistsError:
        raise FileExistsError(
            f"{target} was made by another while the model was converted"
        ) from None


def _link(file: Path, target: Path) -> bool:
    """False where the file system has no links."""
    try:
        os.link(file, target)
    except FileExistsError:
        raise
    except OSError:
        return False
    return True


def _remove_link(file: Path, target: Path) -> None:
    with contextlib.suppress(OSError):  # one of them is not there
        if file.samefile(target):
            target.unlink()


def _rename(file: Path, target: Path, undo: ExitStack) -> None:
    # A rename would replace another's file. Making an empty one first fails where there is one.
    target.touch(exist_ok=False)
    undo.callback(_remove, target)
    file.replace(target)


def _remove(file: Path) -> None:
    with contextlib.suppress(OSError):  # the first failure is the one to report
        file.unlink()
