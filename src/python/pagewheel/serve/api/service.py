"""What all requests of a server share, and what it does beside them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from fastapi import FastAPI

from pagewheel.serve.api.response_store import ResponseStore
from pagewheel.serve.http.body import Fields
from pagewheel.serve.http.request_context import Endpoint, Handler, HttpService, RequestContext
from pagewheel.serve.metrics import Metrics
from pagewheel.serve.models.conversion import ConversionLimits
from pagewheel.serve.models.prefix_store import PrefixStore
from pagewheel.serve.models.quotas import QueueQuota
from pagewheel.serve.models.registry import Registry
from pagewheel.serve.security import ApiKeys
from pagewheel.serve.settings import ServerSettings

_log = logging.getLogger("pagewheel.serve")
_SWEEP_SECONDS = 1.0
R = TypeVar("R")


class Service(HttpService):
    def __init__(self, settings: ServerSettings, keys: ApiKeys | None = None) -> None:
        """`keys` are those of the settings, unless others have compared them."""
        if keys is None:
            keys = ApiKeys(settings.keys, settings.key_limits, settings.shares_prefixes)
        self.registry = Registry(
            settings.models,
            settings.aliases,
            settings.memory_budget,
            settings.idle_unload_seconds,
            _prefix_store(settings, keys),
            ConversionLimits(settings.conversion_seconds, settings.conversion_bytes),
        )
        metrics = Metrics(settings.metrics_prefix, self.registry.statistics, keys.share_prefixes)
        super().__init__(settings, keys, metrics)
        if settings.traces_endpoint is not None:  # OpenTelemetry is an extra of its own
            from pagewheel.serve.tracing import Tracing, otlp_exporter

            self.tracing = Tracing(otlp_exporter(settings.traces_endpoint))
        self.created = int(time.time())
        self.responses = ResponseStore(
            settings.limits.stored_responses, settings.limits.stored_bytes
        )
        self.num_waiting: Counter[str] = Counter()  # prompts without a token, by API key
        self.failure: BaseException | None = None  # of a model that had to be loaded at start
        self.pulling = asyncio.Lock()  # one model at a time is fetched for clients
        self.tasks: set[asyncio.Task[None]] = set()  # which no request waits for
        self.tag = ""  # of one replica of several, in what clients hand back to it

    def served(self, path: str, endpoint: Endpoint) -> Endpoint:
        """Gives what answers requests of a path: `endpoint`, unless others do."""
        return endpoint

    async def load_pinned(self) -> None:
        """Keeps what goes wrong: whoever runs the server asks for it."""
        try:
            await self.registry.load_pinned()
            _log.info("ready")
        except Exception as error:
            self.failure = error

    async def sweep(self) -> None:
        """Unloads idle models and loads again those that failed, for ever."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            try:
                self.registry.recover()
                await self.registry.unload_idle()
            except Exception:  # the next round may go better
                _log.exception("sweep failed")

    @asynccontextmanager
    async def running(self, _app: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self.load_pinned()), asyncio.create_task(self.sweep())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            for task in self.tasks:
                task.cancel()
            await self.registry.close()
            if self.tracing is not None:
                await asyncio.to_thread(self.tracing.close)


class Context(RequestContext[Service]):
    def queue_quota(self) -> QueueQuota:
        most = self.key_limits.queue or self.service.settings.limits.queue_per_key
        return QueueQuota(self.service.num_waiting, self.api_key_id, most or 0)


def reading(
    read: Callable[[Context, Fields], R], answer: Callable[[Context, R], Awaitable[None]]
) -> Handler:
    """The handler answers what `read` makes of the body, while the client is there."""

    async def handle(context: Context) -> None:
        fields = Fields(await context.read_body())
        request = await context.offload_by_body(lambda: read(context, fields))
        await context.while_connected(answer(context, request))

    return handle


def _prefix_store(settings: ServerSettings, keys: ApiKeys) -> PrefixStore | None:
    if settings.prefix_cache_dir is None:
        return None
    return PrefixStore(
        settings.prefix_cache_dir, settings.prefix_cache_bytes, tenants=keys.tenants()
    )
