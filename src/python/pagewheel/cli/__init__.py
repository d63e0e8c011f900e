"""The command line: `pagewheel generate|chat|convert|info|trace|serve`."""

from __future__ import annotations

from pagewheel.cli.app import main

__all__ = ["main"]
