"""Tiny models with weights of 16 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from convert import tiny_models

import pagewheel
from pagewheel.convert import convert


def f16_folder(name: str, path: Path) -> Path:
    source = tiny_models.save(tiny_models.make(name), path / "source")
    return convert(source, path / "model", weight_format="f16", progress=False)


def operations(folder: Path) -> tuple[Any, bool]:
    """What runs where by default, and whether weights of 16 bits run in pagewheel's layers."""
    found = pagewheel._pagewheel.describe_operations(str(folder), "CPU", {})
    return found, "for weights of 16 bits in bf16" in found.linear
