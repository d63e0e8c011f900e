"""How every chart here looks: the colours and the type of `pagewheel trace`, in matplotlib."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cycler import cycler
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pagewheel.trace.svg import (
    BLUE,
    BROWN,
    GOLD,
    GREEN,
    GREY,
    GRID,
    INK,
    MUTED,
    ORANGE,
    PAPER,
    PINK,
    PURPLE,
    RED,
    TEAL,
)

ENGINES = {"pagewheel": BLUE, "openvino-genai": ORANGE, "llama.cpp": GREEN}
OTHERS = (PURPLE, RED, TEAL, GREY, GOLD, PINK, BROWN)

_STYLE: dict[str, Any] = {
    "figure.facecolor": PAPER,
    "font.sans-serif": ["DejaVu Sans"],  # matplotlib brings it
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "figure.titlesize": 11,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=[BLUE, GREEN, *OTHERS]),
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.handlelength": 3,
    "savefig.dpi": 150,
}


@contextmanager
def chart(path: Path, width: float, height: float, title: str) -> Iterator[Figure]:
    """A figure of these inches to draw on; written to `path`, a PNG, at the end of the block."""
    with rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(title)
        yield figure
        figure.savefig(path, format="png")


def legend_below(figure: Figure, handles: Sequence[Artist], labels: Sequence[str]) -> None:
    """One legend for all panels, in as many columns as fit."""
    columns = max(1, min(len(labels), int(figure.get_figwidth() // 2.6)))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)
