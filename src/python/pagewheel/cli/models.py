"""`pagewheel pull`, `list`, `rm` and `cache`: models that are fetched by name."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from pagewheel.cli.terminal import ended_as_interrupted, failures


def pull(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="owner/name of the Hugging Face hub, owner/name:Q4_K_M or owner/name:FILE for one "
            "of several GGUF files, or the URL of a .gguf file.",
        ),
    ],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Fetch models by name, or what is newer of them, and print where they are.

    The other commands fetch by themselves, once. A token is taken from HF_TOKEN, another hub from
    HF_ENDPOINT, the place from HF_HOME.

    [bold]Examples[/bold]

    pagewheel pull Qwen/Qwen3-0.6B

    pagewheel pull unsloth/Qwen3-4B-GGUF:Q4_K_M
    """
    with failures(debug=context.obj), ended_as_interrupted():
        from pagewheel import hub

        for name in names:
            typer.echo(hub.pull(name, progress=not quiet).path)


def list_models(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the models that were fetched by name.

    [bold]Example[/bold]

    pagewheel list --json
    """
    with failures(debug=context.obj):
        from pagewheel.hub_files import shown_size
        from pagewheel.pulled_models import converted_entries, folder_bytes, pulled_models

        entries = converted_entries()
        models: list[dict[str, Any]] = [
            {
                "name": each.name,
                "form": each.form,
                "bytes": each.num_bytes,
                "last_use": each.last_use,
                "converted_bytes": sum(map(folder_bytes, entries.get(each.sha256, ()))),
                "is_whole": each.is_whole(),
                "path": str(each.path),
            }
            for each in pulled_models()
        ]
        if as_json:
            typer.echo(json.dumps(models, indent=2))
            return
        rows = [
            {
                "NAME": each["name"],
                "FORM": each["form"],
                "SIZE": shown_size(each["bytes"]) if each["is_whole"] else "not whole",
                "LAST USE": time.strftime("%Y-%m-%d %H:%M", time.localtime(each["last_use"])),
                "CONVERTED": shown_size(each["converted_bytes"])
                if each["converted_bytes"]
                else "-",
            }
            for each in models
        ]
        if not rows:
            typer.echo("no models yet: `pagewheel pull owner/name` fetches one", err=True)
            return
        widths = {label: max(len(label), *(len(row[label]) for row in rows)) for label in rows[0]}
        for row in [{label: label for label in widths}, *rows]:
            typer.echo("  ".join(row[label].ljust(widths[label]) for label in widths).rstrip())


def remove(
    context: typer.Context,
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="As `pagewheel list` has them.")
    ],
) -> None:
    """Remove models that were fetched by name, and what they were converted to.

    Files and folders of yours are never removed.
    """
    with failures(debug=context.obj):
        from pagewheel.hub_files import shown_size
        from pagewheel.pulled_models import pulled_models, remove_pulled

        for name in names:
            known = [each.name for each in pulled_models()]
            if name.removeprefix("hub:") not in known:
                what = (
                    "is a path of yours" if Path(name).exists() else "was not fetched by that name"
                )
                raise typer.BadParameter(
                    f"{name} {what}; fetched are: {', '.join(known) or 'no models'}",
                    param_hint="NAME",
                )
            model = remove_pulled(name)
            typer.echo(f"removed {model.name} ({shown_size(model.num_bytes)})")


def show_cache(
    context: typer.Context,
    clear: Annotated[
        bool,
        typer.Option(
            "--clear", help="Remove all converted models; they are made anew when next opened."
        ),
    ] = False,
) -> None:
    """Say where models are kept and how much they are, or make room.

    [bold]Examples[/bold]

    pagewheel cache

    pagewheel cache --clear
    """
    with failures(debug=context.obj):
        from huggingface_hub import constants

        from pagewheel import pulled_models as pulled
        from pagewheel.convert.files.folders import cache_root
        from pagewheel.hub_files import shown_size

        if clear:
            before = pulled.folder_bytes(cache_root() / "models")
            count = pulled.clear_converted()
            freed = before - pulled.folder_bytes(cache_root() / "models")
            typer.echo(f"removed {count} converted models, {shown_size(freed)}")
            return
        downloads = pulled.downloads_folder()
        files = {file: size for each in pulled.pulled_models() for file, size in each.files.items()}
        fetched = sum(size for file, size in files.items() if not file.is_relative_to(downloads))
        converted = cache_root() / "models"
        for what, folder, count in (
            ("converted models", converted, pulled.folder_bytes(converted)),
            ("downloads", downloads, pulled.folder_bytes(downloads)),
            ("fetched from the hub", constants.HF_HUB_CACHE, fetched),
        ):
            typer.echo(f"{what:<22}{shown_size(count):>10}  {folder}")
