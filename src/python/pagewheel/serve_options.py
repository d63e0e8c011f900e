"""The options of `pagewheel serve`, and the settings that they make.

`pagewheel.cli` reads them from a command line, `pagewheel.ray_serve` from Ray Serve's arguments.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import typer

from pagewheel.context_overflow import CONTEXT_OVERFLOWS, ERROR, EVICT
from pagewheel.options import (
    check_choice,
    eviction_arguments,
    eviction_option,
    option,
    parse_properties,
    properties_option,
    time_option,
    with_option_groups,
    wrong_usage,
)
from pagewheel.serve.settings import Limits, ModelSettings, ServerOptions, ServerSettings


@dataclass(frozen=True)
class ReplicaSettings:
    """How many replicas run, with what, and how requests are spread over them."""

    fewest: int = 1
    most: int = 1  # more than `fewest`: as many as running and waiting requests ask for
    address: str | None = None  # of a Ray cluster; None: Ray is started on this machine
    cpus: int = 0  # per replica; 0: its share of the cluster's
    target_requests: int = 16  # per replica, above which another one is started
    up_seconds: float = 10.0  # for which more must have been asked for
    down_seconds: float = 300.0  # for which less must have been
    imbalance: int = 8  # requests that a replica may have more than another
    prefix_blocks: int = 32768  # of prompts, remembered per replica
    log_level: str = "info"
    name: str = "pagewheel"  # of the application in Ray Serve


_LOG_LEVELS = ("debug", "info", "warning", "error")
_DEFAULT_NAME = "SmolLM2-135M-Instruct"


@dataclass(frozen=True)
class ServeOptions(Limits, ServerOptions):
    """The options of a command line; below are those from which settings are made."""

    # Which models, and how they are held in memory.
    aliases: list[str] | None = option(
        None, "Another name of a model; repeat it.", "--alias", metavar="ALIAS=NAME"
    )
    pinned: list[str] | None = option(
        None,
        "Load this model at start and keep it; repeat it. "
        "A single model is loaded at start, and kept without --idle-unload.",
        "--pin",
        metavar="NAME",
    )
    idle_unload_seconds: float | None = time_option(
        None, "Unload models not used for so long, e.g. 10m.", "--idle-unload"
    )
    device: str = option("CPU", "OpenVINO device: CPU, GPU, GPU.1...")
    properties: list[str] | None = properties_option(
        "An OpenVINO property of all models; repeat it."
    )
    cache_size: int = option(0, "GB of KV cache per model; 0: half of the free memory.", min=0)
    max_queue: int = option(
        256, "Requests of a model that wait; one more gets 429. 0: no limit.", min=0
    )
    scheduler: list[str] | None = option(
        None,
        "A member of SchedulerConfig, e.g. max_num_seqs=64; repeat it.",
        metavar="KEY=VALUE",
    )
    eviction: str | None = eviction_option()
    context_overflow: str | None = option(
        None,
        "What conversations longer than the context get: error, evict (the cache forgets, with "
        "rotation) or truncate (the oldest turns are left out). A request may say otherwise. "
        "By default error, and evict with --eviction ...,prefill.",
    )

    # To whom the server answers, and what it says.
    cors_origins: list[str] | None = option(
        None,
        "A web page's origin, e.g. http://localhost:3000, that may ask from a browser; repeat it. "
        "* is every one.",
        "--cors-origin",
    )
    api_key_file: Path | None = option(
        None,
        "A file with an API key and its limits per line; PAGEWHEEL_API_KEYS has more "
        "keys, parted by commas.",
        exists=True,
        dir_okay=False,
    )
    allowed_hosts: list[str] | None = option(
        None,
        "A name by which clients call the server; repeat it. Others are refused then.",
        "--allowed-host",
    )
    log_level: str = option("info", "debug, info, warning or error.")

    # How many processes share the work.
    replicas: str | None = option(
        None,
        "Processes behind one endpoint, on Ray Serve; of MIN-MAX as many as are busy.",
        metavar="N or MIN-MAX",
    )
    ray_address: str | None = option(
        None, "Of a Ray cluster for the replicas, or auto.", metavar="ADDRESS"
    )
    replica_cpus: int = option(0, "Of each replica; 0: an equal share of the processors.", min=0)
    requests_per_replica: int = option(
        16, "At once, above which MIN-MAX starts another replica.", min=1
    )

    def check(self) -> None:
        """Raises typer.BadParameter for what must not be given together, or not so."""
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise typer.BadParameter("give both --tls-certificate and --tls-key")
        check_choice("--log-level", self.log_level, _LOG_LEVELS)
        if self.context_overflow is not None:
            check_choice("--context-overflow", self.context_overflow, CONTEXT_OVERFLOWS)
        for origin in self.cors_origins or ():
            if origin != "*" and not re.fullmatch(r"https?://[^/\s]+", origin):
                raise typer.BadParameter(
                    f"expected e.g. http://localhost:3000, or *, got {origin!r}",
                    param_hint="--cors-origin",
                )
        endpoint = self.traces_endpoint
        if endpoint is not None and urlsplit(endpoint).scheme not in ("http", "https"):
            raise typer.BadParameter(
                f"expected e.g. http://localhost:4318/v1/traces, got {endpoint!r}",
                param_hint="--otlp-traces-endpoint",
            )
        if self.replicas is not None and self.prefix_cache_dir is not None:
            raise typer.BadParameter(
                "replicas would write the same files", param_hint="--prefix-cache-dir"
            )

    def server_settings(self, given: Sequence[str]) -> ServerSettings:
        """The settings for the models `given`. Raises typer.BadParameter."""
        from pagewheel.serve.security import read_keys

        models = self._models(given)
        with wrong_usage("--api-key-file"):
            keys = read_keys(self.api_key_file)
        queue_per_key = self.queue_per_key
        if queue_per_key is None:  # no key fills the queue of all
            queue_per_key = (self.max_queue + 1) // 2 if len(keys) > 1 else 0
        limits = self._values_of(Limits) | {"queue_per_key": queue_per_key}
        own = self._values_of(ServerOptions) | {
            "models": models,
            "aliases": _aliases(self.aliases or [], models),
            "keys": tuple(keys),
            "key_limits": keys,
            "allowed_hosts": tuple(self.allowed_hosts or ()),
            "cors_origins": tuple(self.cors_origins or ()),
            "context_overflow": self.context_overflow
            or (EVICT if models[0].eviction.get("evict_during_prefill") else ERROR),
            "idle_unload_seconds": self.idle_unload_seconds or 0.0,
            "limits": Limits(**limits),
        }
        with wrong_usage("--metrics-prefix"):
            return ServerSettings(**own)

    def _values_of(self, kind: Any) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(kind)}

    def _models(self, given: Sequence[str]) -> tuple[ModelSettings, ...]:
        properties = parse_properties(self.properties or [])
        scheduler = _scheduler(self.scheduler or [], self.cache_size, self.max_queue)
        eviction = eviction_arguments(self.eviction)
        pinned = self.pinned or []
        paths = dict(map(_named, given)) if given else {_DEFAULT_NAME: None}
        if given and len(paths) < len(given):
            raise typer.BadParameter("two models have the same name: give NAME=PATH")
        for name in pinned:
            if name not in paths:
                raise typer.BadParameter(
                    f"there is no model {name!r}; known: {', '.join(paths)}", param_hint="--pin"
                )
        is_single = len(paths) == 1 and not pinned
        keep = paths if is_single and self.idle_unload_seconds is None else pinned
        common = (self.device, properties, scheduler, eviction)
        return tuple(
            ModelSettings(name, path, *common, is_pinned=name in keep, is_first=is_single)
            for name, path in paths.items()
        )

    def replica_settings(self) -> ReplicaSettings | None:
        """Gives None where there is one process, without Ray. Raises typer.BadParameter."""
        if self.replicas is None:
            for name, given in (
                ("--ray-address", self.ray_address),
                ("--replica-cpus", self.replica_cpus),
            ):
                if given:
                    raise typer.BadParameter("needs --replicas", param_hint=name)
            return None
        match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", self.replicas)
        fewest, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= fewest <= most:
            raise typer.BadParameter(
                f"expected e.g. 4, or 1-8 for as many as are busy, got {self.replicas!r}",
                param_hint="--replicas",
            )
        return ReplicaSettings(
            fewest=fewest,
            most=most,
            address=self.ray_address,
            cpus=self.replica_cpus,
            target_requests=self.requests_per_replica,
            log_level=self.log_level,
        )


def _named(model: str) -> tuple[str, Path | None]:
    """Parses NAME=MODEL, or a model, which is fetched now if it is named as the hub names it.

    Without NAME the name is the hub's, or a path's last part without .gguf.
    """
    from pagewheel.hub import local_model, parse_name

    name, equals, path = model.partition("=")
    if equals and name and path and "://" not in name and not Path(model).exists():
        return name, local_model(path)
    found = local_model(model)
    if found != Path(model) and parse_name(model):
        return model.removeprefix("hub:"), found
    return found.name.removesuffix(".gguf") or found.resolve().name, found


def _aliases(items: Sequence[str], models: Sequence[ModelSettings]) -> dict[str, str]:
    """Parses "ALIAS=NAME". Raises typer.BadParameter."""
    names = {each.name for each in models}
    aliases = {}
    for item in items:
        alias, _, name = item.partition("=")
        if not alias or name not in names or alias in names:
            raise typer.BadParameter(
                f"expected ALIAS=NAME of a model ({', '.join(sorted(names))}), got {item!r}",
                param_hint="--alias",
            )
        aliases[alias] = name
    return aliases


def _scheduler(items: Sequence[str], cache_size: int, max_queue: int) -> dict[str, Any]:
    import pagewheel

    members: dict[str, Any] = {"cache_size": cache_size, "max_queue": max_queue}
    members |= parse_properties(items)
    config = pagewheel.SchedulerConfig()
    for name, value in members.items():
        try:
            if not hasattr(config, name):
                raise ValueError(f"SchedulerConfig has no member {name!r}")
            setattr(config, name, value)
            config.validate()
        except (TypeError, ValueError) as error:
            raise typer.BadParameter(f"{name}: {error}", param_hint="--scheduler") from None
    return members


def read_arguments(arguments: Sequence[str]) -> tuple[ServerSettings, ReplicaSettings | None]:
    """What `pagewheel serve` makes of its arguments. Raises what typer raises for wrong ones."""
    found: list[tuple[ServerSettings, ReplicaSettings | None]] = []

    def take(options: ServeOptions, models: list[str] | None = typer.Argument(None)) -> None:  # noqa: B008
        options.check()
        found.append((options.server_settings(models or []), options.replica_settings()))

    alone = typer.Typer()
    alone.command()(with_option_groups(take))
    command = typer.main.get_command(alone)
    with command.make_context("serve", list(arguments)) as context:
        command.invoke(context)
    return found[0]
