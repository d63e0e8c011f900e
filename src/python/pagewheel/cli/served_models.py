"""The models that `pagewheel serve` was given, their other names and their scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pagewheel.cli.eviction import eviction_arguments
from pagewheel.cli.options import parse_properties
from pagewheel.cli.serve_options import ModelOptions

if TYPE_CHECKING:
    from pagewheel.serve.settings import ModelSettings

_DEFAULT_NAME = "SmolLM2-135M-Instruct"


def served_models(given: Sequence[str], options: ModelOptions) -> tuple[ModelSettings, ...]:
    """Each with its name. Raises typer.BadParameter."""
    from pagewheel.serve.settings import ModelSettings

    properties = parse_properties(options.properties or [])
    scheduler = _scheduler(options.scheduler or [], options.cache_size, options.max_queue)
    eviction = eviction_arguments(options.eviction)
    pinned = options.pinned or []
    paths = dict(map(_named, given)) if given else {_DEFAULT_NAME: None}
    if given and len(paths) < len(given):
        raise typer.BadParameter("two models have the same name: give NAME=PATH")
    for name in pinned:
        if name not in paths:
            raise typer.BadParameter(
                f"there is no model {name!r}; known: {', '.join(paths)}", param_hint="--pin"
            )
    is_single = len(paths) == 1 and not pinned
    keep = paths if is_single and options.idle_unload is None else pinned
    return tuple(
        ModelSettings(
            name,
            path,
            options.device,
            properties,
            scheduler,
            eviction,
            is_pinned=name in keep,
            is_first=is_single,
        )
        for name, path in paths.items()
    )


def _named(model: str) -> tuple[str, Path | None]:
    """Of NAME=PATH, or of a path, whose last part without .gguf is the name."""
    name, equals, path = model.partition("=")
    if equals and name and path and not Path(model).exists():
        return name, Path(path)
    found = Path(model)
    return found.name.removesuffix(".gguf") or found.resolve().name, found


def served_aliases(items: Sequence[str], models: Sequence[ModelSettings]) -> dict[str, str]:
    """From "ALIAS=NAME". Raises typer.BadParameter."""
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
