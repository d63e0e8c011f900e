"""Kinds of options: fields of a dataclass that commands and other programs read from texts.

`pagewheel.cli` and `pagewheel.ray_serve` read the same options, so they stand outside of both.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import Field, field, fields, is_dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, get_type_hints

import typer

from pagewheel.errors import InvalidArgumentError

if TYPE_CHECKING:
    import pagewheel

Property = bool | int | float | str

_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def option(default: Any, help: str, *names: str, **settings: Any) -> Any:
    """A field of an option group; `settings` are those of typer.Option.

    A default that is parsed is written as in a command line.
    """
    info = typer.Option(default, *names, help=help, **settings)
    parser = settings.get("parser")
    value = default if parser is None or default is None else parser(default)
    return field(default=value, metadata={"option": info})


def time_option(default: str | None, help: str, *names: str) -> Any:
    """A field that holds seconds and is written 30s or 10m."""
    return option(default, help, *names, metavar="TIME", parser=seconds)


def size_option(default: str, help: str, *names: str) -> Any:
    """A field that holds bytes and is written 512M or 8G."""
    return option(default, help, *names, metavar="SIZE", parser=size)


def properties_option(
    help: str = "An OpenVINO property, e.g. INFERENCE_NUM_THREADS=4; repeat it.",
) -> Any:
    """A field of texts for parse_properties()."""
    return option(None, help, "--property", "-p", metavar="KEY=VALUE")


def seconds(text: str) -> float:
    """Raises typer.BadParameter."""
    return _scaled(text, _SECONDS, "90, 500ms, 30s, 10m or 2h")


def size(text: str) -> int:
    """Gives bytes. Raises typer.BadParameter."""
    return int(_scaled(text, _BYTES, "4096, 512M or 8G"))


def _scaled(text: str, units: Mapping[str, float], examples: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]*)", text, re.ASCII)
    if match is None or match[2] not in units:
        raise typer.BadParameter(f"expected e.g. {examples}, got {text!r}")
    return float(match[1]) * units[match[2]]


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Makes options of the fields that are options, of the command's arguments that have any."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, type[Any]] = {
        each.name: each.annotation
        for each in signature.parameters.values()
        if isinstance(each.annotation, type)
        and is_dataclass(each.annotation)
        and _options_of(each.annotation)
    }

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        made = {
            name: group(**{each.name: arguments.pop(each.name) for each in _options_of(group)})
            for name, group in groups.items()
        }
        command(**arguments, **made)

    options = []
    for group in groups.values():
        hints = get_type_hints(group)
        for each in _options_of(group):
            options.append(keyword_parameter(each.name, each.metadata["option"], hints[each.name]))
    return with_options(run, signature, groups, options)


def _options_of(group: type[Any]) -> list[Field[Any]]:
    return [each for each in fields(group) if "option" in each.metadata]


def keyword_parameter(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def with_options(
    run: Callable[..., None],
    signature: inspect.Signature,
    replaced: Container[str],
    options: Sequence[inspect.Parameter],
) -> Callable[..., None]:
    """Gives `run` a command's signature, with `options` in place of the arguments `replaced`."""
    own = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for each in signature.parameters.values()
        if each.name not in replaced
    ]
    parameters = [*own, *options]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def one_line(error: BaseException) -> str:
    """Gives an error's message without line breaks, or its type where it has none."""
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def wrong_usage(*options: str) -> Iterator[None]:
    """Wraps checks of values that were given: of these options, or of those the message names.

    Raises typer.BadParameter for an InvalidArgumentError.
    """
    try:
        yield
    except InvalidArgumentError as error:
        hint = " / ".join(options) or None
        raise typer.BadParameter(one_line(error), param_hint=hint) from error


def check_choice(option: str, text: str, allowed: Collection[str]) -> None:
    """Raises typer.BadParameter for what is none of the allowed texts."""
    if text not in allowed:
        raise typer.BadParameter(f"allowed: {', '.join(allowed)}, got {text!r}", param_hint=option)


def parse_properties(items: Sequence[str]) -> dict[str, Property]:
    """Parses "KEY=VALUE"; values are true, false, numbers or text. Raises typer.BadParameter."""
    properties = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not (key and equals):
            raise _wrong_property(f"expected KEY=VALUE, got {item!r}")
        properties[key] = _parse_value(value)
    return properties


