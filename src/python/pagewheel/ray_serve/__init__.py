"""Several replicas of `pagewheel serve` behind one endpoint, on Ray Serve. docs/many_machines.md.

front: takes requests, has the keys and limits, and hands each request to a replica. replica: the
engine and the application of `pagewheel serve`. calls and arrivals: what the two send each other,
through Ray, and streams past it. routes and router: which replica a request goes to. cluster and
application: `pagewheel serve --replicas` and `serve run`. Needs the extra `pagewheel[ray]`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["app"]


def __getattr__(name: str) -> Any:
    """`app`, for which Ray is imported only when it is asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pagewheel.ray_serve.application import app

    return app
