"""What the front leaves behind with replicas that do not answer."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("ray", reason="ray is not installed: pip install 'pagewheel[ray]'")

from pagewheel.ray_serve.calls import Call
from pagewheel.ray_serve.front import Front
from pagewheel.ray_serve.settings import ReplicaSettings
from pagewheel.serve.settings import ModelSettings, ServerSettings


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
