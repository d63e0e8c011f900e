"""The application: what requests share, and which path leads where."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from pagewheel.serve.api import (
    chat,
    completions,
    messages,
    models,
    operations,
    prefixes,
    responses,
    tokens,
)
from pagewheel.serve.api.response_store import ResponseStore
from pagewheel.serve.http.admission import AdmissionController
from pagewheel.serve.http.errors import ApiError
from pagewheel.serve.http.request_context import Handler, RequestContext
from pagewheel.serve.metrics import Metrics
from pagewheel.serve.models.conversion import ConversionLimits
from pagewheel.serve.models.prefix_store import PrefixStore
from pagewheel.serve.models.registry import Registry
from pagewheel.serve.page import paths, sender
from pagewheel.serve.page.cache import CacheViews, show_cache
from pagewheel.serve.security import AllowedHosts, ApiKeys
from pagewheel.serve.settings import ServerSettings

if TYPE_CHECKING:
    from pagewheel.serve.tracing import Tracing

_log = logging.getLogger("pagewheel.serve")
_SWEEP_SECONDS = 1.0
_MAX_LOGGED = 100  # characters of a path that there is not


class Service:
    """What all requests share."""

    def __init__(self, settings: ServerSettings, keys: ApiKeys | None = None) -> None:
        """`keys` are those of the settings, unless others have compared them."""
        if keys is None:
            keys = ApiKeys(settings.keys, settings.key_limits, settings.shares_prefixes)
        self.settings = settings
        self.created = int(time.time())
        self.admission = AdmissionController(settings.limits)
        self.keys = keys
        self.hosts = AllowedHosts(settings.host, settings.allowed_hosts, bool(settings.keys))
        self.registry = Registry(
            settings.models,
            settings.aliases,
            settings.memory_budget,
            settings.idle_unload_seconds,
            _prefix_store(settings, keys),
            ConversionLimits(settings.conversion_seconds, settings.conversion_bytes),
        )
        limits = settings.limits
        self.responses = ResponseStore(limits.stored_responses, limits.stored_bytes)
        self.metrics = Metrics(
            settings.metrics_prefix, self.registry.loaded, self.keys.share_prefixes
        )
        self.tracing = _tracing(settings.traces_endpoint)
        self.cache_views = CacheViews(bool(settings.keys or settings.key_limits))
        self.failure: BaseException | None = None  # of a model that had to be loaded at start
        self.tag = ""  # of one replica of several, in what clients hand back to it

    def handler_for(self, path: str, handler: Handler) -> Handler:
        """What answers requests of a path: `handler`, unless others do."""
        return handler

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
        """From the server's start to its end."""
        tasks = [asyncio.create_task(self.load_pinned()), asyncio.create_task(self.sweep())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await self.registry.close()
            if self.tracing is not None:
                await asyncio.to_thread(self.tracing.close)


def _tracing(endpoint: str | None) -> Tracing | None:
    """OpenTelemetry is an extra of its own: it is there where traces are asked for."""
    if endpoint is None:
        return None
    from pagewheel.serve.tracing import Tracing, otlp_exporter

    return Tracing(otlp_exporter(endpoint))


def _prefix_store(settings: ServerSettings, keys: ApiKeys) -> PrefixStore | None:
    if settings.prefix_cache_dir is None:
        return None
    return PrefixStore(
        settings.prefix_cache_dir, settings.prefix_cache_bytes, tenants=keys.tenants()
    )


def make_app(service: Service) -> FastAPI:
    """Without FastAPI's own pages: they would load scripts from elsewhere."""

    async def no_such_path(request: Request, error: Exception) -> Response:
        return RequestContext(
            service,
            request,
            _refusal(request, error),
            is_anthropic=request.url.path.startswith("/v1/messages"),
            is_limited=False,
        )

    app = FastAPI(
        title="pagewheel",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=service.running,
        exception_handlers={HTTPException: no_such_path},
        redirect_slashes=False,
    )

    def add(
        method: str,
        path: str,
        handler: Handler,
        *,
        is_anthropic: bool = False,
        needs_key: bool = True,
        is_counted: bool = True,
        is_limited: bool = True,
    ) -> None:
        chosen = service.handler_for(path, handler)

        async def endpoint(request: Request) -> Response:
            return RequestContext(
                service,
                request,
                chosen,
                is_anthropic=is_anthropic,
                needs_key=needs_key,
                is_counted=is_counted,
                is_limited=is_limited,
            )

        app.add_api_route(path, endpoint, methods=[method], response_model=None)

    add("POST", "/v1/chat/completions", chat.chat_completions)
    add("POST", "/v1/completions", completions.completions)
    add("POST", "/v1/responses", responses.create_response)
    add("GET", "/v1/responses/{name}", responses.show_response)
    add("DELETE", "/v1/responses/{name}", responses.delete_response)
    add("POST", "/v1/messages", messages.create_message, is_anthropic=True)
    add("POST", "/v1/messages/count_tokens", messages.count_tokens, is_anthropic=True)
    add("GET", "/v1/models", models.list_models, is_limited=False)
    add("GET", "/v1/models/{name:path}", models.show_model, is_limited=False)
    add("GET", "/prefixes", prefixes.list_prefixes)
    add("DELETE", "/prefixes", prefixes.delete_prefixes)
    add("POST", "/tokenize", tokens.tokenize)
    add("POST", "/detokenize", tokens.detokenize)
    add("GET", "/health", operations.health, needs_key=False)
    add("GET", "/ready", operations.ready, needs_key=False)
    open_metrics = service.settings.open_metrics
    add("GET", "/metrics", operations.metrics, needs_key=not open_metrics, is_limited=False)
    if service.settings.has_page:
        add("GET", "/cache", show_cache, is_counted=False)  # it takes a place all the same
        for path, file in paths().items():
            add("GET", path, sender(file), needs_key=False, is_counted=False)
    return app


def _refusal(request: Request, error: Exception) -> Handler:
    status = error.status_code if isinstance(error, HTTPException) else 404
    what = "no such path" if status == 404 else f"{request.method} is not for this path"

    async def refuse(context: RequestContext) -> None:
        context.notes["asked"] = f"{request.method} {request.url.path[:_MAX_LOGGED]}"
        raise ApiError(status, what, headers=getattr(error, "headers", None))

    return refuse
