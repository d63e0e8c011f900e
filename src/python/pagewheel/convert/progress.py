"""Progress of long work, on stderr, for people only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Work shorter than this shows nothing.
_DELAY = 0.5


@contextmanager
def stages(
    title: str, count: int, enabled: bool | Callable[[str], None]
) -> Iterator[Callable[[str], None]]:
    """Gives a function to call with each stage's name as it starts.

    Draws a bar over `count` stages if enabled, stderr is a terminal and half a second
    went by; otherwise nothing is written. A function in place of `enabled` is given as it is.
    """
    if callable(enabled):
        yield enabled
        return
    if not enabled or not sys.stderr.isatty():
        yield lambda _name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(title, total=count)
    start = time.monotonic()
    done = 0

    def advance(name: str) -> None:
        nonlocal done
        if not bar.live.is_started and time.monotonic() - start > _DELAY:
            bar.start()
        bar.update(task, description=f"{title}: {name}", completed=done)
        done += 1

    try:
        yield advance
    finally:
        bar.stop()
