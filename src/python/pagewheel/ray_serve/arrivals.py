"""The front's end of streams: replicas bring them on connections of their own, past Ray.

Ray still says which replica answers, that an answer is complete, and that a replica has failed.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from pagewheel.ray_serve.calls import Destination
from pagewheel.serve.embedding import ApiError, Context

_log = logging.getLogger("pagewheel.serve")
_KEY_BYTES = 16
KEY_LENGTH = 2 * _KEY_BYTES  # characters
# For the key of a connection to arrive.
_KEY_SECONDS = 10.0
_PIECE_BYTES = 1 << 16


class StreamBrokenError(Exception):
    """Not all of a stream has arrived, though its replica has not failed."""


class Arrival:
    """One stream. `destination` is None where replicas cannot bring streams."""

    def __init__(self, destination: Destination | None) -> None:
        self.destination = destination
        self._reader: asyncio.Future[asyncio.StreamReader] = asyncio.Future()
        self._transport: asyncio.WriteTransport | None = None

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._transport = writer.transport
        if self._reader.done():  # nobody waits any more
            self.close()
        else:
            self._reader.set_result(reader)

    async def pass_on(self, end: Awaitable[Any], send: Callable[[bytes], Awaitable[None]]) -> None:
        """Sends until all has arrived. `end` is the replica's End, as Ray gives it.

        Raises StreamBrokenError, and what `end` raises: then nothing more can arrive.
        """
        ended = asyncio.ensure_future(end)
        ended.add_done_callback(self._replica_ended)
        size = 0
        try:
            async for piece in self._pieces():
                size += len(piece)
                await send(piece)
            self.close()
            if (await ended).size != size:
                raise StreamBrokenError
        finally:
            ended.cancel()

    async def _pieces(self) -> AsyncIterator[bytes]:
        try:
            reader = await self._reader
            while piece := await reader.read(_PIECE_BYTES):
                yield piece
        except OSError:
            return  # the size says what is missing

    def _replica_ended(self, ended: asyncio.Future[Any]) -> None:
        if ended.cancelled() or ended.exception() is not None:
            self.close()
        elif not self._reader.done():  # the connection is late, or was lost on its way
            asyncio.get_running_loop().call_later(_KEY_SECONDS, self._give_up)

    def _give_up(self) -> None:
        if not self._reader.done():
            self.close()

    def close(self) -> None:
        """The replica's next bytes find no connection."""
        if self._transport is not None:
            self._transport.abort()
        if not self._reader.done():
            self._reader.set_exception(ConnectionError("no connection"))
            self._reader.exception()  # seen, also where nobody waits


class Arrivals:
    """Listens for all streams of a front."""

    def __init__(self) -> None:
        self._address: tuple[str, int] | None = None
        self._expected: dict[str, Arrival] = {}

    @asynccontextmanager
    async def listening(self, host: str | None) -> AsyncIterator[None]:
        """Listens on a free port of `host`; None, or a host elsewhere: all goes through Ray."""
        if host is None:
            yield
            return
        try:
            server = await asyncio.start_server(self._connected, host, 0)
        except OSError as error:
            _log.warning("streams go through Ray", extra={"host": host, "cause": str(error)})
            yield
            return
        self._address = server.sockets[0].getsockname()[:2]
        try:
            yield
        finally:
            self._address = None
            server.close()

    @contextmanager
    def expected(self) -> Iterator[Arrival]:
        """Gives a stream that may come within the block."""
        if self._address is None:
            yield Arrival(None)
            return
        key = secrets.token_hex(_KEY_BYTES)
        arrival = Arrival(Destination(*self._address, key))
        self._expected[key] = arrival
        try:
            yield arrival
        finally:
            self._expected.pop(key, None)
            arrival.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            key = await asyncio.wait_for(reader.readexactly(KEY_LENGTH), _KEY_SECONDS)
        except (asyncio.IncompleteReadError, asyncio.TimeoutError, OSError):
            key = b""
        arrival = self._expected.pop(key.decode("latin-1"), None)
        if arrival is None:
            writer.transport.abort()
        else:
            arrival.connected(reader, writer)


_END = b"\n\n"  # of an event; JSON has no line breaks


class PassedEvents:
    """What has come of a replica's stream, and what of it the client may have."""

    def __init__(self) -> None:
        self._num_whole = 0
        self._rest = b""  # the begin of an event

    async def pass_on(self, context: Context, piece: bytes) -> None:
        """Sends up to the end of the last whole event."""
        whole = self.add(piece)
        if whole:
            await context.send_raw(whole)

    def add(self, piece: bytes) -> bytes:
        """Returns what can be sent."""
        whole, end, self._rest = (self._rest + piece).rpartition(_END)
        self._num_whole += whole.count(_END) + len(end) // len(_END)
        return whole + end

    def left(self) -> bytes:
        """Returns what is no whole event, of a stream that is over."""
        rest, self._rest = self._rest, b""
        return rest

    async def fail_response(self, context: Context, error: ApiError) -> None:
        """Sends the last event of a stream of /v1/responses, as a replica would."""
        event: dict[str, Any] = {
            "type": "error",
            "sequence_number": self._num_whole,
            "code": error.code or error.type,
            "message": error.message,
            "param": error.param,
        }
        await context.send_event(event, "error")
