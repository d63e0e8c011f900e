"""Waits for many requests at once: the loop is woken once per step."""

from __future__ import annotations

import asyncio
import itertools
import os
from contextlib import suppress

from pagewheel._pagewheel import GenerationHandle, PipeNotifier

_PIPE_BYTES = 64


class Notifications:
    """Lives on the event loop. close() comes before the loop ends."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._numbers = itertools.count()
        self._notifier: PipeNotifier | None = None  # from the first wait on
        self._ends: tuple[int, int] = (-1, -1)  # of its pipe: to read, and to write
        self.is_closed = False

    def expect(self, handle: GenerationHandle, at_end: bool = False) -> asyncio.Future[None]:
        """Done when there is output or the request is over; `at_end`: only then."""
        loop = asyncio.get_running_loop()
        if self.is_closed:
            over: asyncio.Future[None] = loop.create_future()
            over.set_result(None)
            return over
        notifier = self._notifier or self._begin(loop)
        number = next(self._numbers)
        future = self._waiting[number] = loop.create_future()
        notifier.notify_once(handle, number, at_end)
        return future

    def _begin(self, loop: asyncio.AbstractEventLoop) -> PipeNotifier:
        self._ends = os.pipe()
        for end in self._ends:
            os.set_blocking(end, False)
        loop.add_reader(self._ends[0], self._on_readable)
        self._notifier = PipeNotifier(self._ends[1])
        return self._notifier

    def _on_readable(self) -> None:
        assert self._notifier is not None
        with suppress(BlockingIOError):
            os.read(self._ends[0], _PIPE_BYTES)
        for number in self._notifier.take():
            future = self._waiting.pop(number, None)
            if future is not None and not future.done():  # whoever waited may have left
                future.set_result(None)

    def close(self) -> None:
        """Leaves those that still wait untold."""
        self.is_closed = True
        if self._notifier is None:
            return
        self._notifier.close()
        self._notifier = None
        asyncio.get_running_loop().remove_reader(self._ends[0])
        for end in self._ends:
            os.close(end)
