"""Runs the server until it is told to end, and then lets running requests finish."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import socket
from types import FrameType

import uvicorn

from pagewheel.serve.app import Service, make_app
from pagewheel.serve.http.connection import guarded_protocol
from pagewheel.serve.settings import ServerSettings

_log = logging.getLogger("pagewheel.serve")
_BACKLOG = 2048
# uvloop accepts one connection of a socket in each round of its loop. A round of many streams takes
# so long that new clients would wait for minutes: the loop gets the socket so many times.
_ACCEPTED_PER_ROUND = 32
# Between the end of running requests' time and that of what then still does not end.
_LAST_SECONDS = 5


class Server(uvicorn.Server):
    """run() returns after SIGTERM and raises KeyboardInterrupt after Ctrl-C."""

    def __init__(self, settings: ServerSettings, service: Service | None = None) -> None:
        self.service = Service(settings) if service is None else service
        limits = settings.limits
        super().__init__(
            uvicorn.Config(
                make_app(self.service),
                http=guarded_protocol(limits),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=_BACKLOG,
                timeout_keep_alive=int(limits.keep_alive_seconds),
                timeout_graceful_shutdown=int(limits.shutdown_seconds) + _LAST_SECONDS,
                ssl_certfile=settings.tls_certificate,
                ssl_keyfile=settings.tls_key,
            )
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal lets running requests end, the second one ends them."""
        is_second = self.should_exit
        super().handle_exit(sig, frame)
        self.force_exit = False  # it would tell clients nothing
        if is_second and self.servers:
            self.servers[0].get_loop().call_soon_threadsafe(self._hurry)

    def _hurry(self) -> None:
        self.service.admission.close()
        self.service.admission.stop_all()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Each copy is closed with its server."""
        copies = [each.dup() for each in sockets or [] for _ in range(_ACCEPTED_PER_ROUND - 1)]
        await super().startup([*sockets, *copies] if sockets else sockets)

    async def on_tick(self, counter: int) -> bool:
        if self.service.failure is not None:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """No new requests; running ones may finish within the limit, then are cancelled."""
        admission = self.service.admission
        admission.close()
        _log.info("shutting down", extra={"running": len(admission)})
        timer = asyncio.get_running_loop().call_later(
            self.service.settings.limits.shutdown_seconds, admission.stop_all
        )
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()
        _log.info("ended")


def listen(host: str, port: int) -> socket.socket:
    """Raises OSError, with the address in it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None


def run(settings: ServerSettings, service: Service | None = None) -> None:
    """Until SIGTERM or Ctrl-C. Raises what a model that is loaded at start raises."""
    _allow_many_connections()
    sockets = [listen(settings.host, settings.port)]
    if settings.ollama_port is not None:
        sockets.append(listen(settings.host, settings.ollama_port))
    server = Server(settings, service)
    scheme = "https" if settings.tls_certificate else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    for each in sockets:
        port = each.getsockname()[1]
        _log.info("listening", extra={"url": f"{scheme}://{host}:{port}"})
    # uvicorn raises the signal again when all is done: that is no reason to die of it.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        server.run(sockets=sockets)
    finally:
        signal.signal(signal.SIGTERM, before)
        for each in sockets:
            each.close()
    if server.service.failure is not None:
        raise server.service.failure


def _allow_many_connections() -> None:
    """Each takes a descriptor; many systems begin with 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
