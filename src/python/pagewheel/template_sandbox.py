"""A Jinja environment for templates of strangers: no way out, and an end in sight.

Jinja's sandbox keeps a template from attributes that reach into Python and from changing
what it is given. It lets one loop for ever or ask for a string of a terabyte; here every
iteration and call looks at a deadline, and what would be too large is refused before it is
made.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, cast

from jinja2 import TemplateError, nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

# Characters of any string a template makes, items of any list.
MAX_SIZE = 16 << 20
# Bits of any number.
_MAX_BITS = 4096
# Widths of more digits than any sensible one, or that are arguments themselves.
_WIDE_PERCENT = re.compile(r"%(?:\([^)]*\))?[^a-zA-Z%]*(?:\d{6,}|\*)")
_WIDE_BRACES = re.compile(r"\{[^{}]*(?::[^{}]*\d{6,}|\{)")

_deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Templates rendered inside raise TemplateError after so long."""
    token = _deadline.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


def _tick() -> None:
    deadline = _deadline.get()
    if deadline is not None and time.monotonic() > deadline:
        raise TemplateError("the template takes too long")


def _refuse_above(size: int) -> None:
    if size > MAX_SIZE:
        raise TemplateError(f"the template makes something of more than {MAX_SIZE} characters")


def _bounded(iterable: Iterable[Any]) -> Iterator[Any]:
    """A loop's items."""
    for item in iterable:
        _tick()
        yield item


def _joined(parts: Iterable[Any]) -> str:
    """What a block, a macro or `~` puts together."""
    texts, size = [], 0
    for part in parts:
        text = part if isinstance(part, str) else str(part)
        size += len(text)
        _refuse_above(size)
        texts.append(text)
    return "".join(texts)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (str, bytes, list, tuple)) else 0


# Methods and filters with an argument that is a width or a count.
_WITH_WIDTH = frozenset(
    {"center", "ljust", "rjust", "zfill", "expandtabs", "to_bytes", "indent", "wordwrap"}
    | {"batch", "slice", "tojson"}
)


def _check_arguments(name: str, subject: Any, arguments: tuple[Any, ...]) -> None:
    """`subject` is what a method or a filter called `name` works on."""
    _tick()
    if name in _WITH_WIDTH:
        for argument in arguments:
            if isinstance(argument, int):
                _refuse_above(abs(argument))
    elif name == "replace" and isinstance(subject, str) and len(arguments) >= 2:
        old, new = str(arguments[0]), str(arguments[1])
        _refuse_above(len(subject) + subject.count(old) * len(new))
    elif name == "join":
        _check_join(subject, arguments)
    elif name in ("format", "format_map"):
        _check_format(_WIDE_BRACES, str(subject).replace("{{", "").replace("}}", ""), arguments)


def _check_join(subject: Any, arguments: tuple[Any, ...]) -> None:
    """As a method, `subject` stands between the items; as a filter, it is the items."""
    between, items = "", subject
    if arguments:
        between, items = arguments[0], subject
        if isinstance(subject, str):
            between, items = subject, arguments[0]
    if isinstance(items, (list, tuple)):
        _refuse_above(sum(map(_size, items)) + len(items) * _size(between))


def _check_format(wide: re.Pattern[str], text: str, arguments: tuple[Any, ...]) -> None:
    if wide.search(text):
        raise TemplateError("a format string asks for a width that is too large")
    _refuse_above(len(text) + sum(map(_size, arguments)))


def _checked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose arguments are looked at first."""
    # Where a filter takes the environment or context first, its subject comes second.
    first = 1 if getattr(function, "jinja_pass_arg", None) is not None else 0

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if len(args) > first:
            arguments = (*args[first + 1 :], *kwargs.values())
            if name == "format":  # the filter is the operator %, not str.format
                _check_format(_WIDE_PERCENT, str(args[first]), arguments)
            else:
                _check_arguments(name, args[first], arguments)
        return function(*args, **kwargs)

    return checked


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox with a limit on time (`time_limit`) and sizes (`MAX_SIZE`)."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})
    concat = staticmethod(_joined)

    def __init__(self, filters: Mapping[str, Callable[..., Any]], **options: Any) -> None:
        super().__init__(**options)
        self.globals.pop("lipsum")
        self.filters.update(filters)
        self.filters = {name: _checked(name, each) for name, each in self.filters.items()}
        self.filters["_bounded"] = _bounded
        self.filters["_joined"] = _joined

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in list(tree.find_all(nodes.For)):
            loop.iter = self._filtered(loop.iter, "_bounded")
        _replace_concatenations(tree, self)
        return tree

    def _filtered(self, node: nodes.Node, name: str) -> nodes.Filter:
        filtered = nodes.Filter(
            cast(nodes.Expr, node), name, [], [], None, None, lineno=node.lineno
        )
        filtered.set_environment(self)
        return filtered

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _tick()
        if operator == "+":
            _refuse_above(_size(left) + _size(right))
        elif operator == "*":
            for sequence, count in ((left, right), (right, left)):
                if isinstance(count, int):
                    _refuse_above(_size(sequence) * max(count, 0))
            if isinstance(left, int) and isinstance(right, int):
                _refuse_bits(left.bit_length() + right.bit_length())
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            _refuse_bits(left.bit_length() * abs(right))
        elif operator == "%" and isinstance(left, str):
            arguments = right if isinstance(right, tuple) else (right,)
            _check_format(_WIDE_PERCENT, left, arguments)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        method = getattr(__obj, "__wrapped__", __obj)  # the sandbox wraps str.format
        subject = getattr(method, "__self__", None)
        if isinstance(subject, (str, bytes, int)):
            _check_arguments(method.__name__, subject, (*args, *kwargs.values()))
        else:
            _tick()
        return super().call(__context, __obj, *args, **kwargs)


def _refuse_bits(bits: int) -> None:
    if bits > _MAX_BITS:
        raise TemplateError(f"the template computes a number of more than {_MAX_BITS} bits")


def _replace_concatenations(tree: nodes.Node, environment: BoundedEnvironment) -> None:
    """`a ~ b` becomes `[a, b] | _joined`, wherever in the tree it is."""
    for field, value in list(tree.iter_fields()):
        if isinstance(value, list):
            value[:] = [_without_concatenations(each, environment) for each in value]
        elif isinstance(value, nodes.Node):
            setattr(tree, field, _without_concatenations(value, environment))


def _without_concatenations(value: Any, environment: BoundedEnvironment) -> Any:
    if not isinstance(value, nodes.Node):
        return value
    _replace_concatenations(value, environment)
    if not isinstance(value, nodes.Concat):
        return value
    parts = nodes.List(value.nodes, lineno=value.lineno)
    parts.set_environment(environment)
    return environment._filtered(parts, "_joined")
