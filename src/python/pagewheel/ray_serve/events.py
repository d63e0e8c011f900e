"""A stream of events as a front passes it on: whole ones, so that it can be ended by an error."""

from __future__ import annotations

from typing import Any

from pagewheel.serve.http.errors import ApiError
from pagewheel.serve.http.request_context import RequestContext

_END = b"\n\n"  # of an event; JSON has no line breaks


class PassedEvents:
    """What has come of a replica's stream, and what of it the client may have."""

    def __init__(self) -> None:
        self._num_whole = 0
        self._rest = b""  # the begin of an event

    async def pass_on(self, context: RequestContext, piece: bytes) -> None:
        """Sends up to the end of the last whole event."""
        whole = self.add(piece)
        if whole:
            await context.send_raw(whole)

    def add(self, piece: bytes) -> bytes:
        """What can be sent."""
        whole, end, self._rest = (self._rest + piece).rpartition(_END)
        self._num_whole += whole.count(_END) + len(end) // len(_END)
        return whole + end

    def left(self) -> bytes:
        """What is no whole event, of a stream that is over."""
        rest, self._rest = self._rest, b""
        return rest

    async def fail_response(self, context: RequestContext, error: ApiError) -> None:
        """The last event of a stream of /v1/responses, as a replica would send it."""
        event: dict[str, Any] = {
            "type": "error",
            "sequence_number": self._num_whole,
            "code": error.code or error.type,
            "message": error.message,
            "param": error.param,
        }
        await context.send_event(event, "error")
