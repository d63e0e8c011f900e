"""A request's body: read within limits of size and time, parsed as JSON that can be trusted.

Its fields are taken each once with its type; what nobody takes is refused by name.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, overload

from pagewheel.json_schema import parse_number
from pagewheel.serve.errors import unavailable
from pagewheel.serve.http.errors import ApiError, bad_field, closing
from pagewheel.serve.settings import Limits

_MAX_DEPTH = 64
_MAX_NUMBER_LENGTH = 400
_MAX_VALUES = 200_000
# Bodies of this size and more are parsed on another thread.
_LARGE = 64 << 10
# What is read and thrown away of a body that is too large: a client that is still sending does not
# look for the answer.
_MAX_DISCARDED = 64 << 20

_UNSAFE = re.compile(r"[^!-+\--~]")  # in a header's list

# It finds a half of a character in JSON's text, though perhaps beside its other half.
ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")

# Where unknown fields of the request are put instead of being refused; None: they are refused.
ignored_fields: ContextVar[list[str] | None] = ContextVar("ignored_fields", default=None)

T = TypeVar("T")
Receive = Callable[[], Awaitable[Any]]
Take = Callable[[int], bool]


class ClientGoneError(Exception):
    """The client has closed the connection: nobody reads an answer."""


async def read_both(
    headers: Mapping[str, str], receive: Receive, limits: Limits, take: Take
) -> tuple[dict[str, Any], bytes]:
    """The object in the body, and the body, for whom passes it on.

    `take` is asked before more bytes are kept, whether there is room for them.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, f"Content-Type must be application/json, got {kind[:80] or 'none'!r}")
    if headers.get("content-encoding", "identity") != "identity":
        raise ApiError(415, "Content-Encoding is not supported")
    data = await _read(receive, limits, take)
    if len(data) < _LARGE:
        return parse_object(data), data
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, parse_object, data), data


async def _read(receive: Receive, limits: Limits, take: Take) -> bytes:
    try:
        data, size = await asyncio.wait_for(
            _receive_all(receive, limits, take), limits.body_seconds
        )
    except (TimeoutError, asyncio.TimeoutError):
        message = f"the body did not arrive within {limits.body_seconds:g} seconds"
        raise closing(ApiError(408, message)) from None
    if size > limits.body_bytes:
        message = f"the body is larger than {limits.body_bytes} bytes"
        raise closing(ApiError(413, message, code="request_too_large"))
    if data is None:
        message = "the bodies of other requests leave no room"
        raise closing(unavailable(message, "too_many_bytes"))
    return data


async def _receive_all(receive: Receive, limits: Limits, take: Take) -> tuple[bytes | None, int]:
    """The body, none where there is no room, and its size: more than the limit where it is cut."""
    chunks: list[bytes] = []
    size = 0
    has_room = True
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGoneError
        chunk = message.get("body", b"")
        size += len(chunk)
        has_room = has_room and (size > limits.body_bytes or take(len(chunk)))
        if has_room and size <= limits.body_bytes:
            chunks.append(chunk)
        else:
            chunks.clear()
        if not message.get("more_body", False) or size > limits.body_bytes + _MAX_DISCARDED:
            return b"".join(chunks) if has_room else None, size


def parse_object(data: bytes) -> dict[str, Any]:
    """JSON that is UTF-8, not deep, and has no infinities or halves of characters, or ApiError."""
    _check_count(data)
    too_large: list[str] = []

    def keep(digits: str) -> _TooLarge:
        too_large.append(digits)
        return _TooLarge(digits)

    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body is not UTF-8: byte {error.start}") from None
    try:
        value = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_int=lambda digits: number(int, digits, keep),
            parse_float=lambda digits: number(float, digits, keep),
        )
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object")
    _check_depth(value)
    if has_half(text, value):
        raise ApiError(400, "the body has half of a UTF-16 surrogate pair in a string")
    if too_large:
        _let_calls_have_texts(value)
    return value


def _check_count(data: bytes) -> None:
    """Parsing holds the interpreter: what would do it for a second is refused before.

    A value is behind a comma or is the first in an object or array. Counted first without a look at
    strings, whose text may have such characters: it is fast, and no body of usual size is above it.
    """
    if _num_values(data) > _MAX_VALUES and _num_values(_without_strings(data)) > _MAX_VALUES:
        raise ApiError(400, f"the body has more than {_MAX_VALUES} values")


def _num_values(data: bytes) -> int:
    return sum(data.count(each) for each in (b",", b"[", b"{"))


def _without_strings(data: bytes) -> bytes:
    """What is between quotes left out. It works on whole pieces, in time of the length."""
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(bare.split(b'"')[::2])


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


N = TypeVar("N", int, float)


def number(kind: type[N], digits: str, otherwise: Callable[[str], Any]) -> Any:
    """What the digits stand for, or what `otherwise` makes of them where that is too large."""
    if kind is int:
        return int(digits) if len(digits) <= _MAX_NUMBER_LENGTH else otherwise(digits)
    value = parse_number(digits)
    return value if math.isfinite(value) else otherwise(digits)


def lenient_json(text: str) -> Any:
    """JSON that a model wrote, or nearly: what Python has no finite number for stays a text."""
    return json.loads(
        text,
        parse_constant=str,
        parse_int=lambda digits: number(int, digits, str),
        parse_float=lambda digits: number(float, digits, str),
    )


class _TooLarge(str):
    """A number's digits."""


def _let_calls_have_texts(value: Any) -> None:
    """A model may have written such a number in a call, which comes back: it is a text there.

    Raises ApiError for one that is elsewhere. No value is visited twice.
    """
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, _TooLarge):
            raise ApiError(400, f"the body has a number that is too large: {one[:40]}")
        if isinstance(one, dict):
            is_call = one.get("type") == "tool_use" and isinstance(one.get("input"), dict)
            if is_call:
                replace_large_numbers(one["input"])
            waiting.extend(each for key, each in one.items() if not (is_call and key == "input"))
        elif isinstance(one, list):
            waiting.extend(one)


