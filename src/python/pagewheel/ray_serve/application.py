"""`serve run pagewheel.ray_serve:app`: replicas, and a front that Ray Serve's own proxy calls."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import typer
from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle

from pagewheel.ray_serve.cluster import deployment, stream_host
from pagewheel.ray_serve.front import Front
from pagewheel.serve.embedding import ServerSettings, make_app
from pagewheel.serve_options import ReplicaSettings, read_arguments

# Ray Serve listens, not the front.
_NOT_HERE = ("host", "port", "tls_certificate", "tls_key", "ray_address")
# click's ClickException; some versions of typer have a click of their own.
_REFUSED: Any = typer.BadParameter.__mro__[2]


class Ingress:
    """A deployment that is a front."""

    def __init__(
        self, settings: ServerSettings, replicas: ReplicaSettings, handle: DeploymentHandle
    ) -> None:
        self._front = Front(settings, replicas, lambda: handle, stream_host("auto"))

    def __serve_build_asgi_app__(self) -> FastAPI:
        return make_app(self._front)

    def check_health(self) -> None:
        if self._front.failure is not None:
            raise self._front.failure


def app(args: dict[str, Any]) -> serve.Application:
    """Reads the options of `pagewheel serve`, without dashes in front: `replicas=4`.

    `models` are the arguments, parted by spaces. A list gives an option several times. Raises
    ValueError for what `pagewheel serve` would refuse.
    """
    settings, replicas = _read(args)
    # Ray Serve's proxy listens where it was told to; only --allowed-host says what it is called.
    settings = replace(settings, host="0.0.0.0")
    handle = deployment(settings, replicas)
    ingress = serve.deployment(
        name="Front",
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=settings.limits.concurrency,
        graceful_shutdown_timeout_s=settings.limits.shutdown_seconds,
    )(serve.ingress()(Ingress))
    return ingress.bind(settings, replicas, handle)


def _read(args: Mapping[str, Any]) -> tuple[ServerSettings, ReplicaSettings]:
    try:
        settings, replicas = read_arguments(list(_arguments({"replicas": "1", **args})))
    except _REFUSED as error:
        raise ValueError(error.format_message()) from None
    assert replicas is not None
    return settings, replicas


def _arguments(args: Mapping[str, Any]) -> Iterator[str]:
    for name, value in args.items():
        if name in _NOT_HERE:
            raise ValueError(f"{name}: Ray Serve decides it; see its http_options")
        if name == "models":
            yield from shlex.split(value) if isinstance(value, str) else value
            continue
        option = "--" + name.replace("_", "-")
        for each in value if isinstance(value, list) else [value]:
            if str(each).lower() == "true":
                yield option
            elif str(each).lower() != "false":
                yield f"{option}={each}"
