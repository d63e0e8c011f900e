"""A trace as one HTML page: page.html with the summary and the decisions in it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from pagewheel.trace.draw import SCORE, draw_layer, title_of
from pagewheel.trace.history import ScoreScale
from pagewheel.trace.record import Decision, Trace
from pagewheel.trace.summary import draw_summary
from pagewheel.trace.svg import EVICTED, INK, MUTED, RED, SCORES, printable, xml_text

MOST_TOKENS = 300_000  # held tokens of all decisions shown
MOST_AT_ONCE = 2_000  # of one decision
MOST_CHARACTERS = 32  # of a token's text


def page_of(trace: Trace) -> str:
    """Makes the page. Texts and names are data in it, whatever they hold: never markup or code."""
    values = {
        "title": xml_text(title_of(trace)),
        "config": xml_text(trace.config),
        "summary": draw_summary(trace),
        "data": script_data(_content(trace)),
        "ink": INK,
        "muted": MUTED,
        "red": RED,
        "evicted": EVICTED,
    }
    page = files("pagewheel.trace").joinpath("page.html").read_text(encoding="utf-8")
    return re.sub(r"@@(\w+)@@", lambda found: values[found[1]], page)  # in one pass


def script_data(content: Any) -> str:
    """Writes JSON to stand in a <script>: nothing in it can end the element or open a comment."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _content(trace: Trace) -> dict[str, Any]:
    scale = ScoreScale(trace)
    layers = {layer: _shown(trace.of_layer(layer), len(trace.layers)) for layer in trace.layers}
    decisions = {
        str(layer): [_compact(decision, scale) for decision in shown]
        for layer, shown in layers.items()
    }
    numbers = {
        position
        for shown in layers.values()
        for decision in shown
        for position in _in_view(decision.positions)
    }
    return {
        "prompt": len(trace.prompt),
        "end": len(trace.texts) - 1,
        "texts": {
            number: printable(trace.texts[number][:MOST_CHARACTERS]) for number in sorted(numbers)
        },
        "scale": None
        if scale.empty
        else {
            "name": SCORE,
            "low": scale.low,
            "high": scale.high,
            "colours": SCORES,
            "ticks": [[float(scale.place(score)), name] for score, name in scale.ticks()],
        },
        "counts": {str(layer): len(trace.of_layer(layer)) for layer in layers},
        "layers": decisions,
    }


def _shown(decisions: list[Decision], layers: int) -> list[Decision]:
    """Takes as many of a layer's decisions as fit, evenly spread, both ends among them."""
    each = max(min(len(decision.positions), MOST_AT_ONCE) for decision in decisions)
    room = max(2, MOST_TOKENS // (layers * max(each, 1)))
    if len(decisions) <= room:
        return decisions
    chosen = np.linspace(0, len(decisions) - 1, room).round().astype(int)
    return [decisions[i] for i in chosen]


def _in_view(values: list[Any]) -> list[Any]:
    """Takes the first and the last of more values than are shown at once."""
    half = MOST_AT_ONCE // 2
    return values if len(values) <= MOST_AT_ONCE else [*values[:half], *values[-half:]]


def _runs(tokens: Iterable[tuple[int, ...]]) -> list[list[int]]:
    """Gives runs of tokens with the same numbers beside them: first, count, the numbers."""
    runs: list[list[int]] = []
    for position, *rest in tokens:
        if runs and position == sum(runs[-1][:2]) and rest == runs[-1][2:]:
            runs[-1][1] += 1
        else:
            runs.append([position, 1, *rest])
    return runs


def _compact(decision: Decision, scale: ScoreScale) -> dict[str, Any]:
    """Writes runs of consecutive tokens for lists, and a byte for a score."""
    positions, deltas = _in_view(decision.positions), _in_view(decision.deltas)
    seen = set(positions)
    scores = np.nan_to_num(np.array(_in_view(decision.scores), np.float64))
    # 0: no score; 1 to 255: the place on the scale.
    places = np.where(scores > 0, 1 + 254 * scale.place(scores), 0).round().astype(np.uint8)
    return {
        "processed": decision.processed,
        "tokens": len(decision.positions),
        "going": len(decision.dropped),
        "hidden": len(decision.positions) - len(positions),
        "hiddenBefore": positions[len(positions) // 2],  # the first token after those
        "held": _runs(zip(positions, deltas, strict=True)),  # first, count, delta
        "dropped": _runs((each,) for each in decision.dropped if each in seen),  # first, count
        "scores": base64.b64encode(places.tobytes()).decode("ascii"),
    }


def write_pictures(trace: Trace, folder: Path) -> None:
    """Writes summary.svg, and layer-N.svg for every layer that decided."""
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
