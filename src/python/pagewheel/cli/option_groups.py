"""Commands with many options: those that belong together are the fields of a dataclass."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Of each argument of a dataclass makes an option for each of its fields."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, type[Any]] = {
        each.name: each.annotation
        for each in signature.parameters.values()
        if isinstance(each.annotation, type) and is_dataclass(each.annotation)
    }

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        made = {
            name: group(**{each.name: arguments.pop(each.name) for each in fields(group)})
            for name, group in groups.items()
        }
        command(**arguments, **made)

    parameters = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for each in signature.parameters.values()
        if each.name not in groups
    ]
    for group in groups.values():
        hints = get_type_hints(group, include_extras=True)
        parameters += [
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=each.default,
                annotation=hints[each.name],
            )
            for each in fields(group)
        ]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run
