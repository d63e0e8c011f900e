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
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import pagewheel
from pagewheel.convert.files.cache import sync
from pagewheel.errors import InvalidArgumentError
from pagewheel.serve.models.tenant import Tenant

_log = logging.getLogger("pagewheel.serve")
_ENDING = ".prefixes"
_TEMPORARY = ".saving-"
_LOCK = ".lock"
_POLL_SECONDS = 0.05
_START_SECONDS = 1.0  # for the lock, at start: what is done under it can be done later
_REMOVE_SECONDS = 5.0  # for the lock, while a client waits and no model is loaded


@dataclass(frozen=True)
class SavedPrefixes:
    """A file. `time` is when it was last written or read, in seconds since 1970."""

    num_bytes: int
    time: float


class PrefixStore:
    """A folder that only its owner can enter, with a file for each model and tenant.

    Each file is replaced at once by a whole one: whoever is killed leaves the old one and a folder
    that the next save removes. Files take `max_bytes` together, and as much again while one of them
    is written. From any thread, and for several processes at once: whoever writes holds a lock, for
    which nobody waits longer than `lock_seconds`.
    """

    def __init__(self, folder: Path, max_bytes: int, lock_seconds: float = 30.0) -> None:
        """Makes the folder. Raises InvalidArgumentError if others can enter it, or OSError."""
        self._folder = folder
        self._max_bytes = max_bytes
        self._lock_seconds = lock_seconds
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise InvalidArgumentError(
                f"{folder} is for saved prefixes, which have words of prompts: it must belong to "
                f"this user and be closed to others (chmod 700), but has mode "
                f"{stat.S_IMODE(found.st_mode):o} and user {found.st_uid}"
            )
        try:
            with self._locked(min(_START_SECONDS, lock_seconds)):
                self._remove_unfinished()
        except OSError as error:  # a process that hangs must not stop this one's start
            _log.warning("unfinished saves not removed", extra={"error": str(error)})

    def load(self, model: str, cache: pagewheel.PrefixCache) -> int:
        """How many tokens of all tenants were added. A file that cannot be used adds none."""
        tokens = sum(self._load(model, path, cache) for path in self._paths(model))
        if tokens:
            _log.info("prefixes loaded", extra={"model": model, "tokens": tokens})
        return tokens

    def _load(self, model: str, path: Path, cache: pagewheel.PrefixCache) -> int:
        before = set(cache.num_tokens_by_salt())
        try:
            self._check(path, path.lstat())
            tokens = cache.load(path)
        except (OSError, RuntimeError, ValueError) as error:
            # What came before the damage. Each tenant has one file.
            cache.clear(set(cache.num_tokens_by_salt()) - before)
            _log.warning("saved prefixes refused", extra={"model": model, "error": str(error)})
            return 0
        with contextlib.suppress(OSError):
            os.utime(path)  # the oldest files make room for others
        return tokens

    def save(self, model: str, cache: pagewheel.PrefixCache) -> None:
        """What fits the limit, the most recently used first.

        What goes wrong is logged: the old files stay then.
        """
        try:
            with self._locked(self._lock_seconds):
                self._remove_unfinished()
                written = self._save_all(model, cache)
                self._make_room(written)
        except (OSError, RuntimeError, ValueError) as error:
            _log.warning("prefixes not saved", extra={"model": model, "error": str(error)})
            return
        _log.info("prefixes saved", extra={"model": model, "bytes": sum(written.values())})

    def _save_all(self, model: str, cache: pagewheel.PrefixCache) -> dict[Path, int]:
        """Each tenant's file, with its size.

        The smallest comes first, and what it leaves of its equal share is for the others.
        """
        salts: defaultdict[str, set[str]] = defaultdict(set)
        tokens: Counter[str] = Counter()
        for salt, count in cache.num_tokens_by_salt().items():
            salts[Tenant.id_of(salt)].add(salt)
            tokens[Tenant.id_of(salt)] += count
        written: dict[Path, int] = {}
        for number, tenant in enumerate(sorted(tokens, key=lambda each: tokens[each])):
            share = (self._max_bytes - sum(written.values())) // (len(tokens) - number)
            path = self._path(model, tenant)
            self._replace(path, cache, salts[tenant], max(1, share))
            written[path] = path.stat().st_size
        return written

    def saved(self, model: str, tenant: str) -> SavedPrefixes | None:
        """What there is on disk for a tenant, if anything."""
        try:
            found = self._path(model, tenant).lstat()
        except FileNotFoundError:
            return None
        return SavedPrefixes(found.st_size, found.st_mtime)

    def remove(self, model: str, tenant: str) -> bool:
        """Whether there was a file. Raises OSError, also where another process holds the lock."""
        # A file that is being written comes before.
        with self._locked(min(_REMOVE_SECONDS, self._lock_seconds)):
            path = self._path(model, tenant)
            is_there = path.exists()
            path.unlink(missing_ok=True)
            sync(self._folder)
            return is_there

    def _replace(
        self, path: Path, cache: pagewheel.PrefixCache, salts: set[str], max_bytes: int
    ) -> None:
        temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self._folder))
        try:
            unfinished = temporary / path.name
            cache.save(unfinished, max_bytes=max_bytes, salts=salts)
            unfinished.chmod(0o600)
            sync(unfinished)
            unfinished.replace(path)
            sync(self._folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _make_room(self, newest: Collection[Path]) -> None:
        """Removes the files that were not used for longest, until all fit the limit."""
        files = [(path.lstat(), path) for path in self._folder.glob(f"*{_ENDING}")]
        files.sort(key=lambda each: (each[1] in newest, each[0].st_mtime))
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

    def _path(self, model: str, tenant: str) -> Path:
        readable = re.sub(r"[^A-Za-z0-9_-]+", "-", model)[:60]
        digest = hashlib.sha256(f"{model}\n{pagewheel.__version__}".encode()).hexdigest()[:16]
        return self._folder / ("-".join(filter(None, (readable, digest, tenant))) + _ENDING)

    def _paths(self, model: str) -> list[Path]:
        """All tenants' files of a model. The most recently used come first: room may be short."""
        own = self._path(model, "")
        found = [*self._folder.glob(own.name), *self._folder.glob(f"{own.stem}-*{_ENDING}")]
        return sorted(found, key=_time_of, reverse=True)

    def _remove_unfinished(self) -> None:
        """What somebody left who was killed: nobody else is saving while we have the lock."""
        for path in self._folder.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(path, ignore_errors=True)

    @contextlib.contextmanager
    def _locked(self, seconds: float) -> Iterator[None]:
        """Against other processes that write, and other threads; a killed one lets go.

        Raises TimeoutError, which names the process, where one holds the lock for so long.
        """
        handle = os.open(
            self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            _lock(handle, seconds)
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(handle)


def _time_of(path: Path) -> float:
    """When the file was last written or read; 0 for one that another process removes meanwhile."""
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0


def _lock(handle: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                holder = os.pread(handle, 20, 0).decode("ascii", "replace") or "unknown"
                raise TimeoutError(
                    f"process {holder} has held the lock of the saved prefixes for more than "
                    f"{seconds:g} seconds"
                ) from None
        time.sleep(_POLL_SECONDS)
