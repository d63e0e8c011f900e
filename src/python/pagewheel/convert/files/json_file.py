"""JSON of unknown origin, with errors that say where it is from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import ConversionError

# As the C++ core's: what reads or writes deeper values calls itself for each level.
_MAX_LEVELS = 100


def parse_json_object(text: str, where: str) -> dict[str, Any]:
    """Raises ConversionError for what is no JSON, no object, too deep, or no Unicode."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise _too_deep(where) from None
    except ValueError as error:
        raise ConversionError(f"{where} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConversionError(f"{where} must hold an object, not {value!r:.40}")
    level: list[Any] = [value]
    for _ in range(_MAX_LEVELS):
        level = [inner for outer in level for inner in _parts(outer)]
        if not level:
            break
    else:
        raise _too_deep(where)
    if "\\ud" in text.lower():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ConversionError(f"{where} has half a character: {error}") from None
    return value


def _parts(value: Any) -> list[Any]:
    """The arrays and objects in an array or object."""
    values = value.values() if isinstance(value, dict) else value
    return [each for each in values if isinstance(each, (dict, list))]


def _too_deep(where: str) -> ConversionError:
    return ConversionError(
        f"{where} has more than {_MAX_LEVELS} arrays and objects in each other; "
        f"allowed: {_MAX_LEVELS}"
    )


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in the file. Raises ConversionError, or OSError where it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConversionError(f"{path} is not UTF-8: {error}") from None
    return parse_json_object(text, str(path))
