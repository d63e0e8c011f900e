"""`async for outputs in handle`: tokens of a request as they are generated."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagewheel._pagewheel import GenerationHandle, GenerationOutput


class AsyncOutputs:
    """Yields what GenerationHandle.read() gives, until the request is over.

    Somebody has to step: ContinuousBatchingPipeline.start() makes a thread that does. If the task
    that iterates is cancelled, the request goes on: cancel() the handle where that is not wanted.
    """

    def __init__(self, handle: GenerationHandle) -> None:
        self._handle = handle

    def __aiter__(self) -> AsyncOutputs:
        return self

    async def __anext__(self) -> dict[int, GenerationOutput]:
        from pagewheel._pagewheel import GenerationStatus

        while True:
            is_over = self._handle.get_status() != GenerationStatus.RUNNING
            outputs = self._handle.read()
            if outputs:
                return outputs
            if is_over:
                raise StopAsyncIteration
            await self._news()

    async def _news(self) -> None:
        if not self._handle.can_wait():
            raise RuntimeError("a callback on the thread that steps would wait for itself")
        loop = asyncio.get_running_loop()
        news = asyncio.Event()

        def notify() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(news.set)

        self._handle.notify_once(notify)
        await news.wait()
