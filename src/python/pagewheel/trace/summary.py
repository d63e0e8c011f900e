"""All layers of a trace in one SVG picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from pagewheel.trace import history
from pagewheel.trace.draw import (
    COLUMNS,
    COMPUTED,
    HELD_LEGEND,
    LEFT,
    LEGEND,
    PLOT,
    POSITION,
    SCORE,
    WIDTH,
    colours_of,
    fill,
    prompt_legend,
    title_of,
)
from pagewheel.trace.history import Ints
from pagewheel.trace.record import Trace
from pagewheel.trace.svg import BLUE, MUTED, ORANGE, Axes, Figure, short, ticks, whole_ticks


def draw_summary(trace: Trace) -> str:
    """An SVG of all layers: what is left, scores, tokens held, rotations, each layer over time."""
    survey = float(np.clip(12 * len(trace.layers), 60, 420))
    rows = -(-len(trace.layers) // _ACROSS)
    # Each part's height with its axes, and the space above it for its title.
    parts: list[tuple[float, Callable[[Figure, Trace, Ints, float], None]]] = [
        (survey + 24, partial(_draw_survivors, height=survey)),
        (160, _draw_share),
        (230, _draw_held),
        (220, _draw_by_layer),
        (rows * _PITCH_Y + 20, _draw_grid),
    ]
    top = 95.0
    figure = Figure(WIDTH, top + sum(height for height, _ in parts) if trace.layers else 120)
    figure.text(LEFT, 24, "What the cache holds, all layers", size=16)
    figure.text(LEFT, 43, title_of(trace), colour=MUTED)
    run = (
        f"{len(trace.prompt)} tokens of prompt, {len(trace.generated)} generated; "
        f"{len(trace.layers)} layers took {len(trace.decisions)} decisions"
    )
    if trace.setup.layers_without_pages:
        without = ", ".join(map(str, trace.setup.layers_without_pages))
        run += f"; nothing to evict in layers {without}, which keep states"
    figure.text(LEFT, 60, run, colour=MUTED)
    if not trace.layers:
        figure.text(LEFT, 95, "No layer had to decide: nothing was evicted.")
        return figure.render(title_of(trace))
    when = np.array([history.dropped_at(trace, layer) for layer in trace.layers])
    for height, draw in parts:
        draw(figure, trace, when, top)
        top += height
    return figure.render(f"All layers, {title_of(trace)}")


def _draw_survivors(figure: Figure, trace: Trace, when: Ints, top: float, height: float) -> None:
    """Draws what is left at the end: layers down, positions across."""
    end = history.tokens_computed(trace)
    begins, last = history.columns_of(trace, COLUMNS), np.array([end])
    rows = [colours_of(history.cells(trace, one, last, begins))[0] for one in when]
    count = len(rows)
    axes = Axes(figure, (LEFT, top, PLOT, height), (0, end), (-0.5, count - 0.5), down=True)
    axes.title("What is left at the end")
    axes.y_axis(whole_ticks(0, count - 1, 10), "layer", lambda i: str(trace.layers[int(i)]))
    fill(axes, trace, np.array(rows))
    figure.swatches(LEGEND, top + 4, HELD_LEGEND[:3])
    prompt_legend(figure, top + 4 + 19 * 3)


def _draw_share(figure: Figure, trace: Trace, when: Ints, top: float) -> None:
    """Draws, below the survivors, by how many of the layers a token is kept."""
    end = history.tokens_computed(trace)
    begins = history.columns_of(trace, COLUMNS)
    kept = np.add.reduceat((when > end).mean(0), begins) / np.diff(np.append(begins, end))
    axes = Axes(figure, (LEFT, top, PLOT, 80), (0, end), (0, 100))
    axes.y_axis([0, 50, 100], "% of layers", grid=True)
    axes.x_axis(whole_ticks(0, end, 10), POSITION)
    points = [
        (axes.x(float(token)), axes.y(100 * float(share)))
        for begin, past, share in zip(begins, np.append(begins[1:], end), kept, strict=True)
        for token in (begin, past)
    ]
    figure.line(points, BLUE, width=1.2)
    axes.frame()
    figure.swatches(LEGEND, top + 4, [(BLUE, "layers that keep it")])


def _draw_held(figure: Figure, trace: Trace, when: Ints, top: float) -> None:
    """Draws tokens in the cache over time: the layers' mean and range, and the budget."""
    end = history.tokens_computed(trace)
    now = history.times(trace, COLUMNS)
    gone = np.array([np.searchsorted(np.sort(one), now, side="right") for one in when])
    held = now - gone
    most_allowed = trace.setup.max_cache_size
    high = max(int(held.max()), most_allowed)
    axes = Axes(figure, (LEFT, top, PLOT, 150), (0, end), (0, 1.08 * high))
    axes.title("Tokens held")
    axes.y_axis(whole_ticks(0, high, 5), "tokens held", grid=True)
    axes.x_axis(whole_ticks(0, end, 10), f"{COMPUTED} (time)")
    across = [axes.x(float(one)) for one in now]
    least, most, mean = held.min(0), held.max(0), held.mean(0)
    bounds = [*zip(across, most, strict=True), *reversed(list(zip(across, least, strict=True)))]
    figure.area([(x, axes.y(float(tokens))) for x, tokens in bounds], BLUE)
    figure.line([(x, axes.y(float(t))) for x, t in zip(across, mean, strict=True)], BLUE, width=1.4)
    budget = axes.y(most_allowed)
    figure.line([(LEFT, budget), (LEFT + PLOT, budget)], ORANGE, width=1.4, dash="6 4")
    axes.frame()
    entries = [(BLUE, "mean of the layers"), ("#cbdaec", "least to most")]
    figure.swatches(LEGEND, top + 4, [*entries, (ORANGE, f"budget: {most_allowed}")])


