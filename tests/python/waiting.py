"""Waiting for what a test is about, and not for an amount of time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

_STEP_SECONDS = 0.01


def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Fails if it does not become true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(_STEP_SECONDS)


async def eventually_in_loop(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """The same for a test on an event loop, which goes on meanwhile."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(_STEP_SECONDS)


def cpu_ticks(pid: int) -> int:
    """What a process has computed so far: it grows while the process works."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[11]) + int(fields[12])
