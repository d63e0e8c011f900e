"""What the requests of one API key may hold at once, so that others find room."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from pagewheel.serve.errors import Kind, RequestError, too_many

T = TypeVar("T")


class ThreadQuota:
    """Lets each API key hold so many threads of a pool. On the event loop."""

    def __init__(self, pool: ThreadPoolExecutor, each: int) -> None:
        self._pool = pool
        self._each = each
        self._quotas: dict[str, asyncio.Semaphore] = {}

    async def run(self, api_key_id: str, work: Callable[[], T]) -> T:
        """Gives the work's result, once the API key has a thread for it."""
        quota = self._quotas.setdefault(api_key_id, asyncio.Semaphore(self._each))
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

        # A request that is over does not end its work, which counts until it is done.
        job.add_done_callback(free)
        return await asyncio.wrap_future(job)


class QueueQuota:
    """What one request takes of its key's quota: one for each prompt that has no token yet."""

    def __init__(self, by_key: Counter[str], api_key_id: str, most: int) -> None:
        """`by_key` is of all requests; 0 of `most` is no limit."""
        self._by_key = by_key
        self.api_key_id = api_key_id
        self._most = most
        self._taken = 0

    def take(self, count: int) -> None:
        """Raises RequestError where the key has not so many."""
        if not self._most:
            return
        if count > self._most:  # waiting does not help
            message = f"the request has {count} prompts; of this key {self._most} may wait"
            raise RequestError(Kind.INVALID, message, "key_queue_limit")
        if self._by_key[self.api_key_id] + count > self._most:
            raise too_many(f"{self._most} requests of this key may wait", "key_queue_limit")
        self._by_key[self.api_key_id] += count
        self._taken = count

    def leave(self) -> None:
        if self._taken:
            self._taken -= 1
            self._by_key[self.api_key_id] -= 1

    def leave_all(self) -> None:
        while self._taken:
            self.leave()