def _parse_value(text: str) -> Property:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise _wrong_property(f"numbers must fit 64 bits, got {text!r:.40}")
        return value
    return text


def _wrong_property(message: str) -> typer.BadParameter:
    return typer.BadParameter(message, param_hint="'--property' / '-p'")


_EVICTION_SIZES = {"start": "start_size", "recent": "recent_size", "max": "max_cache_size"}
_EVICTION_NUMBERS = {**_EVICTION_SIZES, "delay": "decision_delay", "positions": "position_limit"}
_EVICTION_NAMES = ("policy", "granularity")
_MAX_EVICTION_SIZE = 2**31 - 1
_EVICTION_FLAGS = {"rotate": "apply_rotation", "prefill": "evict_during_prefill"}
_EXPECTED = "expected e.g. start=32,recent=128,max=672,rotate,prefill,policy=NAME,granularity=KIND"
_EVICTION = "--eviction"

_EVICTION_HELP = (
    "Keep each sequence's cache within max tokens, its start and recent ones among them: "
    "start=32,recent=128,max=672; ,rotate keeps positions in the context, "
    ",positions=N below N; "
    ",prefill evicts from prompts while they are computed: they may exceed the context; "
    ",delay=N evicts from a prompt N tokens after its end; "
    ",policy=NAME and ,granularity=KIND choose what goes. On CPU."
)


def eviction_option() -> Any:
    """--eviction as a field."""
    return option(None, _EVICTION_HELP, _EVICTION, metavar="SIZES")


def eviction_arguments(text: str | None) -> dict[str, Any]:
    """Parses arguments of CacheEvictionConfig; none without a text. Raises typer.BadParameter."""
    if text is None:
        return {}
    found: dict[str, Any] = {}
    for item in text.split(","):
        name, value = _eviction_argument(item)
        if name in found:
            raise _wrong_eviction(f"{item.partition('=')[0]!r} is there twice")
        found[name] = value
    missing = [short for short, name in _EVICTION_SIZES.items() if name not in found]
    if missing:
        raise _wrong_eviction(f"{', '.join(missing)} missing; {_EXPECTED}")
    try:
        scheduler_with(found).validate()
    except ValueError as error:
        raise _wrong_eviction(str(error)) from None
    return found


def _eviction_argument(item: str) -> tuple[str, Any]:
    name, equals, value = item.partition("=")
    if item in _EVICTION_FLAGS:
        return _EVICTION_FLAGS[item], True
    if name in _EVICTION_NAMES and value:
        return name, value
    if name in _EVICTION_NUMBERS and equals:
        if not re.fullmatch(r"[0-9]{1,10}", value) or int(value) > _MAX_EVICTION_SIZE:
            raise _wrong_eviction(
                f"{name} is {value[:40]!r}; allowed: 0 to {_MAX_EVICTION_SIZE} tokens"
            )
        return _EVICTION_NUMBERS[name], int(value)
    raise _wrong_eviction(f"{item[:40]!r}: {_EXPECTED}")


def _wrong_eviction(message: str) -> typer.BadParameter:
    return typer.BadParameter(message, param_hint=_EVICTION)


def scheduler_with(eviction: Mapping[str, Any]) -> pagewheel.SchedulerConfig:
    """Gives a pipeline's default, with eviction as its arguments say. Raises ValueError."""
    import pagewheel

    scheduler = pagewheel.SchedulerConfig()
    scheduler.enable_prefix_caching = True
    scheduler.cache_eviction_config = pagewheel.CacheEvictionConfig(**eviction)
    scheduler.use_cache_eviction = True
    return scheduler


def check_installed(what: str, extra: str, packages: Sequence[str]) -> None:
    """Raises RuntimeError, with what is missing and how to install it."""
    missing = [name for name in packages if not _is_installed(name)]
    if missing:
        raise RuntimeError(
            f"{what} needs packages that are not installed: {', '.join(missing)}. "
            f"Run: pip install 'pagewheel[{extra}]'"
        )


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # a package that it is in
        return False
