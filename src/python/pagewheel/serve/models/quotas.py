"""How many threads of a pool each API key may hold at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class ThreadQuota:
    """On the event loop."""

    def __init__(self, pool: ThreadPoolExecutor, each: int) -> None:
        self._pool = pool
        self._each = each
        self._quota: dict[str, asyncio.Semaphore] = {}

    async def run(self, api_key_id: str, work: Callable[[], T]) -> T:
        """What the work gives, when the API key has a thread free."""
        quota = self._quota.setdefault(api_key_id, asyncio.Semaphore(self._each))
        await quota.acquire()
        try:
            job = self._pool.submit(work)
        except BaseException:
            quota.release()
            raise
        loop = asyncio.get_running_loop()

        def free(_: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(quota.release)

        # A request that is over does not end its work, which keeps its place till then.
        job.add_done_callback(free)
        return await asyncio.wrap_future(job)
