"""Watching what cache eviction keeps: record a generation, then draw it."""

from pagewheel.trace.page import write_page, write_pictures
from pagewheel.trace.record import Decision, Setup, Trace, record

__all__ = ["Decision", "Setup", "Trace", "record", "write_page", "write_pictures"]
