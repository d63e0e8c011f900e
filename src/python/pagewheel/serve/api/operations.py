"""/health, /ready and /metrics: for those who operate the server."""

from __future__ import annotations

from pagewheel.serve.http.errors import unavailable
from pagewheel.serve.http.exchange import Exchange


async def health(exchange: Exchange) -> None:
    """200 while the process answers."""
    await exchange.send_json({"status": "ok"})


async def ready(exchange: Exchange) -> None:
    """200 while requests are welcome: models that are to be in memory are, and no end has begun."""
    if exchange.service.gate.is_closed:
        raise unavailable("the server is shutting down", "shutting_down")
    if not exchange.service.registry.is_ready():
        raise unavailable("models are being loaded, or have failed", "loading")
    await exchange.send_json({"status": "ready"})


async def metrics(exchange: Exchange) -> None:
    """For Prometheus."""
    text = exchange.service.metrics.text()
    await exchange.send_bytes(text, "text/plain; version=0.0.4; charset=utf-8")
