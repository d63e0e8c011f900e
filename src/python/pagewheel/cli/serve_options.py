"""The options of `pagewheel serve`, in groups."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from pagewheel.cli.eviction import Eviction
from pagewheel.cli.units import seconds, size

if TYPE_CHECKING:
    from pagewheel.serve.settings import Limits

_LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True)
class ModelOptions:
    """Which models, and how they are held in memory."""

    aliases: Annotated[
        list[str] | None,
        typer.Option("--alias", metavar="ALIAS=NAME", help="Another name of a model; repeat it."),
    ] = None
    pinned: Annotated[
        list[str] | None,
        typer.Option(
            "--pin",
            metavar="NAME",
            help="Load this model at start and keep it; repeat it. "
            "A single model is loaded at start, and kept without --idle-unload.",
        ),
    ] = None
    memory_budget: Annotated[
        str | None,
        typer.Option(
            "--memory-budget",
            metavar="SIZE",
            help="For weights and caches of all models, e.g. 8G: those not in use make room.",
        ),
    ] = None
    idle_unload: Annotated[
        str | None,
        typer.Option(
            "--idle-unload", metavar="TIME", help="Unload models not used for so long, e.g. 10m."
        ),
    ] = None
    device: Annotated[str, typer.Option(help="OpenVINO device: CPU, GPU, GPU.1...")] = "CPU"
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            "-p",
            metavar="KEY=VALUE",
            help="An OpenVINO property of all models; repeat it.",
        ),
    ] = None
    prefix_cache_dir: Annotated[
        Path | None,
        typer.Option(
            "--prefix-cache-dir",
            help="Where prefixes that models have computed stay over restarts and unloading.",
        ),
    ] = None
    prefix_cache_size: Annotated[
        str, typer.Option(metavar="SIZE", help="Of all files there, e.g. 4G.")
    ] = "4G"
    conversion_timeout: Annotated[
        str,
        typer.Option(metavar="TIME", help="For converting a model at its first use; 0: no limit."),
    ] = "1h"
    conversion_memory: Annotated[
        str, typer.Option(metavar="SIZE", help="For converting a model, e.g. 8G; 0: no limit.")
    ] = "0"
    cache_size: Annotated[
        int, typer.Option(min=0, help="GB of KV cache per model; 0: half of the free memory.")
    ] = 0
    max_queue: Annotated[
        int,
        typer.Option(min=0, help="Requests of a model that wait; one more gets 429. 0: no limit."),
    ] = 256
    scheduler: Annotated[
        list[str] | None,
        typer.Option(
            "--scheduler",
            metavar="KEY=VALUE",
            help="A member of SchedulerConfig, e.g. max_num_seqs=64; repeat it.",
        ),
    ] = None
    eviction: Eviction = None


@dataclass(frozen=True)
class AccessOptions:
    """Where the server listens, and to whom it answers."""

    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 is every one.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            "--api-key-file",
            exists=True,
            dir_okay=False,
            help="A file with an API key and its limits per line; PAGEWHEEL_API_KEYS has more "
            "keys, parted by commas.",
        ),
    ] = None
    share_prefixes: Annotated[
        bool,
        typer.Option(
            "--share-prefixes",
            help="Let all keys find each other's cached prefixes, but those that are in a group of "
            "the key file (prefixes=NAME). By default each key finds its own alone.",
        ),
    ] = False
    tls_certificate: Annotated[
        Path | None, typer.Option(help="A PEM file; with --tls-key for https.")
    ] = None
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key, a PEM file.")] = None
    allowed_hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            help="A name by which clients call the server; repeat it. Others are refused then.",
        ),
    ] = None

    def check(self) -> None:
        """Raises typer.BadParameter."""
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise typer.BadParameter("give both --tls-certificate and --tls-key")


@dataclass(frozen=True)
class LimitOptions:
    """What one client can ask for."""

    max_tokens: Annotated[
        int,
        typer.Option(min=0, help="Tokens that one request may generate; 0: the model's context."),
    ] = 0
    max_body: Annotated[str, typer.Option(metavar="SIZE", help="Of a request's body, e.g. 4M.")] = (
        "4M"
    )
    max_bodies: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Of all bodies of requests being served; one more gets 503. 0: no limit.",
        ),
    ] = "256M"
    max_requests: Annotated[int, typer.Option(min=1, help="Served at once; one more gets 503.")] = (
        4096
    )
    max_requests_per_key: Annotated[
        int,
        typer.Option(
            min=0, help="Requests of one API key at once; one more gets 429. 0: no limit."
        ),
    ] = 0
    max_queue_per_key: Annotated[
        int,
        typer.Option(
            min=0,
            help="Requests of one API key without a token yet; one more gets 429. 0: no limit.",
        ),
    ] = 0
    head_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="For a request's headers to arrive.")
    ] = "10s"
    body_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="For a request's body to arrive.")
    ] = "30s"
    stall_timeout: Annotated[
        str,
        typer.Option(metavar="TIME", help="For a client that does not read to take its answer."),
    ] = "60s"
    request_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="A request ends then with what there is.")
    ] = "10m"
    shutdown_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="For running requests after SIGTERM or Ctrl-C.")
    ] = "30s"

    def limits(self) -> Limits:
        """Raises typer.BadParameter."""
        from pagewheel.serve.settings import Limits

        return Limits(
            body_bytes=size("--max-body", self.max_body),
            head_seconds=seconds("--head-timeout", self.head_timeout),
            body_seconds=seconds("--body-timeout", self.body_timeout),
            stall_seconds=seconds("--stall-timeout", self.stall_timeout),
            bodies_bytes=size("--max-bodies", self.max_bodies),
            request_seconds=seconds("--request-timeout", self.request_timeout),
            shutdown_seconds=seconds("--shutdown-timeout", self.shutdown_timeout),
            max_tokens=self.max_tokens,
            concurrency=self.max_requests,
            concurrency_per_key=self.max_requests_per_key,
            queue_per_key=self.max_queue_per_key,
        )


@dataclass(frozen=True)
class ObservingOptions:
    """What operators see."""

    open_metrics: Annotated[
        bool, typer.Option("--open-metrics", help="/metrics without an API key.")
    ] = False
    metrics_prefix: Annotated[str, typer.Option(help='"vllm" suits dashboards made for it.')] = (
        "pagewheel"
    )
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info"
    log_prompts: Annotated[
        bool, typer.Option("--log-prompts", help="Write prompts to the log.")
    ] = False
    has_page: Annotated[
        bool,
        typer.Option("--page/--no-page", help="The chat page at /, and its view of the cache."),
    ] = True
    otlp_traces_endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Send a trace of each request there, e.g. http://localhost:4318/v1/traces.",
        ),
    ] = None

    def check(self) -> None:
        """Raises typer.BadParameter."""
        if self.log_level not in _LOG_LEVELS:
            raise typer.BadParameter(
                f"allowed: {', '.join(_LOG_LEVELS)}, got {self.log_level!r}",
                param_hint="--log-level",
            )
        endpoint = self.otlp_traces_endpoint
        if endpoint is not None and urlsplit(endpoint).scheme not in ("http", "https"):
            raise typer.BadParameter(
                f"expected e.g. http://localhost:4318/v1/traces, got {endpoint!r}",
                param_hint="--otlp-traces-endpoint",
            )
