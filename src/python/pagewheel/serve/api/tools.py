"""Tools of a request: functions that the model may or must call."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pagewheel.serve.http.body import Fields, fields_of, shown
from pagewheel.serve.http.errors import bad_field

NONE, AUTO, REQUIRED = "none", "auto", "required"
_MAX_TOOLS = 1024
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@dataclass(frozen=True)
class Tools:
    """They are in OpenAI's form, as chat templates take them."""

    given: list[dict[str, Any]] = field(default_factory=list)
    choice: str = AUTO
    name: str | None = None  # of the one that must be called; the choice is REQUIRED then
    is_parallel: bool = True  # several calls in one answer

    @property
    def offered(self) -> list[dict[str, Any]] | None:
        return self.given if self.given and self.choice != NONE else None

    @property
    def needs_grammar(self) -> bool:
        """Whether the answer is to be held to the tools, and not only read for calls."""
        if not self.offered:
            return False
        is_strict = any(each["function"].get("strict") for each in self.given)
        return self.choice == REQUIRED or is_strict


def take_tools(fields: Fields) -> Tools:
    tools = []
    for each in fields.take_objects("tools", _MAX_TOOLS):
        each.take_one_of("type", ("function",))
        with each.inner("function", is_required=True) as function:
            tools.append(_function(function, function.take("parameters", dict)))
        each.refuse_rest()

    def name_of(choice: Fields) -> str:
        with choice.inner("function", is_required=True) as function:
            return function.need("name", str)

    return _with_choice(fields, tools, name_of)


def take_response_tools(fields: Fields) -> Tools:
    tools = []
    for each in fields.take_objects("tools", _MAX_TOOLS):
        _check_type(each, each.take_any("type"), "function")
        tools.append(_function(each, each.take("parameters", dict)))
    return _with_choice(fields, tools, lambda choice: choice.need("name", str))


def take_message_tools(fields: Fields) -> Tools:
    tools = []
    for each in fields.take_objects("tools", _MAX_TOOLS):
        _check_type(each, each.take("type", str, "custom"), "custom")
        each.take("cache_control", dict)  # prefixes are cached in any case
        each.take("eager_input_streaming", bool)  # arguments stream as they come in any case
        tools.append(_function(each, each.need("input_schema", dict)))
    choices = {"auto": AUTO, "any": REQUIRED, "tool": REQUIRED, "none": NONE}
    with fields.inner("tool_choice") as inner:
        if not inner.is_given:
            is_parallel = fields.take("parallel_tool_calls", bool, True)
            return _checked_choice(fields, Tools(tools, is_parallel=is_parallel))
        kind = inner.take_one_of("type", tuple(choices))
        name = inner.need("name", str) if kind == "tool" else None
        is_parallel = not inner.take("disable_parallel_tool_use", bool, False)
    return _checked_choice(fields, Tools(tools, choices[kind], name, is_parallel))


def _check_type(fields: Fields, kind: Any, allowed: str) -> None:
    if kind != allowed:
        message = f"is {shown(kind)}; allowed: {allowed!r}"
        raise bad_field(fields.name("type"), message, "unsupported_value")


def _function(fields: Fields, parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Gives it in OpenAI's form."""
    name = fields.need("name", str)
    if not _NAME.fullmatch(name):
        raise bad_field(
            fields.name("name"),
            f"is {shown(name)}; allowed: up to 128 letters, digits and any of _.-",
        )
    function: dict[str, Any] = {"name": name}
    description = fields.take("description", str)
    if description is not None:
        function["description"] = description
    if parameters is not None:
        function["parameters"] = parameters
    if fields.take("strict", bool, False):
        function["strict"] = True
    fields.refuse_rest()
    return {"type": "function", "function": function}


def _with_choice(
    fields: Fields, tools: list[dict[str, Any]], name_of: Callable[[Fields], str]
) -> Tools:
    """Takes `tool_choice`, in which `name_of` takes a function's name."""
    choice, name = fields.take_any("tool_choice"), None
    if isinstance(choice, dict):
        inner = fields_of(fields.name("tool_choice"), choice)
        inner.take_one_of("type", ("function",))
        choice, name = REQUIRED, name_of(inner)
        inner.refuse_rest()
    elif choice not in (None, NONE, AUTO, REQUIRED):
        raise bad_field(
            fields.name("tool_choice"),
            f"is {shown(choice)}; allowed: 'none', 'auto', 'required', and a function",
        )
    is_parallel = fields.take("parallel_tool_calls", bool, True)
    return _checked_choice(fields, Tools(tools, choice or AUTO, name, is_parallel))


def _checked_choice(fields: Fields, tools: Tools) -> Tools:
    names = [each["function"]["name"] for each in tools.given]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise bad_field(fields.name(f"tools[{number}]"), f"has the name {name!r} once more")
    field_name = fields.name("tool_choice")
    if tools.choice == REQUIRED and not tools.given:
        raise bad_field(field_name, "needs tools")
    if tools.name is not None and tools.name not in names:
        raise bad_field(field_name, f"names {shown(tools.name)}, which is not among the tools")
    return tools
