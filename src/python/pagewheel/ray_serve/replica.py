"""A replica: the engine and the application of `pagewheel serve`, called by fronts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from fastapi import FastAPI
from ray import serve

from pagewheel.ray_serve.answers import Roads, answered
from pagewheel.ray_serve.calls import API_KEY_HEADER, Call
from pagewheel.serve import logs
from pagewheel.serve.app import Service, make_app
from pagewheel.serve.security import AllowedHosts, ApiKeys
from pagewheel.serve.settings import KeyLimits, ServerSettings

_LOAD_POLL_SECONDS = 0.05


class _FrontsKeys(ApiKeys):
    """The front has compared keys: here their digests are known, and what each may do."""

    def __init__(self, limits: Mapping[str, KeyLimits], shares_prefixes: bool) -> None:
        super().__init__((), shares_prefixes=shares_prefixes)
        self._limits = dict(limits)

    def api_key_id(self, headers: Mapping[str, str]) -> str | None:
        return headers.get(API_KEY_HEADER, "")

    def tenants(self) -> frozenset[str] | None:
        return None


class Replica:
    """Its constructor ends when the pinned models are in memory: Ray Serve counts it from then."""

    async def __init__(  # type: ignore[misc]  # Ray Serve awaits it
        self, settings: ServerSettings, log_level: str
    ) -> None:
        logs.configure(log_level)
        limits = replace(settings.limits, concurrency_per_key=0)
        keys = _FrontsKeys(settings.key_limits, settings.shares_prefixes)
        service = Service(replace(settings, keys=(), limits=limits), keys)
        service.hosts = AllowedHosts("", (), True)
        service.tag = self.tag = serve.get_replica_context().replica_tag
        self._service = service
        self._roads = Roads()
        self._app: FastAPI = make_app(service)
        self._running = service.running(self._app)
        await self._running.__aenter__()
        while not service.registry.is_ready():
            if service.failure is not None:
                await self._running.__aexit__(None, None, None)
                raise service.failure
            await asyncio.sleep(_LOAD_POLL_SECONDS)

    async def __del__(self) -> None:
        """Ray Serve calls it when running requests have ended, or had their time."""
        self._service.admission.stop_all()
        await self._running.__aexit__(None, None, None)

    async def check_health(self) -> None:
        """Raises what a failed engine raises; Ray Serve then replaces this replica."""
        await self._service.registry.check()

    async def answer(self, call: Call) -> AsyncIterator[Any]:
        """See answered(). Cancelled: the client left."""
        async with aclosing(answered(self._app, call, self.tag, self._roads)) as pieces:
            async for piece in pieces:
                yield piece
