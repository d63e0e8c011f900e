"""The folder that a user named for a conversion's result.

Only what the conversion itself has put there is ever removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .cache import sync, sync_folder
from .folder_format import MODEL_FILE


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
                _publish(file, output / file.name, undo_files)
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
        return Path(tempfile.mkdtemp(prefix=".tmp-", dir=output))
    except OSError as error:
        raise _explained(error, f"cannot write to the output folder {output}") from None


def _explained(error: OSError, message: str) -> OSError:
    return type(error)(f"{message}: {error.strerror}")


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # others have put something there
        folder.rmdir()


def _publish(file: Path, target: Path, undo: ExitStack) -> None:
    """Gives the whole file the name `target` in one step, unless another has taken it."""
    # Before the link is made: Ctrl-C may come right after it.
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
