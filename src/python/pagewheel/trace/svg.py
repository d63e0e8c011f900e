"""Pictures with axes as SVG: text stays text, and nothing but numpy and zlib is needed."""

from __future__ import annotations

import base64
import math
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

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


Pixels = NDArray[np.uint8]

# What XML cannot hold, and halves of surrogate pairs, which UTF-8 cannot.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def printable(text: str) -> str:
    """`text` with U+FFFD for what a document cannot hold."""
    return _FORBIDDEN.sub("\ufffd", text)


def xml_text(text: str) -> str:
    """`text` as the content or the attribute of an element, whatever is in it."""
    return escape(printable(text))


def png(pixels: Pixels) -> bytes:
    """A PNG file of u8 [height, width, 3]."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def section(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + section(b"IHDR", header)
        + section(b"IDAT", zlib.compress(rows, 9))
        + section(b"IEND", b"")
    )


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers within [low, high], at most about `most` of them."""
    span = max(high - low, 1e-12)
    power = 10.0 ** math.floor(math.log10(span / max(most, 1)))
    step = next(power * m for m in (1, 2, 5, 10, 20) if span / (power * m) <= most)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def whole_ticks(low: float, high: float, most: int) -> list[float]:
    """ticks() without fractions, for numbers of things."""
    return sorted({float(round(tick)) for tick in ticks(low, high, most)})


def decades(low: float, high: float) -> list[float]:
    """Powers of ten within [low, high], or both ends where there is none."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    return [10.0**i for i in range(first, last + 1)] or [low, high]


def short(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e7 else f"{value:.2g}"


@dataclass(frozen=True)
class Scale:
    """Numbers [low, high] onto pixels [begin, end]."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        share = (
            math.log(value / self.low) / math.log(self.high / self.low)
            if self.log
            else (value - self.low) / ((self.high - self.low) or 1.0)
        )
        return self.begin + share * (self.end - self.begin)


class Figure:
    """Elements of a picture, drawn in the order they are added. Lengths in pixels."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self._parts: list[str] = []

    def render(self, title: str) -> str:
        """The SVG element; `title` is what readers of the screen say."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" role="img" '
            f'font-family="{xml_text(", ".join(FONT))}" font-size="12" fill="{INK}">'
            f"<title>{xml_text(title)}</title>"
            f'<rect width="100%" height="100%" fill="{PAPER}"/>' + "".join(self._parts) + "</svg>\n"
        )

    def text(
        self,
        x: float,
        y: float,
        content: str,
        *,
        anchor: str = "start",
        size: float = 12,
        colour: str = INK,
        bold: bool = False,
        upward: bool = False,
    ) -> None:
        """`anchor`: start, middle or end of the text is at x; `upward`: it runs up."""
        rotation = f' transform="rotate(-90 {x:g} {y:g})"' if upward else ""
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size:g}" '
            f'fill="{colour}"{weight}{rotation}>{xml_text(content)}</text>'
        )

    def rect(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        """A filled rectangle with a fine border."""
        self._parts.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" '
            f'fill="{fill}" stroke="{MUTED}" stroke-width="0.5"/>'
        )

    def line(
        self,
        points: Iterable[tuple[float, float]],
        colour: str,
        *,
        width: float = 1,
        dash: str = "",
    ) -> None:
        """A line through the points; `dash`: lengths of dashes and gaps."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" '
            f'stroke-width="{width:g}"{dashes}/>'
        )

    def area(self, points: Iterable[tuple[float, float]], colour: str) -> None:
        """A pale area without a border."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(f'<polygon points="{path}" fill="{colour}" fill-opacity="0.25"/>')

    def image(self, x: float, y: float, width: float, height: float, pixels: Pixels) -> None:
        """u8 [rows, columns, 3], stretched without smoothing."""
        data = base64.b64encode(png(pixels)).decode("ascii")
        self._parts.append(
            f'<image x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f'preserveAspectRatio="none" style="image-rendering:pixelated" '
            f'href="data:image/png;base64,{data}"/>'
        )

    def swatches(self, x: float, y: float, entries: Sequence[tuple[str, str]]) -> None:
        """A legend, downwards: (colour, meaning)."""
        for i, (colour, meaning) in enumerate(entries):
            self.rect(x, y + 19 * i, 13, 13, colour)
            self.text(x + 19, y + 19 * i + 11, meaning, size=11)


class Axes:
    """A frame of a figure with a scale for each direction. y may run up or down."""

    def __init__(
        self,
        figure: Figure,
        box: tuple[float, float, float, float],
        x: tuple[float, float],
        y: tuple[float, float],
        *,
        down: bool = False,
        log_y: bool = False,
    ) -> None:
        """`box`: left, top, width and height of the frame; `x` and `y`: lowest and highest."""
        self.figure, self.box = figure, box
        left, top, width, height = box
        self.x = Scale(*x, left, left + width)
        ends = (top, top + height) if down else (top + height, top)
        self.y = Scale(*y, *ends, log=log_y)

    def title(self, text: str) -> None:
        self.figure.text(self.box[0], self.box[1] - 8, text, size=13, bold=True)

    def frame(self) -> None:
        """The border; drawn last, so that nothing covers it."""
        left, top, width, height = self.box
        corners = [(0, 0), (width, 0), (width, height), (0, height), (0, 0)]
        self.figure.line([(left + x, top + y) for x, y in corners], MUTED)

    def x_axis(
        self, values: Sequence[float], label: str, name: Callable[[float], str] = short
    ) -> None:
        """Ticks with their numbers below the frame."""
        left, top, width, height = self.box
        bottom = top + height
        for value in values:
            x = self.x(value)
            self.figure.line([(x, bottom), (x, bottom + 4)], MUTED)
            self.figure.text(x, bottom + 16, name(value), anchor="middle", size=10, colour=MUTED)
        self.figure.text(left + width / 2, bottom + 32, label, anchor="middle", size=11)

    def y_axis(
        self,
        values: Sequence[float],
        label: str,
        name: Callable[[float], str] = short,
        *,
        grid: bool = False,
    ) -> None:
        """Ticks with their numbers left of the frame; `grid`: lines across it."""
        left, top, width, height = self.box
        for value in values:
            y = self.y(value)
            if grid:
                self.figure.line([(left, y), (left + width, y)], GRID)
            self.figure.line([(left - 4, y), (left, y)], MUTED)
            self.figure.text(left - 7, y + 3.5, name(value), anchor="end", size=10, colour=MUTED)
        self.figure.text(left - 48, top + height / 2, label, anchor="middle", size=11, upward=True)
