"""Watching what cache eviction keeps: record a generation, then draw it."""

from pagewheel.trace.draw import draw_picture, write_page
from pagewheel.trace.record import Decision, Trace, record

__all__ = ["Decision", "Trace", "draw_picture", "record", "write_page"]
