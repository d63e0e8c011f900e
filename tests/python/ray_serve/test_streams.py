"""Streams between a replica and a front, past Ray: both ends on one loop, without Ray."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from waiting import eventually_in_loop

from pagewheel.ray_serve import arrivals as arrivals_module
from pagewheel.ray_serve.arrivals import Arrival, Arrivals, StreamBrokenError
from pagewheel.ray_serve.calls import Call, Destination, End, Head
from pagewheel.ray_serve.replica import Roads, answered

CALL = Call("call", "POST", "/v1/completions")
EVENTS = [b"data: %d\n\n" % number for number in range(100)]
Send = Callable[[Any], Awaitable[None]]


@dataclass
class Application:
    """Sends its pieces, each when the one before it was taken."""

    pieces: list[bytes]
    kind: str = "text/event-stream; charset=utf-8"
    num_sent: int = 0
    has_ended: bool = False
    step: asyncio.Event = field(default_factory=asyncio.Event)  # the pieces after the first

    async def __call__(self, _scope: Any, receive: Any, send: Send) -> None:
        watcher = asyncio.ensure_future(self._disconnect(receive))
        work = asyncio.ensure_future(self._work(send))
        try:
            await asyncio.wait({watcher, work}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watcher.cancel()
            work.cancel()
            self.has_ended = True

    async def _disconnect(self, receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _work(self, send: Send) -> None:
        headers = [(b"content-type", self.kind.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for piece in self.pieces:
            if self.num_sent:
                await self.step.wait()
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            self.num_sent += 1
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Client:
    """What a front passes on to."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.reads = asyncio.Event()
        self.reads.set()

    async def take(self, piece: bytes) -> None:
        await self.reads.wait()
        self.data += piece


def answer_of(app: Any, arrival: Arrival, roads: Roads | None = None) -> AsyncGenerator[Any, None]:
    call = replace(CALL, destination=arrival.destination)
    return answered(app, call, "tag", roads or Roads())


async def begin(answer: AsyncGenerator[Any, None], client: Client) -> Head:
    head = await anext(answer)
    assert isinstance(head, Head)
    await client.take(head.body)
    return head


def test_a_stream_is_brought_and_ray_has_its_head_and_its_end() -> None:
    async def run() -> None:
        app, client, arrivals = Application(EVENTS), Client(), Arrivals()
        async with arrivals.listening("127.0.0.1"):
            with arrivals.expected() as arrival:
                answer = answer_of(app, arrival)
                head = await begin(answer, client)
                assert (head.is_brought, head.body) == (True, EVENTS[0])
                assert head.headers["x-pagewheel-replica"] == "tag"
                app.step.set()
                await arrival.pass_on(anext(answer), client.take)
                assert client.data == b"".join(EVENTS)
                assert [piece async for piece in answer] == []

    asyncio.run(run())


@pytest.mark.parametrize("host", [None, "192.0.2.1"], ids=["not listening", "not this machine"])
def test_without_a_listening_front_a_stream_goes_through_ray(host: str | None) -> None:
    async def run() -> None:
        app, client, arrivals = Application(EVENTS), Client(), Arrivals()
        app.step.set()
        async with arrivals.listening(host):
            with arrivals.expected() as arrival:
                answer = answer_of(app, arrival)
                assert not (await begin(answer, client)).is_brought
                async for piece in answer:
                    await client.take(piece)
        assert client.data == b"".join(EVENTS)

    asyncio.run(run())


def test_a_front_that_cannot_be_reached_is_not_tried_for_each_stream() -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        roads, to = Roads(), Destination("127.0.0.1", port, "k" * 32)
        assert await roads.open(to) is None
        with socket.create_server(("127.0.0.1", port)):
            assert await roads.open(to) is None
        app = Application(EVENTS)
        app.step.set()
        pieces = [each async for each in answered(app, replace(CALL, destination=to), "t", roads)]
        assert b"".join([pieces[0].body, *pieces[1:]]) == b"".join(EVENTS)

    asyncio.run(run())


def test_a_whole_answer_is_one_piece_through_ray() -> None:
    async def run() -> None:
        app, arrivals = Application([b"{}"], kind="application/json"), Arrivals()
        async with arrivals.listening("127.0.0.1"):
            with arrivals.expected() as arrival:
                (head,) = [piece async for piece in answer_of(app, arrival)]
                assert (head.body, head.is_brought) == (b"{}", False)

    asyncio.run(run())


