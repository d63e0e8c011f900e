"""Colours and type of every picture: traces here, and the charts of benchmarks/."""

from __future__ import annotations

FONT = ("system-ui", "DejaVu Sans", "sans-serif")
INK, MUTED, GRID, PAPER = "#222222", "#6b7280", "#e3e5e8", "#ffffff"

BLUE, ORANGE, GREEN = "#2f6db3", "#e08a2e", "#5a9e5d"
PURPLE, RED, TEAL, GREY = "#8d6cab", "#b5545c", "#4aa5a8", "#7d7d7d"
GOLD, PINK, BROWN = "#b8960c", "#d16ba5", "#7a5a3a"

HELD_PROMPT, HELD_GENERATED, EVICTED = "#1b3e68", BLUE, "#f3dcc2"
SCORES = ("#d6e6f4", "#8fbbdf", BLUE, "#0d2544")  # from low to high


def rgb(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of "#rrggbb"."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
