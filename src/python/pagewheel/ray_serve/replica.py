"""A replica: the engine and the application of `pagewheel serve`, called by fronts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from fastapi import FastAPI
from ray import serve

from pagewheel.ray_serve.calls import OWNER_HEADER, REPLICA_HEADER, Call, Head
from pagewheel.serve import logs
from pagewheel.serve.app import Service, make_app
from pagewheel.serve.security import Hosts, Keys
from pagewheel.serve.settings import KeyLimits, ServerSettings

_LOAD_POLL_SECONDS = 0.05


class _FrontsKeys(Keys):
    """The front has compared keys: here their owners' names are known, and what those may."""

    def __init__(self, limits: Mapping[str, KeyLimits]) -> None:
        super().__init__(())
        self._limits = dict(limits)

    def owner(self, headers: Mapping[str, str]) -> str | None:
        return headers.get(OWNER_HEADER, "")


class Replica:
    """Its constructor ends when the pinned models are in memory: Ray Serve counts it from then."""

    async def __init__(  # type: ignore[misc]  # Ray Serve awaits it
        self, settings: ServerSettings, log_level: str
    ) -> None:
        logs.configure(log_level)
        limits = replace(settings.limits, concurrency_per_key=0)
        service = Service(replace(settings, keys=(), limits=limits))
        service.keys = _FrontsKeys(settings.key_limits)
        service.hosts = Hosts("", (), True)
        service.tag = self.tag = serve.get_replica_context().replica_tag
        self._service = service
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
        self._service.gate.stop_all()
        await self._running.__aexit__(None, None, None)

    async def check_health(self) -> None:
        """Raises what a failed engine raises; Ray Serve then replaces this replica."""
        await self._service.registry.check()

    async def answer(self, call: Call) -> AsyncIterator[Head | bytes]:
        """A Head, then pieces of the body: what there is, at once. Cancelled: the client left."""
        messages: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        gone = asyncio.Event()
        task = asyncio.create_task(self._run(call, messages, gone))
        try:
            start = await messages.get()
            if start is None:
                raise RuntimeError("the application gave no answer")
            body, is_over = await _taken(messages)
            headers = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
            headers[REPLICA_HEADER] = self.tag
            yield Head(self.tag, start["status"], headers, body)
            while not is_over:
                body, is_over = await _taken(messages)
                if body:
                    yield body
        finally:
            gone.set()  # ends the exchange as a closed connection does
            with suppress(asyncio.CancelledError):
                await asyncio.shield(task)

    async def _run(
        self, call: Call, messages: asyncio.Queue[dict[str, Any] | None], gone: asyncio.Event
    ) -> None:
        given = [{"type": "http.request", "body": call.body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if given:
                return given.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            messages.put_nowait(message)

        try:
            await self._app(_scope(call.method, call.path, call.query, call.headers), receive, send)
        finally:
            messages.put_nowait(None)


async def _taken(messages: asyncio.Queue[dict[str, Any] | None]) -> tuple[bytes, bool]:
    """Waits for a piece of the body, takes all there are; whether the last one is among them."""
    pieces = []
    message = await messages.get()
    while message is not None:
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces), True
        if messages.empty():
            return b"".join(pieces), False
        message = messages.get_nowait()
    return b"".join(pieces), True


def _scope(
    method: str, path: str, query: bytes, headers: Iterable[tuple[bytes, bytes]]
) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "root_path": "",
        "headers": list(headers),
        "client": None,
        "server": None,
    }