def test_a_slow_client_makes_the_application_wait() -> None:
    async def run() -> None:
        app, client, arrivals = Application([b"x" * 100_000] * 400), Client(), Arrivals()
        async with arrivals.listening("127.0.0.1"):
            with arrivals.expected() as arrival:
                answer = answer_of(app, arrival)
                await begin(answer, client)
                client.reads.clear()
                app.step.set()
                passing = asyncio.ensure_future(arrival.pass_on(anext(answer), client.take))
                before = -1
                while before != app.num_sent:  # until the connection is full
                    before = app.num_sent
                    await asyncio.sleep(0.3)
                assert before < len(app.pieces)
                client.reads.set()
                await passing
                assert len(client.data) == sum(map(len, app.pieces))

    asyncio.run(run())


def test_a_client_that_leaves_ends_the_application() -> None:
    async def run() -> None:
        app, client, arrivals = Application([b"x" * 100_000] * 400), Client(), Arrivals()
        async with arrivals.listening("127.0.0.1"):
            with arrivals.expected() as arrival:
                answer = answer_of(app, arrival)
                await begin(answer, client)
                client.reads.clear()  # else the application waits for nobody
                app.step.set()
                passing = asyncio.ensure_future(arrival.pass_on(anext(answer), client.take))
                await eventually_in_loop(lambda: app.num_sent > 1)
                passing.cancel()  # with which `anext` is cancelled, as Ray does it in a replica
                await asyncio.wait({passing})
                await eventually_in_loop(lambda: app.has_ended)
        assert app.num_sent < len(app.pieces)

    asyncio.run(run())


def test_a_front_that_dies_ends_the_application() -> None:
    async def run() -> None:
        app, client, arrivals = Application([b"x" * 10_000] * 1000), Client(), Arrivals()
        async with arrivals.listening("127.0.0.1"):
            with arrivals.expected() as arrival:
                answer = answer_of(app, arrival)
                await begin(answer, client)
            app.step.set()
            assert isinstance(await anext(answer), End)
        assert app.has_ended
        assert app.num_sent < len(app.pieces)

    asyncio.run(run())


def test_a_replica_that_fails_ends_the_stream_with_what_ray_says() -> None:
    async def run() -> None:
        client, arrivals = Client(), Arrivals()
        async with arrivals.listening("127.0.0.1"):
            with arrivals.expected() as arrival:
                answer = answer_of(Application(EVENTS), arrival)
                await begin(answer, client)

                async def failing() -> None:
                    raise RuntimeError("as Ray says it")

                # Its connection stays open: a machine that lost its power closes none.
                with pytest.raises(RuntimeError, match="as Ray says it"):
                    await arrival.pass_on(failing(), client.take)
            await answer.aclose()

    asyncio.run(run())


@pytest.mark.parametrize("has_connected", [False, True])
def test_a_stream_that_breaks_is_no_whole_one(
    has_connected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals_module, "_KEY_SECONDS", 0.1)

    async def run() -> None:
        client, arrivals = Client(), Arrivals()
        async with arrivals.listening("127.0.0.1"):
            with arrivals.expected() as arrival:
                assert arrival.destination is not None
                if has_connected:
                    writer = await Roads().open(arrival.destination)
                    assert writer is not None
                    writer.write(b"half")
                    writer.close()

                async def whole() -> End:
                    return End(8)

                passing = arrival.pass_on(whole(), client.take)
                with pytest.raises(StreamBrokenError):
                    await asyncio.wait_for(passing, 60)
        assert client.data == (b"half" if has_connected else b"")

    asyncio.run(run())


def test_who_does_not_know_a_key_is_not_listened_to() -> None:
    async def run() -> None:
        app, client, arrivals = Application(EVENTS), Client(), Arrivals()
        async with arrivals.listening("127.0.0.1"):
            with arrivals.expected() as arrival:
                assert arrival.destination is not None
                stranger = replace(arrival.destination, key="0" * len(arrival.destination.key))
                reader, writer = await asyncio.open_connection(stranger.host, stranger.port)
                writer.write(stranger.key.encode() + b"data: not ours\n\n")
                with suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()
                answer = answer_of(app, arrival)
                await begin(answer, client)
                app.step.set()
                await arrival.pass_on(anext(answer), client.take)
                assert client.data == b"".join(EVENTS)
                # A key is good for one connection.
                assert arrival.destination.key not in arrivals._expected

    asyncio.run(run())
