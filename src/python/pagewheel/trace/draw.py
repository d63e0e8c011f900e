"""A layer of a trace as an SVG picture, and the parts that other pictures share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pagewheel.trace import history
from pagewheel.trace.history import Cells, Floats, ScoreScale
from pagewheel.trace.record import Trace
from pagewheel.trace.svg import (
    EVICTED,
    HELD_GENERATED,
    HELD_PROMPT,
    INK,
    MUTED,
    PAPER,
    SCORES,
    Axes,
    Figure,
    Pixels,
    rgb,
    whole_ticks,
)

POSITION, COMPUTED = "position in the text, tokens", "tokens computed"
SCORE = "score: attention received"
HELD_LEGEND = (
    (HELD_PROMPT, "held, of the prompt"),
    (HELD_GENERATED, "held, generated"),
    (EVICTED, "evicted"),
    (PAPER, "not computed yet"),
)

WIDTH, LEFT, PLOT = 980, 70, 740  # of a figure, of its margin, of a wide frame
LEGEND = LEFT + PLOT + 18
ROWS, COLUMNS = 260, 740  # the most cells of a picture, whatever the length of the run


def title_of(trace: Trace) -> str:
    """Model, policy and budget in a line."""
    setup = trace.setup
    unit = "single tokens" if setup.unit_size == 1 else f"blocks of {setup.unit_size}"
    rotation = "rotation" if setup.rotation else "no rotation"
    return (
        f"{setup.model} · {setup.policy}, {unit} · budget {setup.max_cache_size} tokens, "
        f"{setup.start_size} first and {setup.recent_size} last stay · {rotation}"
    )


def colours_of(cells: Cells) -> Pixels:
    """u8 [rows, columns, 3]; a cell that holds several kinds of tokens mixes their colours."""
    kinds = (
        (cells.held_prompt, HELD_PROMPT),
        (cells.held_generated, HELD_GENERATED),
        (cells.evicted, EVICTED),
    )
    rest = 1 - cells.held_prompt - cells.held_generated - cells.evicted
    mixed = rest[..., None] * np.array(rgb(PAPER))
    for share, colour in kinds:
        mixed += share[..., None] * np.array(rgb(colour))
    return mixed.clip(0, 255).round().astype(np.uint8)


def ramp(places: Floats) -> NDArray[np.float64]:
    """Colours f64 [..., 3] of places from 0 to 1 on the score scale."""
    anchors = np.array([rgb(colour) for colour in SCORES], np.float64)
    at = np.linspace(0, 1, len(anchors))
    return np.stack([np.interp(places, at, anchors[:, i]) for i in range(3)], axis=-1)


def score_colours(scores: Floats, evicted: Floats, scale: ScoreScale) -> Pixels:
    """u8 [rows, columns, 3]: the score where there is one, else the share that is evicted."""
    nothing = np.zeros_like(evicted)
    pixels = colours_of(Cells(nothing, nothing, evicted))
    known = ~np.isnan(scores)
    pixels[known] = ramp(scale.place(scores[known])).round()
    return pixels


def draw_layer(trace: Trace, layer: int, scale: ScoreScale) -> str:
    """An SVG of one layer: what it holds and how high that scores, by position and time."""
    top, height, gap = 80, 300, 80
    panels = 1 if scale.empty else 2
    figure = Figure(WIDTH, top + panels * height + (panels - 1) * gap + 45)
    figure.text(LEFT, 24, f"Layer {layer}, decisions: {len(trace.of_layer(layer))}", size=16)
    figure.text(LEFT, 43, title_of(trace), colour=MUTED)
    rows, begins = history.times(trace, ROWS), history.columns_of(trace, COLUMNS)
    cells = history.cells(trace, history.dropped_at(trace, layer), rows, begins)
    axes = _time_axes(figure, trace, top, height)
    axes.title("What the cache holds")
    fill(axes, trace, colours_of(cells))
    figure.swatches(LEGEND, top + 4, HELD_LEGEND)
    prompt_legend(figure, top + 4 + 19 * len(HELD_LEGEND))
    if not scale.empty:
        top += height + gap
        axes = _time_axes(figure, trace, top, height)
        axes.title("Scores at the latest decision, those included that it evicts")
        scores = history.mean_scores(trace, layer, rows, begins)
        fill(axes, trace, score_colours(scores, cells.evicted, scale))
        _score_bar(figure, scale, LEGEND, top + 4, 150)
        figure.swatches(LEGEND, top + 176, [(EVICTED, "evicted before"), (PAPER, "no score yet")])
    return figure.render(f"Layer {layer}, {title_of(trace)}")


def _time_axes(figure: Figure, trace: Trace, top: float, height: float) -> Axes:
    end = history.tokens_computed(trace)
    axes = Axes(figure, (LEFT, top, PLOT, height), (0, end), (0, end), down=True)
    axes.x_axis(whole_ticks(0, end, 10), POSITION)
    axes.y_axis(whole_ticks(0, end, 8), f"{COMPUTED} (time)")
    return axes


def fill(axes: Axes, trace: Trace, pixels: Pixels) -> None:
    """The picture in the frame, and where the prompt ends."""
    left, top, width, height = axes.box
    axes.figure.image(left, top, width, height, pixels)
    end = axes.x(min(len(trace.prompt), history.tokens_computed(trace)))
    axes.figure.line([(end, top), (end, top + height)], INK, dash="4 3")
    axes.frame()


def prompt_legend(figure: Figure, y: float) -> None:
    """The dashed line of fill()."""
    figure.line([(LEGEND + 6.5, y), (LEGEND + 6.5, y + 14)], INK, dash="4 3")
    figure.text(LEGEND + 19, y + 11, "end of the prompt", size=11)


def _score_bar(figure: Figure, scale: ScoreScale, x: float, y: float, height: float) -> None:
    """What the shades of the scores mean."""
    figure.text(x, y + 8, SCORE, size=11)
    frame = (x + 48, y + 20, 14, height - 20)
    axes = Axes(figure, frame, (0, 1), (scale.low, scale.high), log_y=True)
    figure.image(*frame, ramp(np.linspace(1, 0, 64))[:, None].round().astype(np.uint8))
    names = dict(scale.ticks())
    axes.y_axis(list(names), "", names.__getitem__)
    axes.frame()
