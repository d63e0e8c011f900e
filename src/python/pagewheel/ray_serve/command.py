"""`pagewheel serve --replicas`: the front in this process, replicas in others."""

from __future__ import annotations

from functools import partial

from pagewheel.ray_serve import cluster
from pagewheel.ray_serve.front import Front
from pagewheel.ray_serve.settings import ReplicaSettings
from pagewheel.serve import server
from pagewheel.serve.settings import ServerSettings


def run(settings: ServerSettings, replicas: ReplicaSettings) -> None:
    """Until SIGTERM or Ctrl-C, which let running requests end."""
    cluster.connect(replicas)
    front = Front(
        settings,
        replicas,
        partial(cluster.start, settings, replicas),
        cluster.stream_host(replicas.address),
    )
    try:
        server.run(settings, front)
    finally:
        cluster.stop(replicas)
