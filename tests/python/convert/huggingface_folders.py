"""Hugging Face folders of a tiny model, and changes to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def edit_json(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")


def config(**changes: Any) -> Callable[[Path], None]:
    """Changes a folder's config.json."""
    return lambda folder: edit_json(folder / "config.json", lambda c: c.update(changes))
