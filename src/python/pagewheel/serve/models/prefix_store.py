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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pagewheel
from pagewheel.convert.files.folders import sync
from pagewheel.errors import InvalidArgumentError
from pagewheel.serve.security import Tenant

_log = logging.getLogger("pagewheel.serve")
_ENDING = ".prefixes"
_TEMPORARY = ".saving-"
_LOCK = ".lock"
_POLL_SECONDS = 0.05
# A file's name: the model's as one can read it, a digest of model and version, and the tenant's id.
_NAME = re.compile(rf"[A-Za-z0-9_-]+-[0-9a-f]{{16}}(?:-({Tenant.ID_PATTERN}))?{re.escape(_ENDING)}")
_START_SECONDS = 1.0  # for the lock, at start: what is done under it can be done later
_REMOVE_SECONDS = 5.0  # for the lock, while a client waits and no model is loaded


@dataclass(frozen=True)
class SavedPrefixes:
    """`time` is when it was saved, in seconds since 1970."""

    num_bytes: int
    time: float


class PrefixStore:
    """A folder that only its owner can enter, with a file for each model and tenant.

    Each file is replaced at once by a whole one: whoever is killed leaves the old one and a folder
    that the next save removes. Files take `max_bytes` together, and as much again while one of them
    is written. From any thread, and for several processes at once: whoever writes holds a lock, for
    which nobody waits longer than `lock_seconds`. A file's time of change is when its tenant last
    used the model.
    """

    def __init__(
        self,
        folder: Path,
        max_bytes: int,
        lock_seconds: float = 30.0,
        tenants: Collection[str] | None = None,
    ) -> None:
        """Makes the folder. Raises InvalidArgumentError if others can enter it, or OSError.

        Files of tenants that are not among `tenants` are removed and never loaded; None: all may
        stay.
        """
        self._folder = folder
        self._max_bytes = max_bytes
        self._lock_seconds = lock_seconds
        self._tenants = None if tenants is None else frozenset(tenants)
        self._excluded: frozenset[str] = frozenset()  # tenants whose files are being removed
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
                self._remove_unknown_tenants()
        except OSError as error:  # a process that hangs must not stop this one's start
            _log.warning("old files of saved prefixes not removed", extra={"error": str(error)})

    def load(
        self,
        model: str,
        cache: pagewheel.PrefixCache,
        room: pagewheel.PipelineStatistics | None = None,
    ) -> int:
        """How many tokens of all tenants were added. A file that cannot be used adds none.

        `room` is of the empty cache; None: there is enough. The most recently used files that fit
        are loaded in the order of their use, as the cache evicts first what was loaded first. Then
        the others fill what is left.
        """
        files = self._files(model)
        whole = len(files) if room is None else _num_that_fit(files, room)
        order = [*reversed(files[:whole]), *files[whole:]]
        tokens = sum(self._load(model, path, cache) for path in order)
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
        return tokens

    def save(
        self,
        model: str,
        cache: pagewheel.PrefixCache,
        last_uses: Mapping[str, float] | None = None,
    ) -> None:
        """What fits the limit, the most recently used first.

        `last_uses` has when tenants used the model since it was loaded, in seconds since 1970.
        Files of other tenants keep their time; None: all have used it now. What goes wrong is
        logged: the old files stay then.
        """
        written: dict[Path, int] = {}
        try:
            with self._locked(self._lock_seconds):
                self._remove_unfinished()
                try:
                    self._save_all(model, cache, last_uses, written)
                finally:
                    self._make_room(written)
        except (OSError, RuntimeError, ValueError) as error:
            _log.warning("prefixes not saved", extra={"model": model, "error": str(error)})
            return
        _log.info("prefixes saved", extra={"model": model, "bytes": sum(written.values())})

    def _save_all(
        self,
        model: str,
        cache: pagewheel.PrefixCache,
        last_uses: Mapping[str, float] | None,
        written: dict[Path, int],
    ) -> None:
        """Adds each tenant's file to `written`, with its size.

        The smallest comes first, and what it leaves of its equal share is for the others.
        """
        salts: defaultdict[str, set[str]] = defaultdict(set)
        tokens: Counter[str] = Counter()
        for salt, count in cache.num_tokens_by_salt().items():
            if self._may_stay(tenant := Tenant.id_of(salt)):
                salts[tenant].add(salt)
                tokens[tenant] += count
        for number, tenant in enumerate(sorted(tokens, key=lambda each: tokens[each])):
            share = (self._max_bytes - sum(written.values())) // (len(tokens) - number)
            path = self._path(model, tenant)
            used = time.time() if last_uses is None else last_uses.get(tenant) or _time_of(path)
            self._replace(path, cache, salts[tenant], max(1, share), used)
            written[path] = path.stat().st_size

    def saved(self, model: str, tenant: str) -> SavedPrefixes | None:
        """What there is on disk for a tenant, if anything."""
        try:
            found = self._path(model, tenant).lstat()
        except FileNotFoundError:
            return None
        return SavedPrefixes(found.st_size, found.st_ctime)

    @contextlib.contextmanager
    def excluding(self, tenant: str) -> Iterator[None]:
        """Within it this process begins neither to load nor to save files of the tenant.

        Of a tenant one at a time, and always on the same thread.
        """
        self._excluded |= {tenant}
        try:
            yield
        finally:
            self._excluded -= {tenant}

    def remove(self, tenant: str) -> int:
        """How many files there were, of all models and versions.

        Raises OSError, also where another process holds the lock.
        """
        # A file that is being written comes before.
        with self._locked(min(_REMOVE_SECONDS, self._lock_seconds)):
            files = [path for path, own in self._all_files() if own == tenant]
            for path in files:
                path.unlink(missing_ok=True)
            sync(self._folder)
            return len(files)

    def _remove_unknown_tenants(self) -> None:
        """Files of keys that were removed, and after a change from one key for all to several."""
        if self._tenants is None:
            return
        for path, tenant in self._all_files():
            if tenant not in self._tenants and stat.S_ISREG(path.lstat().st_mode):
                path.unlink()
                _log.info("saved prefixes of a removed key removed", extra={"file": path.name})

    def _may_stay(self, tenant: str) -> bool:
        is_known = self._tenants is None or tenant in self._tenants
        return is_known and tenant not in self._excluded

    def _replace(
        self,
        path: Path,
        cache: pagewheel.PrefixCache,
        salts: set[str],
        max_bytes: int,
        used: float,
    ) -> None:
        temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self._folder))
        try:
            unfinished = temporary / path.name
            cache.save(unfinished, max_bytes=max_bytes, salts=salts)
            unfinished.chmod(0o600)
            os.utime(unfinished, (used, used))
            sync(unfinished)
            unfinished.replace(path)
            sync(self._folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _make_room(self, newest: Collection[Path]) -> None:
        """Removes the files that were not used for longest, until all fit the limit."""
        files = [(path.lstat(), path) for path, _ in self._all_files()]
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

    def _files(self, model: str) -> list[Path]:
        """The most recently used come first."""
        found = [
            path
            for path, tenant in self._all_files()
            if path == self._path(model, tenant) and self._may_stay(tenant)
        ]
        return sorted(found, key=_time_of, reverse=True)

    def _all_files(self) -> list[tuple[Path, str]]:
        """Gives the files of all models and versions, with their tenants."""
        names = ((path, _NAME.fullmatch(path.name)) for path in self._folder.iterdir())
        return [(path, name[1] or "") for path, name in names if name]

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
            with contextlib.suppress(OSError):  # a full disk must not keep files from being removed
                os.ftruncate(handle, 0)
                os.pwrite(handle, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(handle)


def _num_that_fit(files: Sequence[Path], room: pagewheel.PipelineStatistics) -> int:
    # A block in a file has its tokens' ids and three numbers beside its content.
    block_bytes = room.block_bytes + 8 * (room.block_size + 3)
    left = room.num_blocks
    for number, path in enumerate(files):
        with contextlib.suppress(FileNotFoundError):
            left -= path.lstat().st_size // block_bytes
        if left < 0:
            return number
    return len(files)


def _time_of(path: Path) -> float:
    """When its tenant used it last; 0 for a file that there is not, or not any more."""
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
