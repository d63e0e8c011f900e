"""Cache eviction, as it is given on the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import pagewheel

_SIZES = {"start": "start_size", "recent": "recent_size", "max": "max_cache_size"}
_NAMES = ("policy", "granularity")
_MAX_SIZE = 2**31 - 1
_FLAGS = {"rotate": "apply_rotation", "prefill": "evict_during_prefill"}
_EXPECTED = "expected e.g. start=32,recent=128,max=672,rotate,prefill,policy=NAME,granularity=KIND"
_OPTION = "--eviction"

Eviction = Annotated[
    str | None,
    typer.Option(
        _OPTION,
        metavar="SIZES",
        help="Keep each sequence's cache within max tokens, its start and recent ones among them: "
        "start=32,recent=128,max=672; ,rotate keeps positions contiguous, "
        ",prefill evicts from prompts while they are computed: they may exceed the context; "
        ",policy=NAME and ,granularity=KIND choose what goes. On CPU.",
    ),
]


def eviction_arguments(text: str | None) -> dict[str, Any]:
    """Those of CacheEvictionConfig, checked; nothing without a text. Raises typer.BadParameter."""
    if text is None:
        return {}
    found: dict[str, Any] = {}
    for item in text.split(","):
        name, value = _parsed(item)
        if name in found:
            raise _wrong(f"{item.partition('=')[0]!r} is there twice")
        found[name] = value
    missing = [short for short, name in _SIZES.items() if name not in found]
    if missing:
        raise _wrong(f"{', '.join(missing)} missing; {_EXPECTED}")
    try:
        scheduler_with(found).validate()
    except ValueError as error:
        raise _wrong(str(error)) from None
    return found


def _parsed(item: str) -> tuple[str, Any]:
    name, equals, value = item.partition("=")
    if item in _FLAGS:
        return _FLAGS[item], True
    if name in _NAMES and value:
        return name, value
    if name in _SIZES and equals:
        if not re.fullmatch(r"[0-9]{1,10}", value) or int(value) > _MAX_SIZE:
            raise _wrong(f"{name} is {value[:40]!r}; allowed: 0 to {_MAX_SIZE} tokens")
        return _SIZES[name], int(value)
    raise _wrong(f"{item[:40]!r}: {_EXPECTED}")


def _wrong(message: str) -> typer.BadParameter:
    return typer.BadParameter(message, param_hint=_OPTION)


def scheduler_with(eviction: Mapping[str, Any]) -> pagewheel.SchedulerConfig:
    """A pipeline's default, with eviction as its arguments say. Raises ValueError."""
    import pagewheel

    scheduler = pagewheel.SchedulerConfig()
    scheduler.enable_prefix_caching = True
    scheduler.cache_eviction_config = pagewheel.CacheEvictionConfig(**eviction)
    scheduler.use_cache_eviction = True
    return scheduler
