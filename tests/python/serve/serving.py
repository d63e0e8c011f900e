"""A server on a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
from waiting import eventually

from pagewheel.serve.models.engine import Engine
from pagewheel.serve.server import Server, listen
from pagewheel.serve.settings import Limits, ModelSettings, ServerSettings

SECONDS = 60.0


class Served:
    """What tests ask of it: clients, and what is inside."""

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.http = httpx.Client(base_url=self.url, timeout=SECONDS)
        self.client = openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    @property
    def engine(self) -> Engine:
        """Of the only model, once it is in memory."""
        return next(iter(self.server.service.registry.loaded()))

    def post(self, path: str, body: Any, **named: Any) -> httpx.Response:
        return self.http.post(path, json=body, **named)

    def is_at_rest(self) -> bool:
        """No request inside, and every block free or kept for prefixes."""
        return (
            len(self.server.service.admission) == 0
            and not self.engine._pipeline.has_non_finished_requests()
            and self.engine.statistics().num_used_blocks == 0
        )

    def metric(self, name: str, **labels: str) -> float:
        """A sample of /metrics, 0 if there is none; labels it has beside these do not matter."""
        total = 0.0
        for line in self.http.get("/metrics").text.splitlines():
            if line.startswith(name + "{") and all(
                f'{key}="{value}"' in line for key, value in labels.items()
            ):
                total += float(line.rpartition(" ")[2])
        return total


def tiny_settings(
    folder: Path,
    limits: Limits | None = None,
    scheduler: Any = None,
    properties: Any = None,
    **others: Any,
) -> ServerSettings:
    model = ModelSettings(
        "tiny",
        folder,
        properties=properties or {},
        scheduler={"num_kv_blocks": 400, **(scheduler or {})},
        is_pinned=True,
    )
    return ServerSettings(models=(model,), port=0, limits=limits or Limits(), **others)


@contextmanager
def serving(settings: ServerSettings) -> Iterator[Served]:
    """Until the block is left; the thread has ended then."""
    listening = listen(settings.host, settings.port)
    server = Server(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    served = Served(server, listening.getsockname()[1])
    try:
        eventually(lambda: server.started and served.http.get("/ready").status_code == 200, 60)
        yield served
    finally:
        served.http.close()
        served.client.close()
        server.should_exit = True
        thread.join(SECONDS)
        listening.close()
        assert not thread.is_alive()


def num_descriptors() -> int:
    """Of this process."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def tasks_of(served: Served) -> int:
    """How many tasks the server's loop has."""
    done: list[int] = []

    async def count() -> None:
        done.append(len(asyncio.all_tasks()))

    loop = served.server.servers[0].get_loop()
    asyncio.run_coroutine_threadsafe(count(), loop).result(SECONDS)
    return done[0]
