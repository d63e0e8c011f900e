"""Times and sizes as the command line has them: 30s, 10m, 8G."""

from __future__ import annotations

import re
from collections.abc import Mapping

import typer

_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def seconds(option: str, text: str) -> float:
    """Raises typer.BadParameter."""
    return _scaled(option, text, _SECONDS, "90, 500ms, 30s, 10m or 2h")


def size(option: str, text: str) -> int:
    """In bytes. Raises typer.BadParameter."""
    return int(_scaled(option, text, _BYTES, "4096, 512M or 8G"))


def _scaled(option: str, text: str, units: Mapping[str, float], examples: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]*)", text, re.ASCII)
    if match is None or match[2] not in units:
        raise typer.BadParameter(f"expected e.g. {examples}, got {text!r}", param_hint=option)
    return float(match[1]) * units[match[2]]