def _draw_by_layer(figure: Figure, trace: Trace, when: Ints, top: float) -> None:
    """Draws two charts side by side with a bar for each layer."""
    del when
    scores = [history.layer_score(trace, layer) for layer in trace.layers]
    rotations = [float(history.layer_rotations(trace, layer)) for layer in trace.layers]
    left = (float(LEFT), top, 380.0, 130.0)
    right = (LEFT + 480.0, top, 380.0, 130.0)
    _bars(figure, left, trace, scores, "Mean score", SCORE, "this policy observes no attention")
    _bars(
        figure,
        right,
        trace,
        rotations,
        "Rotations",
        "keys rotated, at all decisions",
        "no key was rotated",
    )


def _bars(
    figure: Figure,
    box: tuple[float, float, float, float],
    trace: Trace,
    values: Sequence[float],
    title: str,
    unit: str,
    nothing: str,
) -> None:
    left, top, width, height = box
    count, high = len(values), max(values)
    axes = Axes(figure, box, (-0.5, count - 0.5), (0, 1.08 * high if high > 0 else 1))
    axes.title(title)
    axes.x_axis(whole_ticks(0, count - 1, 10), "layer", lambda i: str(trace.layers[int(i)]))
    if high > 0:
        axes.y_axis(ticks(0, high, 5), unit, short, grid=True)
        each = width / count
        for i, value in enumerate(values):
            y = axes.y(value)
            figure.rect(axes.x(i) - 0.4 * each, y, 0.8 * each, top + height - y, BLUE)
    else:
        figure.text(left + width / 2, top + height / 2, nothing, anchor="middle", colour=MUTED)
    axes.frame()


_ACROSS, _CELL_WIDTH, _CELL_HEIGHT, _PITCH_X, _PITCH_Y = 6, 130, 76, 146, 104


def _draw_grid(figure: Figure, trace: Trace, when: Ints, top: float) -> None:
    """Draws each layer over time, small, with ticks at the outermost."""
    end = history.tokens_computed(trace)
    rows: Ints = history.times(trace, _CELL_HEIGHT)
    begins = history.columns_of(trace, _CELL_WIDTH)
    figure.text(LEFT, top - 24, "Each layer over time", size=13, bold=True)
    note = f"across: {POSITION}; down: {COMPUTED}; colours as above"
    figure.text(LEFT + 880, top - 24, note, size=11, colour=MUTED, anchor="end")
    for i, layer in enumerate(trace.layers):
        down, across = divmod(i, _ACROSS)
        left, upper = float(LEFT + across * _PITCH_X), top + down * _PITCH_Y
        box = (left, upper, _CELL_WIDTH, _CELL_HEIGHT)
        axes = Axes(figure, box, (0, end), (0, end), down=True)
        figure.text(left, upper - 4, f"layer {layer}", size=10)
        pixels = colours_of(history.cells(trace, when[i], rows, begins))
        fill(axes, trace, pixels)
        if across == 0:
            axes.y_axis(whole_ticks(0, end, 3), "")
        if i + _ACROSS >= len(trace.layers):
            axes.x_axis(whole_ticks(0, end, 3), "")
