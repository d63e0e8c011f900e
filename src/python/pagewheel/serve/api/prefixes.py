"""/prefixes: what is kept of the prompts of whoever asks, and forgetting it."""

from __future__ import annotations

import logging
from typing import Any

from pagewheel.serve.http.errors import unavailable
from pagewheel.serve.http.request_context import RequestContext
from pagewheel.serve.models.registry import PrefixUse

_log = logging.getLogger("pagewheel.serve")


async def list_prefixes(context: RequestContext) -> None:
    """By model, in memory and on disk. ApiKeys that share prefixes are told no sizes."""
    tenant = context.tenant
    found = await context.service.registry.prefixes_of(tenant.id)
    data = [_described(name, use, not tenant.is_shared) for name, use in found.items()]
    await context.send_json({"object": "list", "data": data})


def _described(name: str, use: PrefixUse, with_sizes: bool) -> dict[str, Any]:
    saved = use.saved if with_sizes else None
    return {
        "object": "prefixes",
        "model": name,
        "cached_tokens": use.cached_tokens if with_sizes else None,
        "saved_bytes": saved and saved.num_bytes,
        "saved_at": saved and int(saved.time),
    }


async def delete_prefixes(context: RequestContext) -> None:
    """Of all models. Requests that are under way may leave theirs."""
    try:
        await context.service.registry.forget_prefixes(context.tenant.id)
    except OSError as error:
        _log.warning("saved prefixes not removed", extra={"error": str(error)})
        raise unavailable("the saved prefixes cannot be removed now", "prefixes_busy") from None
    await context.send_json({"object": "prefixes", "deleted": True})
