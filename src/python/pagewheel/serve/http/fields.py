"""A JSON object's fields, each taken once with its type; what nobody takes is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, overload

from pagewheel.serve.http.errors import ApiError, bad_field

T = TypeVar("T")

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

    def __init__(self, values: Mapping[str, Any], where: str = "") -> None:
        self._rest = {name: value for name, value in values.items() if value is not None}
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
        value = self.take(field, kind)
        if value is None:
            raise bad_field(self.name(field), "is required", "missing_required_parameter")
        return value

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

    def refuse_rest(self) -> None:
        """Raises ApiError for a field that was not taken."""
        for field in self._rest:
            name = self.name(field[:100])
            raise ApiError(
                400,
                f"Unrecognized request argument supplied: {name}",
                param=name,
                code="unknown_parameter",
            )


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
