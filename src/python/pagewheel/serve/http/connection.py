"""A connection that waits for no client without end: for headers, or for one that does not read."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pagewheel.serve.settings import Limits


def guarded_protocol(limits: Limits) -> type[asyncio.Protocol]:
    """uvicorn's protocol with the limits."""

    class GuardedProtocol(HttpToolsProtocol):
        """Bodies are read by the application, which has limits of its own for them."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self._head_timer: asyncio.TimerHandle | None = None
            self._head_size = 0
            self._stall_timer: asyncio.TimerHandle | None = None
            # uvicorn's cycles: requests whose heads have come, which are answered in their order.
            self._unanswered: deque[Any] = deque()

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._expect_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head_arrived()
            self._taken()
            # A client may send requests before the answers of those before them. uvicorn tells
            # only the last one that the client has left.
            for cycle in self._unanswered:
                cycle.disconnected = not cycle.response_complete
                cycle.message_event.set()
            self._unanswered.clear()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if not self.flow.write_paused:
                self._taken()
            before = self.cycle
            if self._head_timer is None and (before is None or not before.more_body):
                self._expect_head()  # of the next request on this connection
            self._head_size += len(data)
            super().data_received(data)
            if self.cycle is not before:
                self._head_arrived()
            elif self._is_head_too_large():
                self.transport.abort()

        def _is_head_too_large(self) -> bool:
            is_body = self.cycle is not None and self.cycle.more_body
            return (
                self._head_timer is not None and not is_body and self._head_size > limits.head_bytes
            )

        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            self._unanswered.append(self.cycle)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            while self._unanswered and self._unanswered[0].response_complete:
                self._unanswered.popleft()
            if not self._unanswered:
                self._expect_taken()
            if self.transport.is_closing():
                return
            if self.cycle.response_complete and self.cycle.more_body:
                # uvicorn's timer ends with the next byte. The rest is thrown away, but not waited
                # for without end.
                self._expect_head()

        def on_message_complete(self) -> None:
            super().on_message_complete()
            if self.cycle.response_complete and self.cycle.more_body:
                self.cycle.more_body = False
                self._expect_head()

        def _expect_head(self) -> None:
            self._head_arrived()
            self._head_size = 0
            self._head_timer = self.loop.call_later(limits.head_seconds, self.transport.abort)

        def _head_arrived(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

        def pause_writing(self) -> None:
            super().pause_writing()
            self._expect_taken()

        def _expect_taken(self) -> None:
            """At a pause, or at the end of an answer: the last bytes of one pause nothing, but a
            connection is not closed before they are gone."""
            if self._stall_timer is None and self.transport.get_write_buffer_size():
                self._stall_timer = self.loop.call_later(limits.stall_seconds, self._not_taken)

        def _not_taken(self) -> None:
            self._stall_timer = None
            if self.transport.get_write_buffer_size():
                self.transport.abort()

        def resume_writing(self) -> None:
            self._taken()
            super().resume_writing()

        def _taken(self) -> None:
            if self._stall_timer is not None:
                self._stall_timer.cancel()
                self._stall_timer = None

    return GuardedProtocol
