"""The library of the installed package llguidance, which the core loads for grammars."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def find_library() -> str | None:
    """Its path; None where the package is not installed."""
    package = find_spec("llguidance")
    if package is None or package.origin is None:
        return None
    return next((str(path) for path in sorted(Path(package.origin).parent.glob("_lib*.so"))), None)
