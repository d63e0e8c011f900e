"""Typed access to a GGUF file's keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ConversionError


class Metadata:
    """The keys of the file at `path`; every error names the file and the key."""

    def __init__(self, values: Mapping[str, Any], path: Path) -> None:
        self.values = values
        self.path = path

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """The key's value, or `default` where the key is missing."""
        value = self.values.get(key)
        if value is None:
            return default
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            names = " or ".join(each.__name__ for each in kinds)
            raise ConversionError(f"{self.path}: {key} must be {names}, got {value!r:.80}")
        return value

    def require(self, key: str, kind: type | tuple[type, ...]) -> Any:
        value = self.get(key, kind)
        if value is None:
            raise ConversionError(f"{self.path}: the key {key} is missing")
        return value

    def uniform(self, key: str, layers: int, default: int | None = None) -> int:
        """An integer that some files give once and others once per layer."""
        value = self.get(key, (int, list), default)
        if value is None:
            raise ConversionError(f"{self.path}: the key {key} is missing")
        if isinstance(value, list):
            if len(value) != layers or len(set(value)) != 1 or not isinstance(value[0], int):
                raise ConversionError(
                    f"{self.path}: {key} differs between layers, not supported: {value!r:.80}"
                )
            return int(value[0])
        return int(value)

    def number(self, key: str, default: float) -> float:
        """A finite number; `default` where the key is missing."""
        value = float(self.get(key, (float, int), default))
        if not abs(value) < float("inf"):
            raise ConversionError(f"{self.path}: {key} must be finite, got {value}")
        return value
