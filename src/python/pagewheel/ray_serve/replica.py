"""A replica: the engine and the application of `pagewheel serve`, called by fronts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

from fastapi import FastAPI
from ray import serve
from starlette.types import ASGIApp

from pagewheel.ray_serve.calls import (
    API_KEY_HEADER,
    REPLICA_HEADER,
    Call,
    Destination,
    End,
    Head,
    is_stream,
)
from pagewheel.serve.embedding import (
    AllowedHosts,
    ApiKeys,
    KeyLimits,
    ServerSettings,
    Service,
    configure_logs,
    make_app,
)

_log = logging.getLogger("pagewheel.serve")
_CONNECT_SECONDS = 2.0
# For which a front that could not be reached is not tried again.
_UNREACHABLE_SECONDS = 60.0


class Roads:
    """Connections to fronts, past Ray. A network may let through only Ray's."""

    def __init__(self) -> None:
        self._closed: dict[tuple[str, int], float] = {}  # fronts, and until when

    async def open(self, to: Destination) -> asyncio.StreamWriter | None:
        """None where the front cannot be reached."""
        address = (to.host, to.port)
        if self._closed.get(address, 0.0) > time.monotonic():
            return None
        try:
            opening = asyncio.open_connection(*address)
            _, writer = await asyncio.wait_for(opening, _CONNECT_SECONDS)
        except (OSError, asyncio.TimeoutError) as error:
            _log.warning("streams go through Ray", extra={"front": address, "cause": str(error)})
            now = time.monotonic()
            self._closed = {one: end for one, end in self._closed.items() if end > now}
            self._closed[address] = now + _UNREACHABLE_SECONDS
            return None
        writer.write(to.key.encode())
        return writer


class _Messages:
    """What the application sends: waits here to be taken, or goes out on a connection."""

    def __init__(self) -> None:
        self.size = 0  # bytes that went out
        self.gone = asyncio.Event()  # the client has left
        self._queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._writer: asyncio.StreamWriter | None = None

    async def next(self) -> dict[str, Any] | None:
        """None is the end."""
        return await self._queue.get()

    async def taken(self) -> tuple[bytes, bool]:
        """Waits for a piece of the body, takes all there are; and whether that was the last."""
        pieces = []
        message = await self._queue.get()
        while message is not None:
            pieces.append(message.get("body", b""))
            if not message.get("more_body", False):
                return b"".join(pieces), True
            if self._queue.empty():
                return b"".join(pieces), False
            message = self._queue.get_nowait()
        return b"".join(pieces), True

    def send_out(self, writer: asyncio.StreamWriter) -> None:
        """Sends what was not taken, and all that comes."""
        assert self._queue.empty()
        self._writer = writer

    async def send(self, message: Any) -> None:
        """Waits where the client is slow and the connection takes no more."""
        if self._writer is None:
            self._queue.put_nowait(message)
        elif message["body"] and not self.gone.is_set():
            self.size += len(message["body"])
            try:
                self._writer.write(message["body"])
                await self._writer.drain()
            except OSError:
                self.gone.set()

    def end(self) -> None:
        self._queue.put_nowait(None)


async def answered(app: ASGIApp, call: Call, tag: str, roads: Roads) -> AsyncGenerator[Any, None]:
    """Yields a Head, then pieces of the body as they come; or an End, when all was brought.

    Cancelled: the client left.
    """
    messages = _Messages()
    task = asyncio.create_task(_run(app, call, messages))
    writer: asyncio.StreamWriter | None = None
    try:
        start = await messages.next()
        if start is None:
            raise RuntimeError("the application gave no answer")
        headers = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
        if call.destination is not None and is_stream(headers):
            writer = await roads.open(call.destination)
        headers[REPLICA_HEADER] = tag
        body, is_over = await messages.taken()
        if writer is not None and not is_over:
            messages.send_out(writer)
            yield Head(tag, start["status"], headers, body, is_brought=True)
            await asyncio.shield(task)
            # This replica may be ended as soon as it has said that all is on its way.
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            yield End(messages.size)
            return
        yield Head(tag, start["status"], headers, body)
        while not is_over:
            body, is_over = await messages.taken()
            if body:
                yield body
    finally:
        if writer is not None:
            writer.transport.abort()
        messages.gone.set()  # ends the request as a closed connection does
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)


async def _run(app: ASGIApp, call: Call, messages: _Messages) -> None:
    given = [{"type": "http.request", "body": call.body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if given:
            return given.pop()
        await messages.gone.wait()
        return {"type": "http.disconnect"}

    try:
        await app(_scope(call), receive, messages.send)
    finally:
        messages.end()


def _scope(call: Call) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": call.method,
        "scheme": "http",
        "path": call.path,
        "raw_path": call.path.encode(),
        "query_string": call.query,
        "root_path": "",
        "headers": list(call.headers),
        "client": None,
        "server": None,
    }


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
        configure_logs(log_level)
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
