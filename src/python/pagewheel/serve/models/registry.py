"""Which models there are, which of them are in memory, and who uses them."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pagewheel import PipelineStatistics
from pagewheel.serve.errors import Kind, RequestError, before, too_many, unavailable
from pagewheel.serve.models import engine as engines
from pagewheel.serve.models.conversion import Conversion, ConversionLimits
from pagewheel.serve.models.engine import Engine, EngineFailedError
from pagewheel.serve.models.notifications import Notifications
from pagewheel.serve.models.prefix_store import PrefixStore, SavedPrefixes
from pagewheel.serve.settings import ModelSettings

_log = logging.getLogger("pagewheel.serve")
# Of a model's cache where there is a memory budget and no size was given.
_CACHE_IN_BUDGET = 1 << 30
# A model that could not be loaded is not tried again for so long.
_RETRY_SECONDS = 30.0


@dataclass
class _Entry:
    """`users` counts those that have or await the engine: it stays while there are any."""

    settings: ModelSettings
    engine: Engine | None = None
    loading: asyncio.Task[Engine] | None = None
    conversion: Conversion | None = None
    users: int = 0
    last_used: float = field(default_factory=time.monotonic)
    failed_at: float | None = None  # when it could not be loaded
    is_lost: bool = False  # its engine has failed, and it was not loaded since
    is_asleep: bool = False  # it was unloaded, and is loaded at the next request
    saved_at: float = 0.0  # when the prefixes of one that stays were saved
    check: asyncio.Task[None] | None = None  # of the engine, under way
    idle_seconds: float = math.inf  # after which it is unloaded where it is not pinned
    is_added: bool = False  # after the start


@dataclass(frozen=True)
class ServedModel:
    """`path` is None for the default model, `engine` where it is not in memory."""

    name: str
    path: Path | None
    engine: Engine | None
    idle_seconds_left: float  # until it is unloaded, if nobody uses it; math.inf: it stays


@dataclass
class PrefixUse:
    cached_tokens: int = 0
    saved: SavedPrefixes | None = None


class Registry:
    """All methods are called on the event loop; models are loaded and closed on other threads."""

    def __init__(
        self,
        models: Sequence[ModelSettings],
        aliases: Mapping[str, str],
        memory_budget: int = 0,
        idle_seconds: float = 0.0,
        prefixes: PrefixStore | None = None,
        conversion: ConversionLimits = ConversionLimits(),  # noqa: B008 (it is frozen)
    ) -> None:
        self._idle_seconds = idle_seconds or math.inf
        self._entries = {
            each.name: _Entry(each, idle_seconds=self._idle_seconds) for each in models
        }
        self._aliases = dict(aliases)
        self._budget = memory_budget
        self._prefixes = prefixes
        self._conversion_limits = conversion
        self._notifications = Notifications()
        self._one_load = asyncio.Lock()  # and no unloading meanwhile
        self._closing: set[asyncio.Task[None]] = set()  # engines that have failed
        self._forgetting: dict[str, asyncio.Task[None]] = {}  # by tenant
        # Who removes files may wait for another process: loads must find threads meanwhile.
        self._removals = ThreadPoolExecutor(1, thread_name_prefix="pagewheel-removal")
        self._is_closed = False

    def names(self) -> list[str]:
        """Gives models, then aliases."""
        return [*self._entries, *self._aliases]

    def target(self, name: str) -> str | None:
        """Gives the model that a name or an alias stands for."""
        name = self._aliases.get(name, name)
        return name if name in self._entries else None

    def max_model_len(self, name: str) -> int | None:
        engine = self._entries[name].engine
        return None if engine is None else engine.max_model_len

    def loaded(self) -> Iterator[Engine]:
        for entry in list(self._entries.values()):
            if entry.engine is not None:
                yield entry.engine

    def statistics(self) -> dict[str, PipelineStatistics]:
        return {engine.name: engine.statistics() for engine in self.loaded()}

    def is_ready(self) -> bool:
        """Whether all models of the start are in memory, but for those that were unloaded."""
        return all(
            each.engine or each.is_asleep
            for each in self._entries.values()
            if each.settings.is_at_start
        )

    def keep_alive(self, name: str, seconds: float) -> None:
        """Unloads it when it was not used for so long, unless it is pinned."""
        self._find(name).idle_seconds = seconds

    async def unload(self, name: str) -> None:
        """Now, a pinned one too; the next request loads it. Raises RequestError if it is used."""
        entry = self._find(name)
        async with self._one_load:
            _check_unused(entry)
            await self._unload(entry)

    def models(self) -> list[ServedModel]:
        """All, without aliases."""
        now = time.monotonic()

        def left(entry: _Entry) -> float:
            idle = math.inf if entry.settings.is_pinned else entry.idle_seconds
            return idle if entry.users else max(0.0, entry.last_used + idle - now)

        return [
            ServedModel(name, entry.settings.path, entry.engine, left(entry))
            for name, entry in self._entries.items()
        ]

    def add(self, name: str, path: Path) -> None:
        """Serves one more model, with the settings of the first, unless the name is known."""
        first = next(iter(self._entries.values())).settings
        if self.target(name) is None:
            own = replace(first, name=name, path=path, is_pinned=False, is_first=False)
            self._entries[name] = _Entry(own, idle_seconds=self._idle_seconds, is_added=True)

    def was_given(self, name: str) -> bool:
        """Whether the name is a model's or an alias of the server's start."""
        return name in self._aliases or (name in self._entries and not self._entries[name].is_added)

    async def remove(self, name: str) -> None:
        """Serves it no more, one that was added. Raises RequestError while it is used."""
        await self.unload(name)
        if name in self._entries:  # nobody else has removed it meanwhile
            _check_unused(self._entries[name])
            del self._entries[name]

    async def load_pinned(self) -> None:
        """At start. Raises what a model that cannot be loaded raises."""
        for entry in list(self._entries.values()):
            if entry.settings.is_at_start:
                await self._start_loading(entry)

    @asynccontextmanager
    async def use(self, name: str | None, deadline: float = math.inf) -> AsyncIterator[Engine]:
        """The model's engine, loaded if it is not in memory, which stays there meanwhile.

        Raises RequestError where a load is not over by the deadline, a time.monotonic().
        """
        entry = self._find(name)
        entry.users += 1
        try:
            engine = entry.engine or await self._load_for_client(entry, deadline)
            with self._held(entry, engine):
                yield engine
        finally:
            entry.users -= 1
            entry.last_used = time.monotonic()

    @contextmanager
    def _held(self, entry: _Entry, engine: Engine) -> Iterator[None]:
        """The engine is not closed meanwhile. One that has failed is dropped then."""
        engine.num_users += 1
        try:
            yield
        finally:
            engine.num_users -= 1
            self._drop_failed(entry, engine)

    def _drop_failed(self, entry: _Entry, engine: Engine) -> None:
        """Nobody gets an engine that has failed any more, and its last user closes it."""
        if engine.failure is None:
            return
        if entry.engine is engine:
            entry.engine, entry.is_lost = None, True
            extra = {"model": entry.settings.name, "error": engine.failure}
            _log.error("engine failed", extra=extra)
        if not engine.num_users and not self._is_closed:
            task = asyncio.create_task(_close(engine))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def recover(self) -> None:
        """Asks engines whether they have failed, and loads lost ones that are to be in memory.

        To be called now and then. Requests of an engine that fails tell of it, if there are any.
        """
        for entry in self._entries.values():
            if entry.engine is not None and entry.check is None:
                entry.check = asyncio.create_task(self._check(entry, entry.engine))
            if entry.is_lost and entry.settings.is_at_start and not self._has_just_failed(entry):
                self._start_loading(entry)

    async def _check(self, entry: _Entry, engine: Engine) -> None:
        try:
            # It may be closed at the same time, which cancels this.
            with self._held(entry, engine), suppress(EngineFailedError, asyncio.CancelledError):
                await engine.check()
        finally:
            entry.check = None

    async def check(self) -> None:
        """Raises EngineFailedError where an engine has failed. Waits for a step of each."""
        for engine in list(self.loaded()):
            await engine.check()
        for entry in self._entries.values():
            if entry.is_lost:
                raise EngineFailedError(f"the engine of {entry.settings.name!r} has failed")

    def _find(self, name: str | None) -> _Entry:
        if name is None:
            if len(self._entries) == 1:
                return next(iter(self._entries.values()))
            message = "model: is required where several are served"
            raise RequestError(Kind.INVALID, message, "missing_required_parameter", "model")
        target = self.target(name)
        if target is None:
            message = f"The model {name[:200]!r} does not exist"
            raise RequestError(Kind.NOT_FOUND, message, "model_not_found", "model")
        return self._entries[target]

    @staticmethod
    def _has_just_failed(entry: _Entry) -> bool:
        failed = entry.failed_at
        return failed is not None and time.monotonic() - failed < _RETRY_SECONDS

    async def _load_for_client(self, entry: _Entry, deadline: float) -> Engine:
        if self._has_just_failed(entry):
            raise _load_failed(entry)
        try:
            # A client that leaves does not end a load that others wait for.
            return await before(deadline, asyncio.shield(self._start_loading(entry)))
        except RequestError:
            raise
        except Exception:
            raise _load_failed(entry) from None

    def _start_loading(self, entry: _Entry) -> asyncio.Task[Engine]:
        if entry.loading is None:
            entry.loading = asyncio.create_task(self._load(entry))
            entry.loading.add_done_callback(_retrieve)
        return entry.loading

    async def _load(self, entry: _Entry) -> Engine:
        name = entry.settings.name
        cache = _CACHE_IN_BUDGET if self._budget else 0
        try:
            if self._closing:  # two of the same need much memory
                await asyncio.wait(self._closing)
            needed = await self._needed(entry, cache)
            _log.info("loading", extra={"model": name})
            begin = time.monotonic()
            folder = await self._folder(entry)  # not in the lock: others are loaded meanwhile
            async with self._one_load:
                await self._make_room(needed)
                entry.engine = await asyncio.to_thread(
                    engines.load, entry.settings, folder, cache, self._prefixes, self._notifications
                )
                entry.failed_at, entry.is_lost, entry.is_asleep = None, False, False
                entry.last_used = time.monotonic()
                seconds = round(entry.last_used - begin, 3)
                _log.info("loaded", extra={"model": name, "seconds": seconds})
                return entry.engine
        except RequestError:
            raise
        except Exception as error:
            entry.failed_at, entry.is_asleep = time.monotonic(), False
            _log.error("load failed", extra={"model": name, "error": str(error)})
            raise
        finally:
            entry.loading = None

    async def _folder(self, entry: _Entry) -> Path:
        settings = entry.settings
        source = await asyncio.to_thread(engines.source, settings)
        entry.conversion = Conversion(settings.name, source, self._conversion_limits)
        if self._is_closed:
            entry.conversion.end()
        try:
            return await asyncio.to_thread(entry.conversion.run)
        finally:
            entry.conversion = None

    async def _needed(self, entry: _Entry, cache: int) -> int:
        """Raises RequestError for more bytes than the budget."""
        if not self._budget:
            return 0
        needed = await asyncio.to_thread(engines.expected_bytes, entry.settings, cache)
        if needed > self._budget:
            name = entry.settings.name
            message = f"the model {name!r} needs {needed} bytes, more than the budget"
            raise RequestError(Kind.UNAVAILABLE, message, "model_too_large")
        return needed

    async def _make_room(self, needed: int) -> None:
        """Unloads those that were not used for longest, until the model fits the budget."""
        if not self._budget:
            return
        while sum(engine.num_bytes for engine in self.loaded()) + needed > self._budget:
            idle = [each for each in self._entries.values() if self._may_go(each)]
            if not idle:
                raise unavailable(
                    "other models are in use and leave no memory for this one", "no_memory"
                )
            await self._unload(min(idle, key=lambda each: each.last_used))

    @staticmethod
    def _may_go(entry: _Entry) -> bool:
        return entry.engine is not None and not entry.users and not entry.settings.is_pinned

    async def unload_idle(self) -> None:
        """Those that nobody has used for the time that was set. To be called now and then.

        Of pinned ones the prefixes are saved.
        """
        for entry in list(self._entries.values()):
            before = time.monotonic() - entry.idle_seconds
            if self._is_unused(entry, before):
                async with self._one_load:  # who asks for it now waits until its prefixes are saved
                    if self._is_unused(entry, before):
                        await self._unload(entry)
            elif self._is_unsaved(entry, before):
                await self._save(entry)

    def _is_unused(self, entry: _Entry, since: float) -> bool:
        return self._may_go(entry) and entry.last_used < since

    @staticmethod
    def _is_unsaved(entry: _Entry, since: float) -> bool:
        return (
            entry.engine is not None
            and entry.settings.is_pinned
            and not entry.users
            and entry.saved_at < entry.last_used < since
        )

    async def _save(self, entry: _Entry) -> None:
        engine = entry.engine
        assert engine is not None
        entry.saved_at = time.monotonic()
        with self._held(entry, engine):
            await asyncio.to_thread(engine.save_prefixes)

    async def _unload(self, entry: _Entry) -> None:
        engine, entry.engine = entry.engine, None
        if engine is not None:
            entry.is_asleep = True
            await _close(engine)
            _log.info("unloaded", extra={"model": entry.settings.name})

    @contextmanager
    def _kept(self, entry: _Entry) -> Iterator[Engine | None]:
        """Gives the engine, if there is one, which is not closed meanwhile."""
        engine = entry.engine
        if engine is None:
            yield None
            return
        entry.users += 1
        try:
            with self._held(entry, engine):
                yield engine
        finally:
            entry.users -= 1

    async def prefixes_of(self, tenant: str) -> dict[str, PrefixUse]:
        """Gives what models keep of a tenant's prompts."""
        found = {}
        for name, entry in list(self._entries.items()):
            use = found[name] = PrefixUse()
            with self._kept(entry) as engine, suppress(RuntimeError):  # it has failed
                if engine is not None:
                    use.cached_tokens = await engine.num_cached_tokens(tenant)
            if self._prefixes is not None:
                use.saved = await asyncio.to_thread(self._prefixes.saved, name, tenant)
        return found

    async def forget_prefixes(self, tenant: str) -> None:
        """Of a tenant, in memory and on disk. Raises OSError where a file cannot be removed.

        Raises RequestError where the same is under way: that may leave what came after its start.
        """
        if tenant in self._forgetting:
            raise too_many("these prefixes are being removed already", "prefixes_busy")
        task = asyncio.create_task(self._forget(tenant))
        self._forgetting[tenant] = task

        def end(_: asyncio.Task[None]) -> None:
            del self._forgetting[tenant]
            _retrieve(task)

        task.add_done_callback(end)
        await asyncio.shield(task)  # it goes on when the client leaves, so that none piles up

    async def _forget(self, tenant: str) -> None:
        store = self._prefixes
        if store is None:
            return await self._forget_in_memory(tenant)
        with store.excluding(tenant):
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(self._removals, store.remove, tenant)
            finally:
                async with self._one_load:  # one that began before may have read the files
                    pass
                await self._forget_in_memory(tenant)

    async def _forget_in_memory(self, tenant: str) -> None:
        for entry in list(self._entries.values()):
            # Nothing of an engine that has failed is saved.
            with self._kept(entry) as engine, suppress(RuntimeError):
                if engine is not None:
                    await engine.forget_prefixes(tenant)

    async def close(self) -> None:
        """Loads under way end first, conversions are given up."""
        self._is_closed = True
        if self._forgetting:
            await asyncio.wait(self._forgetting.values())
        self._removals.shutdown(wait=False)
        entries = list(self._entries.values())
        for entry in entries:
            if entry.conversion is not None:
                entry.conversion.end()
        for entry in entries:
            if entry.loading is not None:
                await asyncio.wait([entry.loading])
            await self._unload(entry)
        if self._closing:
            await asyncio.wait(self._closing)
        self._notifications.close()


def _check_unused(entry: _Entry) -> None:
    if entry.users or entry.loading is not None:
        raise unavailable(f"the model {entry.settings.name[:200]!r} is in use", "model_busy")


async def _close(engine: Engine) -> None:
    """What goes wrong is logged: nobody could do anything about it."""
    try:
        await asyncio.to_thread(engine.close)
    except Exception:
        _log.exception("closing failed", extra={"model": engine.name})


def _load_failed(entry: _Entry) -> RequestError:
    # The reason may name files: it is in the log.
    return unavailable(
        f"the model {entry.settings.name!r} could not be loaded",
        "model_load_failed",
        int(_RETRY_SECONDS),
    )


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Its exception was logged; asyncio would complain if nobody waited for it."""
    if not task.cancelled():
        task.exception()
