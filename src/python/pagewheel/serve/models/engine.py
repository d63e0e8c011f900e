"""One model in memory: its pipeline, which steps by itself, and its texts, made off the loop."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pagewheel
from pagewheel.context_overflow import fitting_eviction
from pagewheel.errors import InvalidArgumentError
from pagewheel.model_info import ModelInfo, read_info
from pagewheel.serve.models.notifications import Notifications
from pagewheel.serve.models.prefix_store import PrefixStore
from pagewheel.serve.models.quotas import ThreadQuota
from pagewheel.serve.security import Tenant
from pagewheel.serve.settings import ModelSettings

_log = logging.getLogger("pagewheel.serve")

T = TypeVar("T")

_GIGABYTE = 1 << 30
_COMPILES_PER_KEY = 2  # at once
# Threads for texts, and how many of them one API key may hold: another key finds one.
_TEXT_THREADS = 4
_TEXTS_PER_KEY = 2
_LARGE_TEXTS_PER_KEY = 1
_LARGE_TEXT = 256 << 10  # characters
_FRESH_SECONDS = 0.25  # in which cached tokens are counted once, however many ask
_REFUSED_SECONDS = 60.0
_MOST_REFUSED = 256
_LARGE_WORDS = 16 << 10  # characters of words, each of which is tokenized by itself


# The tokens before a text, before what comes after the answer, and before the answer itself: of
# Qwen and CodeGemma, of StarCoder and Granite, of the first SantaCoder, of DeepSeek.
_INFILL = (
    (b"<|fim_prefix|>", b"<|fim_suffix|>", b"<|fim_middle|>"),
    (b"<fim_prefix>", b"<fim_suffix>", b"<fim_middle>"),
    (b"<fim-prefix>", b"<fim-suffix>", b"<fim-middle>"),
    (
        "<\uff5cfim\u2581begin\uff5c>".encode(),
        "<\uff5cfim\u2581hole\uff5c>".encode(),
        "<\uff5cfim\u2581end\uff5c>".encode(),
    ),
)


class EngineFailedError(RuntimeError):
    """The engine has failed as a whole: every request of it has, and it takes no more."""


class RefusedGrammars:
    """Grammars that were refused lately: they are refused again without being compiled.

    Known by what they say. Of any thread.
    """

    def __init__(self, seconds: float = _REFUSED_SECONDS, most: int = _MOST_REFUSED) -> None:
        self._seconds = seconds
        self._most = most
        self._lock = threading.Lock()
        # Each has the time until which it is refused, and why.
        self._known: OrderedDict[bytes, tuple[float, InvalidArgumentError]] = OrderedDict()

    def check(self, config: pagewheel.StructuredOutputConfig) -> None:
        """Raises InvalidArgumentError as it was raised before."""
        with self._lock:
            until, error = self._known.get(_digest(config), (0.0, None))
        if error is not None and time.monotonic() < until:
            raise InvalidArgumentError(str(error), code=error.code, parameter=error.parameter)

    def add(self, config: pagewheel.StructuredOutputConfig, error: InvalidArgumentError) -> None:
        """A refusal of the moment says nothing of the grammar."""
        if error.code == "grammar_busy":
            return
        with self._lock:
            key = _digest(config)
            self._known[key] = (time.monotonic() + self._seconds, error)
            self._known.move_to_end(key)
            if len(self._known) > self._most:
                self._known.popitem(last=False)


def _digest(config: pagewheel.StructuredOutputConfig) -> bytes:
    return hashlib.sha256(str(config).encode()).digest()


class Engine:
    """load() makes it; close() may wait for a step."""

    def __init__(
        self,
        settings: ModelSettings,
        pipeline: pagewheel.ContinuousBatchingPipeline,
        info: ModelInfo,
        scheduler: pagewheel.SchedulerConfig,
        prefixes: PrefixStore | None = None,
        notifications: Notifications | None = None,
    ) -> None:
        self.name = settings.name
        self.notifications = notifications or Notifications()  # of its requests
        self.info = info
        self.max_model_len = info.context  # tokens, if the model says so
        self.outgrows_context = (
            scheduler.use_cache_eviction and scheduler.cache_eviction_config.evict_during_prefill
        )
        self.always_evicts = settings.always_evicts
        self.failure: str | None = None  # why it serves no more, once that is known
        self.num_users = 0  # who has it from the registry, which counts them
        self._is_closed = False
        self._pipeline = pipeline
        self._tokenizer = pipeline.get_tokenizer()
        self._weights_bytes = sum(one.bytes for one in info.weights.values())
        self._has_prefixes = scheduler.enable_prefix_caching
        self._prefixes = prefixes
        if prefixes is not None:
            prefixes.load(self.name, pipeline.get_prefix_cache(), self.statistics())
        self._last_uses: dict[str, float] = {}  # by tenant, in seconds since 1970
        self._counts: tuple[float, asyncio.Task[Mapping[str, int]]] | None = None
        self._numbers = itertools.count()
        # Tokenizing, rendering and submitting wait for other threads: the loop must not.
        self._texts = ThreadPoolExecutor(_TEXT_THREADS, thread_name_prefix="pagewheel-text")
        self._short_texts = ThreadQuota(self._texts, _TEXTS_PER_KEY)
        self._large_texts = ThreadQuota(self._texts, _LARGE_TEXTS_PER_KEY)
        # It runs what waits for a step's end: texts do not, and one caller waits at a time.
        self._watch = ThreadPoolExecutor(1, thread_name_prefix="pagewheel-watch")
        # A grammar may take seconds to compile: texts do not wait for it.
        self._grammars = ThreadPoolExecutor(4, thread_name_prefix="pagewheel-grammar")
        self._compiling = ThreadQuota(self._grammars, _COMPILES_PER_KEY)
        self._refused = RefusedGrammars()
        pipeline.start()

    @cached_property
    def chat_template(self) -> str:
        return self._tokenizer.chat_template or ""

    @cached_property
    def family(self) -> str | None:
        """How the model writes reasoning and calls, by its chat template."""
        return pagewheel.detect_parser(self.chat_template)

    @property
    def writes_calls(self) -> bool:
        """Whether the chat template knows tools."""
        return self.family is not None and "tools" in self.chat_template

    @property
    def num_bytes(self) -> int:
        statistics = self.statistics()
        return self._weights_bytes + statistics.num_blocks * statistics.block_bytes

    def statistics(self) -> pagewheel.PipelineStatistics:
        return self._pipeline.get_statistics()

    def cache_view(self, most_sequences: int, request: int | None) -> pagewheel.CacheView:
        """Waits for the step under way: use in_watch()."""
        return self._pipeline.get_cache_view(most_sequences, request)

    def config(self) -> pagewheel.GenerationConfig:
        """A copy of the model's own."""
        return self._pipeline.get_config()

    @cached_property
    def token_bytes(self) -> Mapping[int, bytes]:
        """Takes tens of milliseconds when it is first asked for: use tokens_by_id()."""
        return {number: token for token, number in self._tokenizer.get_vocab().items()}

    async def tokens_by_id(self) -> Mapping[int, bytes]:
        """Asks a thread for token_bytes once."""
        if "token_bytes" not in self.__dict__:
            await self.in_thread(lambda: self.token_bytes)
        return self.token_bytes

    @cached_property
    def infill_tokens(self) -> tuple[int, int, int] | None:
        """The model's tokens for infilling, if it has any. Use in_thread()."""
        ids = {token: number for number, token in self.token_bytes.items()}
        for first, second, last in _INFILL:
            if first in ids and second in ids and last in ids:
                return ids[first], ids[second], ids[last]
        return None

    @cached_property
    def most_characters(self) -> int | None:
        """A longer prompt is of more tokens than the context, if the model says how long that is.

        Use in_thread().
        """
        if self.max_model_len is None:
            return None
        return self.max_model_len * max(len(token) for token in self.token_bytes.values())

    async def in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._texts, work, *arguments)

    async def with_text(self, api_key_id: str, size: int, work: Callable[[], T]) -> T:
        """in_thread() for a text of so many characters, when the API key has a thread for it."""
        quota = self._short_texts if size < _LARGE_TEXT else self._large_texts
        return await quota.run(api_key_id, work)

    async def with_words(self, api_key_id: str, words: Collection[str], work: Callable[[], T]) -> T:
        """with_text() for work that tokenizes each of the words."""
        is_large = sum(map(len, words)) >= _LARGE_WORDS
        return await self.with_text(api_key_id, _LARGE_TEXT if is_large else 0, work)

    async def in_watch(self, work: Callable[..., T], *arguments: Any) -> T:
        """Runs what waits for a step's end."""
        return await asyncio.get_running_loop().run_in_executor(self._watch, work, *arguments)

    async def check(self) -> None:
        """Raises EngineFailedError where it serves no more. Waits for the step under way.

        One that is closed, also meanwhile, has not failed.
        """
        if self.failure is None:
            try:
                await self.in_watch(self.cache_view, 1, None)
            except RuntimeError as error:
                if self._is_closed:
                    return
                self.failure = str(error)
        if self.failure is not None:
            raise EngineFailedError(self.failure)

    def failed(self, error: pagewheel.PipelineFailedError) -> EngineFailedError:
        """Gives what to raise. Nobody gets this engine any more, and nothing of it is saved."""
        self.failure = str(error)
        return EngineFailedError(self.failure)

    async def compiled(
        self, make: Callable[[], pagewheel.StructuredOutputConfig], api_key_id: str
    ) -> pagewheel.StructuredOutputConfig:
        """A grammar that submit() finds then. Raises ValueError for one that is refused.

        The grammars of one API key leave threads for those of others.
        """

        def work() -> pagewheel.StructuredOutputConfig:
            config = make()
            self._refused.check(config)
            try:
                pagewheel.Grammar(config, self._tokenizer)
            except InvalidArgumentError as error:
                self._refused.add(config, error)
                raise
            return config

        return await self._compiling.run(api_key_id, work)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Any,
        extra: Mapping[str, Any] | None,
        begins_answer: bool = True,
    ) -> str:
        """Raises ValueError where the template refuses the conversation."""
        return self._tokenizer.apply_chat_template(
            list(messages), begins_answer, "", tools, extra or None
        )

    def render_open(
        self, messages: Sequence[Mapping[str, Any]], tools: Any, extra: Mapping[str, Any] | None
    ) -> str:
        """render() up to the end of the last message's content, which is to be continued.

        Raises ValueError also where the template does not show that content.
        """
        mark = secrets.token_hex(16)
        last = {**messages[-1], "content": messages[-1]["content"] + mark}
        before, found, _ = self.render([*messages[:-1], last], tools, extra, False).partition(mark)
        if not found:
            raise ValueError("the chat template does not show the last message, to continue it")
        return before

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        tokens = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return [int(one) for one in tokens.input_ids.data[0]]

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = False) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=skip_special_tokens))

    def submit(
        self, tokens: Sequence[int], config: pagewheel.GenerationConfig
    ) -> pagewheel.GenerationHandle:
        """Raises ValueError for what cannot be served, QueueFullError where too many wait,
        EngineFailedError where nothing is served any more."""
        self._last_uses[Tenant.id_of(config.cache_salt)] = time.time()
        try:
            return self._pipeline.add_request(next(self._numbers), list(tokens), config)
        except pagewheel.PipelineFailedError as error:
            raise self.failed(error) from None

    def close(self) -> None:
        """Ends the thread that steps and saves prefixes. Memory goes with the last reference."""
        self._is_closed = True
        try:
            self._pipeline.stop()
            if self.failure is None:  # what a failed one has computed may be wrong
                self.save_prefixes()
        finally:
            for pool in (self._texts, self._watch, self._grammars):
                pool.shutdown(wait=False, cancel_futures=True)

    async def num_cached_tokens(self, tenant: str) -> int:
        """Counts a tenant's, at most a quarter of a second ago."""
        now = time.monotonic()
        counts = self._counts
        if counts is None or (counts[1].done() and now - counts[0] >= _FRESH_SECONDS):
            task = asyncio.create_task(self.in_watch(self._tokens_by_salt))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            counts = self._counts = (now, task)
        # A request that leaves does not end what others wait for.
        by_salt = await asyncio.shield(counts[1])
        return sum(count for salt, count in by_salt.items() if Tenant.id_of(salt) == tenant)

    async def forget_prefixes(self, tenant: str) -> None:
        await self.in_watch(self._forget_prefixes, tenant)
        self._counts = None

    def _forget_prefixes(self, tenant: str) -> None:
        salts = {salt for salt in self._tokens_by_salt() if Tenant.id_of(salt) == tenant}
        if salts:
            self._pipeline.get_prefix_cache().clear(salts)

    def _tokens_by_salt(self) -> Mapping[str, int]:
        """Waits for the step under way, and delays the next."""
        if not self._has_prefixes:
            return {}
        return self._pipeline.get_prefix_cache().num_tokens_by_salt()

    def save_prefixes(self) -> None:
        """Waits for the step under way."""
        if self._prefixes is not None and self.statistics().num_steps:
            cache = self._pipeline.get_prefix_cache()
            self._prefixes.save(self.name, cache, dict(self._last_uses))


