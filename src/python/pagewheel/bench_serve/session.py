"""A whole run: warm-up, then each load, until all are done or Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from types import FrameType

from pagewheel.bench_serve.call import Target
from pagewheel.bench_serve.run import Measured, Plan, measure, warm_up
from pagewheel.bench_serve.workload import Load


def run_loads(
    target: Target,
    plan: Plan,
    loads: Sequence[Load],
    num_warm_up: int,
    done: Callable[[Measured], None],
) -> None:
    """Calls `done` after each load; the last one may be partial.

    Ctrl-C ends it with what there is; a second one ends it at once, as KeyboardInterrupt.
    """
    asyncio.run(_run_loads(target, plan, loads, num_warm_up, done))


async def _run_loads(
    target: Target,
    plan: Plan,
    loads: Sequence[Load],
    num_warm_up: int,
    done: Callable[[Measured], None],
) -> None:
    await warm_up(target, plan, num_warm_up)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def interrupted(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        loop.call_soon_threadsafe(stop.set)

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        for number, load in enumerate(loads):
            done(await measure(target, plan, load, number, stop))
            if stop.is_set():
                break
    finally:
        signal.signal(signal.SIGINT, before)
