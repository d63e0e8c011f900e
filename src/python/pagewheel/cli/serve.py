"""`pagewheel serve`: from its options to a running server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pagewheel.cli.extras import check_installed
from pagewheel.cli.failures import failures, wrong_usage
from pagewheel.cli.option_groups import with_option_groups
from pagewheel.cli.replicas import ReplicaOptions
from pagewheel.cli.serve_options import (
    AccessOptions,
    LimitOptions,
    ModelOptions,
    ObservingOptions,
)
from pagewheel.cli.served_models import served_aliases, served_models
from pagewheel.cli.units import seconds, size

if TYPE_CHECKING:
    from pagewheel.ray_serve.settings import ReplicaSettings
    from pagewheel.serve.settings import ServerSettings

_NEEDED = ("fastapi", "uvicorn", "httptools", "prometheus_client")
# In a context's `meta`: what is called with the settings, instead of serving.
SETTINGS_TAKER = "pagewheel.cli.serve.take"
_NEEDED_FOR_TRACES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")

Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL",
        help=".gguf files or folders, or NAME=PATH. By default SmolLM2-135M-Instruct, "
        "downloaded once.",
    ),
]


@with_option_groups
def serve(
    context: typer.Context,
    on_models: ModelOptions,
    on_access: AccessOptions,
    on_limits: LimitOptions,
    on_observing: ObservingOptions,
    on_replicas: ReplicaOptions,
    models: Models = None,
) -> None:
    r"""Serve models over HTTP, as OpenAI's API does. Needs `pip install 'pagewheel\[serve]'`.

    Ctrl-C and SIGTERM let running requests finish.

    [bold]Examples[/bold]

    pagewheel serve

    pagewheel serve small=small.gguf large=large/ --memory-budget 16G --idle-unload 10m

    pagewheel serve model.gguf --host 0.0.0.0 --api-key-file keys.txt

    pagewheel serve model.gguf --replicas 4
    """
    on_access.check()
    on_observing.check()
    with failures(debug=context.obj):
        check_installed("serving", "serve", _NEEDED)
        if on_observing.otlp_traces_endpoint is not None:
            check_installed("tracing", "otel", _NEEDED_FOR_TRACES)
        from pagewheel.serve import logs

        settings = _settings(models or [], on_models, on_access, on_limits, on_observing)
        spread = on_replicas.settings(on_observing.log_level)
        if spread is not None and on_models.prefix_cache_dir is not None:
            raise typer.BadParameter(
                "replicas would write the same files", param_hint="--prefix-cache-dir"
            )
        logs.configure(on_observing.log_level)
        take: Callable[[ServerSettings, Any], None] = context.meta.get(SETTINGS_TAKER, _run)
        take(settings, spread)


def _run(settings: ServerSettings, spread: ReplicaSettings | None) -> None:
    if spread is None:
        from pagewheel.serve import server

        server.run(settings)
        return
    check_installed("replicas", "ray", ("ray",))
    from pagewheel.ray_serve import command

    command.run(settings, spread)


def _settings(
    given: list[str],
    on_models: ModelOptions,
    on_access: AccessOptions,
    on_limits: LimitOptions,
    on_observing: ObservingOptions,
) -> ServerSettings:
    from pagewheel.serve.security import read_keys
    from pagewheel.serve.settings import ServerSettings

    models = served_models(given, on_models)
    with wrong_usage("--api-key-file"):
        keys = read_keys(on_access.api_key_file)
    with wrong_usage("--metrics-prefix"):
        return ServerSettings(
            models=models,
            aliases=served_aliases(on_models.aliases or [], models),
            host=on_access.host,
            port=on_access.port,
            keys=tuple(keys),
            key_limits=keys,
            shares_prefixes=on_access.share_prefixes,
            allowed_hosts=tuple(on_access.allowed_hosts or ()),
            open_metrics=on_observing.open_metrics,
            tls_certificate=on_access.tls_certificate,
            tls_key=on_access.tls_key,
            metrics_prefix=on_observing.metrics_prefix,
            traces_endpoint=on_observing.otlp_traces_endpoint,
            memory_budget=size("--memory-budget", on_models.memory_budget or "0"),
            idle_unload_seconds=seconds("--idle-unload", on_models.idle_unload or "0"),
            prefix_cache_dir=on_models.prefix_cache_dir,
            prefix_cache_bytes=size("--prefix-cache-size", on_models.prefix_cache_size),
            conversion_seconds=seconds("--conversion-timeout", on_models.conversion_timeout),
            conversion_bytes=size("--conversion-memory", on_models.conversion_memory),
            log_prompts=on_observing.log_prompts,
            has_page=on_observing.has_page,
            limits=on_limits.limits(),
        )
