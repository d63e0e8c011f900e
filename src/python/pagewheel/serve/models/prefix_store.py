"""Prefix caches on disk: what models have computed stays over unloading and restarts."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pagewheel
from pagewheel.convert.files.cache import sync
from pagewheel.errors import InvalidArgumentError

_log = logging.getLogger("pagewheel.serve")
_ENDING = ".prefixes"
_TEMPORARY = ".saving-"
_LOCK = ".lock"


class PrefixStore:
    """A folder that only its owner can enter, with a file for each model.

    Each file is replaced at once by a whole one: whoever is killed leaves the old one and a folder
    that the next save removes. Files take `max_bytes` together, and as much again while one of them
    is written. From any thread, and for several processes at once.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """Makes the folder. Raises InvalidArgumentError if others can enter it, or OSError."""
        self._folder = folder
        self._max_bytes = max_bytes
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise InvalidArgumentError(
                f"{folder} is for saved prefixes, which have words of prompts: it must belong to "
                f"this user and be closed to others (chmod 700), but has mode "
                f"{stat.S_IMODE(found.st_mode):o} and user {found.st_uid}"
            )
        with self._locked():
            self._remove_unfinished()

    def load(self, model: str, cache: pagewheel.PrefixCache) -> int:
        """How many tokens were added. A file that cannot be trusted or used adds none."""
        path = self._path(model)
        try:
            found = path.lstat()
        except FileNotFoundError:
            return 0
        try:
            self._check(path, found)
            tokens = cache.load(path)
        except (OSError, RuntimeError, ValueError) as error:
            cache.clear()  # of what came before the damage
            _log.warning("saved prefixes refused", extra={"model": model, "error": str(error)})
            return 0
        with contextlib.suppress(OSError):
            os.utime(path)  # the oldest files make room for others
        _log.info("prefixes loaded", extra={"model": model, "tokens": tokens})
        return tokens

    def save(self, model: str, cache: pagewheel.PrefixCache) -> None:
        """What fits the limit, the most recently used first, but nothing that has a salt.

        What goes wrong is logged: the old file stays then.
        """
        try:
            with self._locked():
                self._remove_unfinished()
                self._replace(self._path(model), cache)
                self._make_room(self._path(model))
        except (OSError, RuntimeError, ValueError) as error:
            _log.warning("prefixes not saved", extra={"model": model, "error": str(error)})
            return
        with contextlib.suppress(OSError):
            size = self._path(model).stat().st_size
            _log.info("prefixes saved", extra={"model": model, "bytes": size})

    def _replace(self, path: Path, cache: pagewheel.PrefixCache) -> None:
        temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self._folder))
        try:
            unfinished = temporary / path.name
            cache.save(unfinished, max_bytes=self._max_bytes, salted=False)
            unfinished.chmod(0o600)
            sync(unfinished)
            unfinished.replace(path)
            sync(self._folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _make_room(self, newest: Path) -> None:
        """Removes the files that were not used for longest, until all fit the limit."""
        files = [(path.lstat(), path) for path in self._folder.glob(f"*{_ENDING}")]
        files.sort(key=lambda each: (each[1] == newest, each[0].st_mtime))
        total = sum(found.st_size for found, _ in files)
        for found, path in files:
            if total <= self._max_bytes:
                return
            path.unlink()
            total -= found.st_size
            _log.info("saved prefixes removed", extra={"file": path.name})

    def _check(self, path: Path, found: os.stat_result) -> None:
        """That it is ours: whoever writes one puts words into the model's mouth."""
        mode = stat.S_IMODE(found.st_mode)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{path} is no file")
        if found.st_uid != os.geteuid() or mode & 0o077 or found.st_nlink != 1:
            raise ValueError(
                f"{path} is of user {found.st_uid} with mode {mode:o} and {found.st_nlink} names: "
                "others can write it"
            )
        if found.st_size > self._max_bytes:
            raise ValueError(f"{path} has {found.st_size} bytes, allowed are {self._max_bytes}")

    def _path(self, model: str) -> Path:
        readable = re.sub(r"[^A-Za-z0-9_-]+", "-", model)[:60]
        digest = hashlib.sha256(f"{model}\n{pagewheel.__version__}".encode()).hexdigest()[:16]
        return self._folder / f"{readable}-{digest}{_ENDING}"

    def _remove_unfinished(self) -> None:
        """What somebody left who was killed: nobody else is saving while we have the lock."""
        for path in self._folder.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(path, ignore_errors=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Against other processes that save, and other threads; a killed one lets go."""
        handle = os.open(
            self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
