"""What is public of a module with openvino_genai's API, in plain values that can be compared."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import MemberDescriptorType, ModuleType
from typing import Any

import pagewheel.openvino_genai

# Of text generation and tokenizers.
NAMES = tuple(pagewheel.openvino_genai.__all__)
_SHOWN_DUNDERS = ("__init__", "__call__", "__len__", "__bool__", "__str__", "__add__", "__iadd__")


def find(module: ModuleType, name: str) -> Any:
    """openvino_genai leaves some of its classes in its inner module."""
    inner = getattr(module, "py_openvino_genai", None)
    return getattr(module, name, getattr(inner, name, None))


def describe(module: ModuleType) -> dict[str, Any]:
    """By public name: an enum's values, a function's signatures, or a class's members."""
    found = {name: find(module, name) for name in NAMES}
    return {name: _described(value) for name, value in found.items() if value is not None}


def _described(value: Any) -> dict[str, Any]:
    if hasattr(value, "feature"):  # of pagewheel.not_yet
        return {"missing": value.feature}
    if not isinstance(value, type):
        return {"signatures": list(_signatures(value))}
    if hasattr(value, "__members__"):
        return {"values": {name: int(each) for name, each in value.__members__.items()}}
    members = {
        name: _member(value, name)
        for name in dir(value)
        if not name.startswith("_") or name in _SHOWN_DUNDERS
        if getattr(value, name) is not getattr(object, name, None)
    }
    return {"members": members, "defaults": _defaults(value)}


def _member(kind: type, name: str) -> dict[str, Any]:
    member = getattr(kind, name)
    if isinstance(member, MemberDescriptorType):  # of a dataclass with slots
        return {"writable": True}
    if isinstance(member, property):
        return {"writable": member.fset is not None}
    # A method that only passes on what it gets says nothing of it.
    found = (sorted(set(_signatures(getattr(base, name, None)))) for base in kind.__mro__)
    return {"signatures": next(filter(None, found), [])}


def _defaults(kind: type) -> dict[str, str]:
    try:
        value = kind()
    except (TypeError, RuntimeError):
        return {}
    fields = (property, MemberDescriptorType)
    names = [name for name in dir(kind) if isinstance(getattr(kind, name), fields)]
    plain = (bool, int, float, str, set, list, type(None))
    defaults = {name: getattr(value, name) for name in names}
    return {
        name: _enum_text(default) if hasattr(type(default), "__members__") else _text(default)
        for name, default in defaults.items()
        if isinstance(default, plain) or hasattr(type(default), "__members__")
    }


def _text(value: Any) -> str:
    """Of a float with the digits that four bytes have."""
    return repr(float(f"{value:.6g}")) if isinstance(value, float) else repr(value)


def _enum_text(value: Any) -> str:
    return f"{type(value).__name__}.{value.name}"


def _signatures(function: Any) -> Iterator[str]:
    """Parameters without their types, as "prompt, max_length=None": a line for each overload."""
    if inspect.isfunction(function):
        written = inspect.signature(function).parameters.values()
        plain = ", ".join(str(each.replace(annotation=each.empty)) for each in written)
        if plain != "self, *args, **kwargs":
            yield plain
        return
    text = getattr(function, "__doc__", None) or ""
    name = re.escape(getattr(function, "__name__", ""))
    for line in text.splitlines():
        found = re.match(rf"(?:\d+\. )?{name}\((.*)\)(?: -> .*)?$", line.strip())
        if found and found[1] != "*args, **kwargs":
            yield ", ".join(_parameter(each) for each in _split(found[1]) if each != "self")


def _split(text: str) -> Iterator[str]:
    """At commas outside of brackets and quotes."""
    depth, begin, quote = 0, 0, ""
    for i, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "([{<":
            depth += 1
        elif character in ")]}>" and text[i - 1] != "-":
            depth -= 1
        elif character == "," and depth == 0:
            yield text[begin:i].strip()
            begin = i + 1
    if text[begin:].strip():
        yield text[begin:].strip()


def _parameter(text: str) -> str:
    """The name and the default."""
    name = re.match(r"\**\w+", text)
    if name is None:
        return text
    if name[0] == "self":
        return "self"
    default = re.search(r" = (.*)$", text)
    if default is None:
        return name[0]
    enum = re.match(r"<(\w+\.\w+): \d+>$", default[1])
    return f"{name[0]}={enum[1] if enum else default[1]}"
