"""/v1/models."""

from __future__ import annotations

from typing import Any

from pagewheel.serve.http.errors import ApiError
from pagewheel.serve.http.exchange import Exchange


async def list_models(exchange: Exchange) -> None:
    """Models and aliases, in memory or not."""
    names = exchange.service.registry.names()
    await exchange.send_json(
        {"object": "list", "data": [_description(exchange, name) for name in names]}
    )


async def show_model(exchange: Exchange) -> None:
    """One of them."""
    name = exchange.request.path_params["name"]
    if exchange.service.registry.target(name) is None:
        raise ApiError(404, f"The model {name[:200]!r} does not exist", code="model_not_found")
    await exchange.send_json(_description(exchange, name))


def _description(exchange: Exchange, name: str) -> dict[str, Any]:
    registry = exchange.service.registry
    target = registry.target(name)
    assert target is not None
    return {
        "id": name,
        "object": "model",
        "created": exchange.service.created,
        "owned_by": "pagewheel",
        "root": target,
        "max_model_len": registry.context(target),
    }
