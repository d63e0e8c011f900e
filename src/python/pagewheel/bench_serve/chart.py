"""A picture of a run: latencies, throughput and goodput over the loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pagewheel.bench_serve.summary import Distribution, Summary
from pagewheel.trace.svg import BLUE, GREEN, ORANGE, RED, Axes, Figure, short, ticks

_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 230, 200, 72, 64, 92
_MARK = 5
_COLOURS = {"p50": GREEN, "p90": BLUE, "p99": RED}


@dataclass(frozen=True)
class _Line:
    name: str
    colour: str
    values: Sequence[float | None]


def draw(summaries: Sequence[Summary], title: str) -> str:
    """Draws an SVG file. Loads at a rate and at a concurrency are told apart by the axis' label."""
    panels = [
        ("Time to first token", "ms", _percentiles(summaries, lambda one: one.first_token)),
        ("Time per token", "ms", _percentiles(summaries, lambda one: one.per_token)),
        (
            "Tokens",
            "tokens/s",
            [_Line("throughput", BLUE, [one.tokens_per_second for one in summaries])],
        ),
        ("Requests", "requests/s", _requests(summaries)),
    ]
    width = _LEFT + len(panels) * _WIDTH + (len(panels) - 1) * _GAP + 24
    figure = Figure(width, _TOP + _HEIGHT + 96)
    figure.text(_LEFT - 48, 24, title, size=14, bold=True)
    for number, (name, unit, lines) in enumerate(panels):
        left = _LEFT + number * (_WIDTH + _GAP)
        _panel(figure, left, name, unit, summaries, lines)
    return figure.render(title)


def _percentiles(
    summaries: Sequence[Summary], of: Callable[[Summary], Distribution]
) -> list[_Line]:
    def milliseconds(name: str) -> list[float | None]:
        found = (of(one).percentiles[name] for one in summaries)
        return [None if value is None else value * 1e3 for value in found]

    return [_Line(name, colour, milliseconds(name)) for name, colour in _COLOURS.items()]


def _requests(summaries: Sequence[Summary]) -> list[_Line]:
    lines = [_Line("answered", BLUE, [one.requests_per_second for one in summaries])]
    if any(one.goodput is not None for one in summaries):
        lines.append(_Line("within the goals", ORANGE, [one.goodput for one in summaries]))
    return lines


def _panel(
    figure: Figure,
    left: float,
    name: str,
    unit: str,
    summaries: Sequence[Summary],
    lines: Sequence[_Line],
) -> None:
    sizes = [one.rate if one.rate is not None else float(one.concurrency or 0) for one in summaries]
    highest = max((v for line in lines for v in line.values if v is not None), default=0) or 1.0
    axes = Axes(figure, (left, _TOP, _WIDTH, _HEIGHT), (0, max(sizes) * 1.08), (0, highest * 1.08))
    axes.title(name)
    axes.y_axis(ticks(0, highest * 1.08, 6), unit, short, grid=True)
    axes.x_axis(
        ticks(0, max(sizes), 6),
        "conversations begun a second"
        if summaries[0].rate is not None
        else "conversations at once",
        short,
    )
    for place, line in enumerate(lines):
        points = [
            (axes.x(size), axes.y(value))
            for size, value in sorted(zip(sizes, line.values, strict=True))
            if value is not None
        ]
        figure.line(points, line.colour, width=1.6)
        for x, y in points:
            figure.rect(x - _MARK / 2, y - _MARK / 2, _MARK, _MARK, line.colour)
        figure.swatches(left + place * 78, _TOP + _HEIGHT + 50, [(line.colour, line.name)])
    axes.frame()
