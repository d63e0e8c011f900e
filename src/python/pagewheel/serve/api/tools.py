"""Tools of a request: functions that the model may or must call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pagewheel.serve.http.body import Fields, checked, shown
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
    for _, each in _each_tool(fields):
        each.take_one_of("type", ("function",))
        with each.inner("function", is_required=True) as function:
            tools.append(_function(function, function.take("parameters", dict)))
        each.refuse_rest()
    value = fields.take_any("tool_choice")
    if isinstance(value, dict):
        outer = Fields(value, fields.name("tool_choice."))
        outer.take_one_of("type", ("function",))
        inner = Fields(outer.need("function", dict), fields.name("tool_choice.function."))
        outer.refuse_rest()
        return _chosen(fields, tools, REQUIRED, _only_name(inner))
    return _chosen(fields, tools, _simple_choice(fields, value), None)


def take_response_tools(fields: Fields) -> Tools:
    tools = []
    for where, each in _each_tool(fields):
        kind = each.take_any("type")
        if kind != "function":
            raise bad_field(
                f"{where}.type", f"is {shown(kind)}; allowed: 'function'", "unsupported_value"
            )
        tools.append(_function(each, each.take("parameters", dict)))
    value = fields.take_any("tool_choice")
    if isinstance(value, dict):
        inner = Fields(value, fields.name("tool_choice."))
        inner.take_one_of("type", ("function",))
        return _chosen(fields, tools, REQUIRED, _only_name(inner))
    return _chosen(fields, tools, _simple_choice(fields, value), None)


def take_message_tools(fields: Fields) -> Tools:
    tools = []
    for where, each in _each_tool(fields):
        kind = each.take("type", str, "custom")
        if kind != "custom":
            raise bad_field(
                f"{where}.type", f"is {shown(kind)}; allowed: 'custom'", "unsupported_value"
            )
        each.take("cache_control", dict)  # prefixes are cached in any case
        each.take("eager_input_streaming", bool)  # arguments stream as they come in any case
        tools.append(_function(each, each.need("input_schema", dict)))
    choices = {"auto": AUTO, "any": REQUIRED, "tool": REQUIRED, "none": NONE}
    value = fields.take("tool_choice", dict)
    if value is None:
        return _chosen(fields, tools, AUTO, None)
    inner = Fields(value, fields.name("tool_choice."))
    kind = inner.take_one_of("type", tuple(choices))
    name = inner.need("name", str) if kind == "tool" else None
    is_parallel = not inner.take("disable_parallel_tool_use", bool, False)
    inner.refuse_rest()
    return _checked_choice(fields, Tools(tools, choices[kind], name, is_parallel))


def _each_tool(fields: Fields) -> list[tuple[str, Fields]]:
    values = fields.take("tools", list) or []
    if len(values) > _MAX_TOOLS:
        raise bad_field(fields.name("tools"), f"has {len(values)} tools; allowed: {_MAX_TOOLS}")
    named = [(fields.name(f"tools[{number}]"), each) for number, each in enumerate(values)]
    return [(where, Fields(checked(where, each, dict), where + ".")) for where, each in named]


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


def _only_name(fields: Fields) -> str:
    name = fields.need("name", str)
    fields.refuse_rest()
    return name


def _simple_choice(fields: Fields, value: Any) -> str:
    if value is None:
        return AUTO
    if value not in (NONE, AUTO, REQUIRED):
        raise bad_field(
            fields.name("tool_choice"),
            f"is {shown(value)}; allowed: 'none', 'auto', 'required', and a function",
        )
    return str(value)


def _chosen(fields: Fields, tools: list[dict[str, Any]], choice: str, name: str | None) -> Tools:
    is_parallel = fields.take("parallel_tool_calls", bool, True)
    return _checked_choice(fields, Tools(tools, choice, name, is_parallel))


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
