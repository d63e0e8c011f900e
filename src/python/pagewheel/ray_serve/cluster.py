"""Ray's side of `pagewheel serve --replicas`: starting it, and the deployment of replicas."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from functools import partial
from typing import Any

import ray
from ray import serve
from ray.serve.config import AutoscalingConfig, RequestRouterConfig
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import LoggingConfig

from pagewheel.convert import resolve_model
from pagewheel.default_model import default_model
from pagewheel.ray_serve.front import Front
from pagewheel.ray_serve.replica import Replica
from pagewheel.ray_serve.router import PrefixRouter
from pagewheel.serve.embedding import ApiKeys, ModelSettings, ServerSettings, run_server
from pagewheel.serve_options import ReplicaSettings

# Ray's store of objects holds the pieces of answers that are under way; Ray wants at least 75 MB.
_STORE_BYTES = 200 << 20
_HEALTH_SECONDS = 5.0
_HEALTH_TIMEOUT_SECONDS = 30.0
_STARTS = 3  # of a replica that fails in its constructor
# How often requests are counted, and over what time they are averaged.
_COUNT_SECONDS = 1.0
_LOOK_BACK_SECONDS = 5.0
# A replica's queue is bounded by the engine's max_queue, which answers 429 by itself.
_MAX_ONGOING = 4096
# A model's cache in a replica, where nothing else was said.
_CACHE_GIGABYTES = 1
# Between the end of running requests' time and the end of the process.
_LAST_SECONDS = 5.0


def connect(replicas: ReplicaSettings) -> None:
    """Connects to a cluster, or to one that is started here and ends with this process.

    On the main thread, before others handle signals: Ray handles them too.
    """
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's workers are else the last that a machine's other processes leave time for.
    os.environ.setdefault("RAY_worker_niceness", "0")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if replicas.address is not None:
        ray.init(replicas.address, **options)
        return
    cpus = max(os.cpu_count() or 1, replicas.most)
    ray.init(num_cpus=cpus, object_store_memory=_STORE_BYTES, include_dashboard=False, **options)


def start(settings: ServerSettings, replicas: ReplicaSettings) -> DeploymentHandle:
    """Returns when all of the fewest replicas run. Raises RuntimeError with what went wrong."""
    if replicas.address is None:
        _prepare(settings)
    serve.start(proxy_location="Disabled", logging_config=_logging())
    try:
        return serve.run(deployment(settings, replicas), name=replicas.name, route_prefix=None)
    except RuntimeError as error:
        raise RuntimeError(f"{error} {_cause(replicas.name)}".strip()) from error


def _cause(application: str) -> str:
    """Says why a deployment failed: Ray's error only names it."""
    found = serve.status().applications.get(application)
    messages = [each.message for each in found.deployments.values()] if found else []
    # The last line of a replica's traceback; Ray may have added lines of spaces.
    return " ".join(each.strip().splitlines()[-1] for each in messages if each.strip())


def stream_host(address: str | None) -> str | None:
    """Gives what replicas of the cluster `address` call this machine; None: they may not connect.

    Where Ray encrypts what it sends, nothing goes past it.
    """
    if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return None
    return "127.0.0.1" if address is None else str(ray.util.get_node_ip_address())


def stop(replicas: ReplicaSettings) -> None:
    """Ends what start() and connect() have started."""
    if replicas.address is None:
        serve.shutdown()
    else:
        serve.delete(replicas.name)
    ray.shutdown()


def deployment(settings: ServerSettings, replicas: ReplicaSettings) -> serve.Application:
    """The replicas' deployment. Ray must run: it says how many processors there are."""
    cpus = replicas.cpus or _share(replicas.most)
    seconds = settings.limits.shutdown_seconds
    number: dict[str, Any] = {"num_replicas": replicas.fewest}
    if replicas.most > replicas.fewest:
        number = {
            "autoscaling_config": AutoscalingConfig(
                min_replicas=replicas.fewest,
                max_replicas=replicas.most,
                target_ongoing_requests=replicas.target_requests,
                upscale_delay_s=replicas.up_seconds,
                downscale_delay_s=replicas.down_seconds,
                look_back_period_s=_LOOK_BACK_SECONDS,
                metrics_interval_s=_COUNT_SECONDS,
            )
        }
    described = serve.deployment(
        name="Replica",
        ray_actor_options={"num_cpus": cpus},
        max_ongoing_requests=_MAX_ONGOING,
        graceful_shutdown_wait_loop_s=0.2,
        graceful_shutdown_timeout_s=seconds + _LAST_SECONDS,
        health_check_period_s=_HEALTH_SECONDS,
        health_check_timeout_s=_HEALTH_TIMEOUT_SECONDS,
        max_constructor_retry_count=_STARTS,
        logging_config=_logging(),
        request_router_config=RequestRouterConfig(
            request_router_class=PrefixRouter,
            request_router_kwargs={
                "name": replicas.name,
                "imbalance": replicas.imbalance,
                "blocks": replicas.prefix_blocks,
            },
        ),
        **number,
    )(Replica)
    return described.bind(_of_replica(settings, cpus), replicas.log_level)


def _logging() -> LoggingConfig:
    return LoggingConfig(log_level="WARNING", enable_access_log=False)


def _share(count: int) -> int:
    """A replica's part of the cluster's processors; no more than one machine has."""
    machines = [each["Resources"].get("CPU", 0) for each in ray.nodes() if each["Alive"]]
    return max(1, int(min(sum(machines) // count, max(machines, default=1))))


def _of_replica(settings: ServerSettings, cpus: int) -> ServerSettings:
    """Leaves out keys, which the front compares, and sets a replica's threads."""
    models = tuple(
        replace(
            each,
            path=each.path and each.path.absolute(),
            scheduler=_scheduler(each),
            properties={**(_threads(cpus) if each.device == "CPU" else {}), **each.properties},
        )
        for each in settings.models
    )
    by_key = ApiKeys(settings.keys, settings.key_limits).limits_by_id()
    return replace(
        settings,
        models=models,
        keys=(),
        key_limits={api_key_id: replace(each, requests=0) for api_key_id, each in by_key.items()},
        tls_certificate=None,
        tls_key=None,
    )


def _scheduler(model: ModelSettings) -> dict[str, Any]:
    """The default, half of a machine's free memory, is not for each of its replicas."""
    given = dict(model.scheduler)
    if not (given.get("cache_size") or given.get("num_kv_blocks")):
        given["cache_size"] = _CACHE_GIGABYTES
    return given


def _threads(cpus: int) -> dict[str, Any]:
    """Replicas of one machine must neither take all its processors nor be bound to the same."""
    return {"INFERENCE_NUM_THREADS": cpus, "ENABLE_CPU_PINNING": False}


def _prepare(settings: ServerSettings) -> None:
    """Downloads and converts once what all replicas would. Finds wrong paths."""
    for model in settings.models:
        if model.is_at_start:
            resolve_model(model.path if model.path is not None else default_model())


def serve_replicas(settings: ServerSettings, replicas: ReplicaSettings) -> None:
    """Runs the front in this process and replicas in others, until SIGTERM or Ctrl-C.

    Both let running requests end.
    """
    connect(replicas)
    front = Front(
        settings,
        replicas,
        partial(start, settings, replicas),
        stream_host(replicas.address),
    )
    try:
        run_server(settings, front)
    finally:
        stop(replicas)