def load(
    settings: ModelSettings,
    folder: Path,
    default_cache_bytes: int = 0,
    prefixes: PrefixStore | None = None,
    notifications: Notifications | None = None,
) -> Engine:
    """Opens an OpenVINO folder. Takes seconds to minutes."""
    info = read_info(folder)
    scheduler = _scheduler(settings, default_cache_bytes)
    eviction = settings.eviction
    if not settings.always_evicts:  # for requests that may outgrow the context
        cache = (scheduler.cache_size * _GIGABYTE, scheduler.num_kv_blocks)
        eviction = fitting_eviction(info, *cache)
    if eviction:
        scheduler.cache_eviction_config = pagewheel.CacheEvictionConfig(**eviction)
        scheduler.use_cache_eviction = True
        scheduler.validate()
    opened = (settings.device, dict(settings.properties))
    try:
        pipeline = pagewheel.ContinuousBatchingPipeline(folder, scheduler, *opened)
    except InvalidArgumentError as error:
        if settings.always_evicts or not eviction:
            raise
        _log.info("no eviction: longer conversations are cut", extra={"reason": str(error)[:500]})
        scheduler.use_cache_eviction = False
        pipeline = pagewheel.ContinuousBatchingPipeline(folder, scheduler, *opened)
    prefixes = prefixes if scheduler.enable_prefix_caching else None
    return Engine(settings, pipeline, info, scheduler, prefixes, notifications)


def expected_bytes(settings: ModelSettings, default_cache_bytes: int) -> int:
    """Adds its files' size and the cache's, before the model is loaded."""
    path = source(settings)
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    cache = int(settings.scheduler.get("cache_size", 0)) * _GIGABYTE
    return sum(each.stat().st_size for each in files) + (cache or default_cache_bytes)


def source(settings: ModelSettings) -> Path:
    """The default model may have to be downloaded."""
    if settings.path is not None:
        return settings.path
    from pagewheel.default_model import default_model

    return default_model()


def _scheduler(settings: ModelSettings, default_cache_bytes: int) -> pagewheel.SchedulerConfig:
    scheduler = pagewheel.SchedulerConfig()
    scheduler.enable_prefix_caching = True
    for name, value in settings.scheduler.items():
        setattr(scheduler, name, value)
    if default_cache_bytes and not (scheduler.cache_size or scheduler.num_kv_blocks):
        scheduler.cache_size = max(1, default_cache_bytes // _GIGABYTE)
    scheduler.validate()
    return scheduler
