"""/v1/models."""

from __future__ import annotations

from typing import Any

from pagewheel.serve.http.errors import ApiError
from pagewheel.serve.http.request_context import RequestContext


async def list_models(context: RequestContext) -> None:
    """Models and aliases, in memory or not."""
    names = context.service.registry.names()
    await context.send_json(
        {"object": "list", "data": [_description(context, name) for name in names]}
    )


async def show_model(context: RequestContext) -> None:
    """One of them."""
    name = context.request.path_params["name"]
    if context.service.registry.target(name) is None:
        raise ApiError(404, f"The model {name[:200]!r} does not exist", code="model_not_found")
    await context.send_json(_description(context, name))


def _description(context: RequestContext, name: str) -> dict[str, Any]:
    registry = context.service.registry
    target = registry.target(name)
    assert target is not None
    return {
        "id": name,
        "object": "model",
        "created": context.service.created,
        "owned_by": "pagewheel",
        "root": target,
        "max_model_len": registry.max_model_len(target),
    }
