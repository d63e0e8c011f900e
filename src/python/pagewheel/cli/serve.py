"""`pagewheel serve`: from its options to a running server."""

from __future__ import annotations

from typing import Annotated

import typer

from pagewheel.cli.terminal import failures
from pagewheel.options import check_installed, with_option_groups
from pagewheel.serve_options import ServeOptions

_NEEDED = ("fastapi", "uvicorn", "httptools", "prometheus_client")
_NEEDED_FOR_TRACES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")

Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL",
        help=".gguf files, folders, names of the hub (owner/name), or NAME=MODEL. "
        "By default SmolLM2-135M-Instruct, downloaded once.",
    ),
]


@with_option_groups
def serve(context: typer.Context, options: ServeOptions, models: Models = None) -> None:
    r"""Serve models over HTTP, as OpenAI's API does. Needs `pip install 'pagewheel\[serve]'`.

    Ctrl-C and SIGTERM let running requests finish.

    [bold]Examples[/bold]

    pagewheel serve

    pagewheel serve Qwen/Qwen3-0.6B

    pagewheel serve small=small.gguf large=large/ --memory-budget 16G --idle-unload 10m

    pagewheel serve model.gguf --host 0.0.0.0 --api-key-file keys.txt

    pagewheel serve model.gguf --replicas 4
    """
    options.check()
    with failures(debug=context.obj):
        check_installed("serving", "serve", _NEEDED)
        if options.traces_endpoint is not None:
            check_installed("tracing", "otel", _NEEDED_FOR_TRACES)
        settings, replicas = options.server_settings(models or []), options.replica_settings()
        from pagewheel.serve import logs

        logs.configure(options.log_level)
        if replicas is None:
            from pagewheel.serve import server

            server.run(settings)
            return
        check_installed("replicas", "ray", ("ray",))
        from pagewheel.ray_serve.cluster import serve_replicas

        serve_replicas(settings, replicas)
