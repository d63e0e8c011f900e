"""What the small programs' command lines share."""

from __future__ import annotations

import argparse
from pathlib import Path


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A parser that shows a module's docstring as it is."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )


def parser_with_model(description: str | None) -> argparse.ArgumentParser:
    """parser_of() with --model, for model_folder()."""
    parser = parser_of(description)
    parser.add_argument("--model", type=Path, help="default: the default model")
    return parser


def model_folder(model: Path | None) -> Path:
    """The converted folder of a model; without one, of the default model."""
    from pagewheel.convert import resolve_model
    from pagewheel.default_model import default_model

    return resolve_model(model or default_model())
