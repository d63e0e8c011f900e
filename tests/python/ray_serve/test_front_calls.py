"""What the front leaves behind with replicas that do not answer, or fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

pytest.importorskip("ray", reason="ray is not installed: pip install 'pagewheel[ray]'")

from ray.exceptions import RayActorError

from pagewheel.ray_serve.calls import Call, Head
from pagewheel.ray_serve.front import Front
from pagewheel.ray_serve.replica import _FrontsKeys
from pagewheel.serve.app import make_app
from pagewheel.serve.settings import KeyLimits, ModelSettings, ServerSettings
from pagewheel.serve_options import ReplicaSettings

ADMIN = {"key": KeyLimits(admin=True)}
CHANGES = ("/models/load", "/models/unload", "/sleep", "/wake_up", "/api/pull")


class Silence:
    """Stands for a replica's handle and its answer, which never comes."""

    def __init__(self) -> None:
        self.is_cancelled = False

    def remote(self, _call: Call) -> Silence:
        return self

    def __aiter__(self) -> Silence:
        return self

    async def __anext__(self) -> object:
        return await asyncio.get_running_loop().create_future()

    def cancel(self) -> None:
        self.is_cancelled = True


class Failing:
    """Stands for the handle of a replica that dies in the middle of a stream's third event."""

    PIECES = (b'event: a\ndata: {"sequence_number":0}\n', b"\nevent: b\ndata: {}\n\nevent: c\nda")

    def remote(self, _call: Call) -> Failing:
        return self

    async def __aiter__(self) -> AsyncIterator[object]:
        head = {"content-type": "text/event-stream; charset=utf-8"}
        yield Head("tag", 200, head, self.PIECES[0])
        yield self.PIECES[1]
        raise RayActorError

    def cancel(self) -> None:
        pass


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/responses", {"type": "error", "sequence_number": 2, "code": "replica_failed"}),
        ("/v1/chat/completions", {"error": {"type": "overloaded_error", "code": "replica_failed"}}),
        ("/v1/messages", {"type": "error", "error": {"type": "overloaded_error"}}),
    ],
)
def test_a_stream_whose_replica_dies_ends_with_the_error_of_its_api(
    path: str, expected: dict[str, object]
) -> None:
    async def ask() -> str:
        settings = ServerSettings((ModelSettings("tiny", None),))
        front = Front(settings, ReplicaSettings(), Failing, None)  # type: ignore[arg-type]
        front._handle = Failing()  # type: ignore[assignment]
        transport = httpx.ASGITransport(make_app(front))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.post(path, json={"stream": True})
        assert answer.status_code == 200
        return answer.text

    *whole, last, rest = asyncio.run(ask()).split("\n\n")
    assert (len(whole), rest) == (2, "")  # nothing of the event that was cut
    name, _, data = last.partition("\ndata: ")
    assert name == "event: error"
    found = json.loads(data)
    for key, value in expected.items():
        assert (
            value.items() <= found[key].items() if isinstance(value, dict) else found[key] == value
        )


def test_what_changes_one_process_is_refused_where_there_are_replicas() -> None:
    async def ask() -> list[int]:
        settings = ServerSettings(
            (ModelSettings("tiny", None),), keys=tuple(ADMIN), key_limits=ADMIN
        )
        front = Front(settings, ReplicaSettings(), Silence, None)  # type: ignore[arg-type]
        transport = httpx.ASGITransport(make_app(front))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            client.headers["authorization"] = "Bearer key"
            answers = [
                *[await client.post(path, json={"model": "tiny"}) for path in CHANGES],
                await client.get("/is_sleeping"),
                await client.get("/version"),
            ]
        return [answer.status_code for answer in answers]

    assert asyncio.run(ask()) == [501] * (len(CHANGES) + 1) + [200]


def test_a_scrape_that_takes_too_long_is_cancelled_in_the_replica() -> None:
    silence = Silence()

    async def scrape() -> None:
        settings = ServerSettings((ModelSettings("tiny", None),))
        front = Front(settings, ReplicaSettings(), lambda: silence, "127.0.0.1")  # type: ignore
        front._handle = silence  # type: ignore[assignment]
        with pytest.raises((TimeoutError, asyncio.TimeoutError)):
            await asyncio.wait_for(front._whole(Call("a", "GET", "/metrics"), ""), 0.05)

    asyncio.run(scrape())
    assert silence.is_cancelled


def test_a_replica_does_not_know_all_tenants() -> None:
    """Its prefix store would remove the files of those that it does not know."""
    assert _FrontsKeys({}, shares_prefixes=False).tenants() is None
