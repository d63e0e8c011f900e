"""`async for outputs in handle.outputs()`: a request's tokens and text as they are generated."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagewheel._pagewheel import GenerationHandle, GenerationOutput


class AsyncOutputs:
    """Yields what GenerationHandle.read(with_text) would, until the request is over.

    Somebody has to step: ContinuousBatchingPipeline.start() makes a thread that does. If the task
    that iterates is cancelled, the request goes on: cancel() the handle where that is not wanted.
    """

    def __init__(self, handle: GenerationHandle, with_text: bool = False) -> None:
        self._handle = handle
        self._with_text = with_text
        self._waiter: asyncio.Future[None] | None = None  # until there is news

    def __aiter__(self) -> AsyncOutputs:
        return self

    async def __anext__(self) -> dict[int, GenerationOutput]:
        from pagewheel._pagewheel import GenerationStatus

        while True:
            is_over = self._handle.get_status() != GenerationStatus.RUNNING
            outputs = self._handle.read_available(self._with_text)
            if outputs:
                return outputs
            if is_over:
                raise StopAsyncIteration
            await self._news()

    async def _news(self) -> None:
        if not self._handle.can_wait():
            raise RuntimeError("a callback on the thread that steps would wait for itself")
        loop = asyncio.get_running_loop()
        if self._waiter is None or self._waiter.get_loop() is not loop:
            self._waiter = self._begin_to_wait(loop)
        await asyncio.shield(self._waiter)  # whoever gives up waiting leaves it to the next

    def _begin_to_wait(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        waiter = loop.create_future()

        def arrived() -> None:
            if self._waiter is waiter:
                self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

        def notify() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(arrived)

        self._handle.notify_once(notify)
        return waiter
