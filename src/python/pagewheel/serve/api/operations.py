"""/health, /ready and /metrics: for those who operate the server."""

from __future__ import annotations

from pagewheel.serve.http.errors import unavailable
from pagewheel.serve.http.request_context import RequestContext


async def health(context: RequestContext) -> None:
    """200 while the process answers."""
    await context.send_json({"status": "ok"})


async def ready(context: RequestContext) -> None:
    """200 while requests are welcome: models that are to be in memory are, and no end has begun."""
    if context.service.admission.is_closed:
        raise unavailable("the server is shutting down", "shutting_down")
    if not context.service.registry.is_ready():
        raise unavailable("models are being loaded, or have failed", "loading")
    await context.send_json({"status": "ready"})


async def metrics(context: RequestContext) -> None:
    """For Prometheus."""
    text = context.service.metrics.text()
    await context.send_bytes(text, "text/plain; version=0.0.4; charset=utf-8")
