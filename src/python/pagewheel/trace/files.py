"""The files that a trace is drawn to."""

from __future__ import annotations

from pathlib import Path

from pagewheel.trace.draw import draw_layer
from pagewheel.trace.history import ScoreScale
from pagewheel.trace.page import page_of
from pagewheel.trace.record import Trace
from pagewheel.trace.summary import draw_summary


def write_pictures(trace: Trace, folder: Path) -> None:
    """summary.svg, and layer-N.svg for every layer that decided."""
    scale = ScoreScale(trace)
    (folder / "summary.svg").write_text(draw_summary(trace), encoding="utf-8")
    for layer in trace.layers:
        picture = draw_layer(trace, layer, scale)
        (folder / f"layer-{layer}.svg").write_text(picture, encoding="utf-8")


def write_page(trace: Trace, path: Path) -> None:
    """An HTML page that needs nothing else: the summary, and a slider through the decisions of a
    layer with what was held, what went, the scores and by how much keys are rotated.

    A long run's page shows a part of the decisions, so that it stays within some megabytes.
    """
    path.write_text(page_of(trace), encoding="utf-8")