def replace_large_numbers(arguments: dict[str, Any]) -> None:
    """Puts texts of their digits in place of numbers that no chat template would get unchanged."""
    waiting: list[Any] = [arguments]
    while waiting:
        one = waiting.pop()
        for key, value in one.items() if isinstance(one, dict) else enumerate(one):
            if isinstance(value, (dict, list)):
                waiting.append(value)
            elif isinstance(value, _TooLarge) or not fits_64_bits(value):
                one[key] = str(value)


def fits_64_bits(value: Any) -> bool:
    """Whether it is anything but an integer that JSON libraries make a rounded float of."""
    return not isinstance(value, int) or -(2**63) <= value < 2**64


def _check_depth(value: Any) -> None:
    """Walks without recursion, level by level."""
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                below.extend(one.values())
            elif isinstance(one, list):
                below.extend(one)
        if not below:
            return
        level = below
    raise _too_deep()


def has_half(text: str, value: Any) -> bool:
    """Whether `value`, which is `text` as JSON, has strings that cannot be UTF-8."""
    if ESCAPED_HALF.search(text) is None:
        return False
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):  # no template could show it either
        return True
    return False


def _too_deep() -> ApiError:
    return ApiError(400, f"the body is nested deeper than {_MAX_DEPTH} levels")


_NAMES: dict[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    list: "an array",
    dict: "an object",
}


class Fields:
    """`where` comes before names in messages: "messages[0].". null is as good as absent."""

    def __init__(self, values: Mapping[str, Any] | None, where: str = "") -> None:
        self.is_given = values is not None
        self.values = values or {}
        self._rest = {name: value for name, value in self.values.items() if value is not None}
        self._where = where

    def name(self, field: str) -> str:
        """As messages have it."""
        return self._where + field

    @overload
    def take(self, field: str, kind: type[T], default: T) -> T: ...
    @overload
    def take(self, field: str, kind: type[T], default: None = None) -> T | None: ...
    def take(self, field: str, kind: type[T], default: T | None = None) -> T | None:
        """The value if it is of `kind`; integers are numbers, true and false are neither."""
        value = self._rest.pop(field, None)
        if value is None:
            return default
        return checked(self.name(field), value, kind)

    def need(self, field: str, kind: type[T]) -> T:
        """take() of a field that must be there."""
        return checked(self.name(field), self.need_any(field), kind)

    def need_any(self, field: str) -> Any:
        """take_any() of a field that must be there."""
        value = self.take_any(field)
        if value is None:
            raise bad_field(self.name(field), "is required", "missing_required_parameter")
        return value

    def take_objects(self, field: str, most: int | None = None) -> list[Fields]:
        """Those of each object of an array, which has at most so many."""
        values = self.take(field, list) or []
        if most is not None and len(values) > most:
            raise bad_field(self.name(field), f"has {len(values)} {field}; allowed: {most}")
        return [fields_of(self.name(f"{field}[{i}]"), each) for i, each in enumerate(values)]

    @contextmanager
    def inner(self, field: str, is_required: bool = False) -> Iterator[Fields]:
        """Those of an object, of which none may be left; an object that is absent has none."""
        value = self.need(field, dict) if is_required else self.take(field, dict)
        fields = Fields(value, self.name(field) + ".")
        yield fields
        fields.refuse_rest()

    def take_any(self, field: str) -> Any:
        """Whatever it is; None where it is absent."""
        return self._rest.pop(field, None)

    def take_int(self, field: str, low: int, high: int, default: int) -> int:
        """An integer within bounds."""
        value = self.take(field, int, default)
        if not low <= value <= high:
            raise bad_field(self.name(field), f"is {value}; allowed: {low} to {high}")
        return value

    def take_one_of(self, field: str, allowed: tuple[Any, ...], default: Any = None) -> Any:
        """Only these values; anything else is refused."""
        value = self._rest.pop(field, default)
        if not any(value is one or (value == one and type(value) is type(one)) for one in allowed):
            raise bad_field(self.name(field), f"is {shown(value)}; allowed: {_listed(allowed)}")
        return value

    def take_rest(self) -> dict[str, Any]:
        """All that was not taken."""
        rest, self._rest = self._rest, {}
        return rest

    def refuse_rest(self) -> None:
        """Raises ApiError for a field that was not taken, unless these are to be ignored."""
        ignored = ignored_fields.get()
        for field in self._rest:
            name = self.name(field[:100])
            if ignored is not None:
                ignored.append(_UNSAFE.sub("?", name))
                continue
            raise ApiError(
                400,
                f"Unrecognized request argument supplied: {name}",
                param=name,
                code="unknown_parameter",
            )


def fields_of(name: str, value: Any) -> Fields:
    """Those of a value that must be an object, else ApiError."""
    return Fields(checked(name, value, dict), name + ".")


def checked(name: str, value: Any, kind: type[T]) -> T:
    """The value if it is of `kind`, else ApiError."""
    wanted: Any = (int, float) if kind is float else kind
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind is not bool):
        raise bad_field(name, f"must be {_NAMES[kind]}, got {shown(value)}", "invalid_type")
    return value


def shown(value: Any) -> str:
    """A value for a message: short, and nothing of long texts."""
    for kind, name in _NAMES.items():
        if isinstance(value, kind) and kind in (list, dict):
            return name
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


def _listed(values: tuple[Any, ...]) -> str:
    return ", ".join("null" if value is None else repr(value) for value in values)
