"""The front: one endpoint before all replicas. It has the keys, the limits and the routes."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fastapi import FastAPI
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from ray.exceptions import RayActorError
from ray.serve.exceptions import DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from pagewheel.ray_serve.arrivals import Arrivals, PassedEvents, StreamBrokenError
from pagewheel.ray_serve.calls import API_KEY_HEADER, Call, Head, is_stream
from pagewheel.ray_serve.routes import prefix_keys, routes_of
from pagewheel.serve.embedding import (
    ApiError,
    Context,
    Endpoint,
    Handler,
    ServerSettings,
    Service,
    ready,
    unavailable,
)
from pagewheel.serve_options import ReplicaSettings


def merged(replicas: Mapping[str, bytes], front: bytes, prefix: str, of: Front) -> bytes:
    """Replicas' samples have their tag as the label `engine`, which vLLM has for the same."""
    families: dict[str, Metric] = {}
    # The front says what clients were answered: replicas know of attempts.
    own = f"{prefix}:http_requests"
    for family in _parsed(front):
        if family.name == own:
            families[own] = family
    for tag, text in sorted(replicas.items()):
        for family in _parsed(text):
            if family.name.startswith(own):
                continue
            into = families.setdefault(
                family.name, Metric(family.name, family.documentation, family.type)
            )
            for sample in family.samples:
                into.samples.append(sample._replace(labels={**sample.labels, "engine": tag}))
    return generate_latest(_Families([*families.values(), *_of_front(prefix, of)]))


def _parsed(text: bytes) -> Iterable[Metric]:
    return text_string_to_metric_families(text.decode())


def _of_front(prefix: str, front: Front) -> Iterable[Metric]:
    if not front.keys.share_prefixes:  # else they tell of a prompt whether others began alike
        yield from _of_routes(prefix, front)
    running = GaugeMetricFamily(
        f"{prefix}:router_requests_running", "Requests per replica.", labels=["engine"]
    )
    loads = front.routes.loads()
    for tag in front.routes.replicas():
        running.add_metric([tag], loads[tag])
    yield running
    yield CounterMetricFamily(
        f"{prefix}:router_retries",
        "Requests handed to another replica because one had failed.",
        value=front.num_retries,
    )


def _of_routes(prefix: str, front: Front) -> Iterable[Metric]:
    decisions = CounterMetricFamily(
        f"{prefix}:router_requests", "Requests by why they went where they did.", labels=["reason"]
    )
    for reason, count in front.routes.decisions().items():
        decisions.add_metric([reason], count)
    yield decisions
    yield GaugeMetricFamily(
        f"{prefix}:router_prefix_blocks",
        "Blocks of prompts that routes remember.",
        value=front.routes.num_blocks(),
    )


@dataclass
class _Families(Collector):
    families: list[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.families


_log = logging.getLogger("pagewheel.serve")
# A request whose replica fails is handed to others so often, if nothing was sent yet.
_ATTEMPTS = 4
_PAUSE_SECONDS = 0.1
_SCRAPE_SECONDS = 5.0
_RESPONSES = "/v1/responses"  # whose streams have an error's event of their own
_OWN = ("/health", "/version", "/api/version", "/api/embed", "/api/embeddings")
_TAG_LENGTH = 8
_ID_LENGTH = len("resp_") + _TAG_LENGTH + 32
# Headers of the connection to this process, or for it alone.
_NOT_PASSED_ON = (
    *("authorization", "x-api-key", "connection", "content-length", "transfer-encoding"),
    *("x-request-id", API_KEY_HEADER),
)

_SendPiece = Callable[[bytes], Awaitable[None]]


async def _refuse(context: Context) -> None:
    raise ApiError(501, "is not served where there are replicas", code="not_supported")


class Front(Service):
    """Serves every path of `pagewheel serve`: what it does not do itself, a replica does."""

    def __init__(
        self,
        settings: ServerSettings,
        replicas: ReplicaSettings,
        start: Callable[[], DeploymentHandle],
        stream_host: str | None,
    ) -> None:
        """`start` gives the replicas' handle, when there are replicas.

        `stream_host` is this machine's name for replicas; None: streams go through Ray.
        """
        super().__init__(settings)
        # They are this process's, which its router knows too.
        self.routes = routes_of(replicas.name, replicas.imbalance, replicas.prefix_blocks)
        self.num_retries = 0
        self._start = start
        self._stream_host = stream_host
        self._arrivals = Arrivals()
        self._handle: DeploymentHandle | None = None

    def served(self, path: str, endpoint: Endpoint) -> Endpoint:
        """What needs an admin is done to one process, so no replica does it."""
        own: Mapping[str, Handler] = {
            "/ready": self._ready,
            "/metrics": self._metrics,
            "/prefixes": self._prefixes,
            "/is_sleeping": _refuse,
        }
        other = _refuse if endpoint.needs_admin else own.get(path, self._forward)
        return endpoint if path in _OWN else replace(endpoint, handler=other)

    @asynccontextmanager
    async def running(self, app: FastAPI) -> AsyncIterator[None]:
        async with self._arrivals.listening(self._stream_host), super().running(app):
            yield

    async def load_pinned(self) -> None:
        """Starts the replicas, and waits for the first one."""
        try:
            handle = await asyncio.to_thread(self._start)
            self._handle = handle.options(stream=True, method_name="answer")
            async for _ in self._handle.remote(Call("start", "GET", "/ready")):
                pass
            _log.info("ready", extra={"replicas": self.routes.replicas()})
        except Exception as error:
            self.failure = error

    async def _ready(self, context: Context) -> None:
        """200 while some replica runs."""
        if self.admission.is_closed:
            await ready(context)  # says why not
        replicas = self.routes.replicas()
        if self._handle is None or not replicas:
            raise unavailable("no replica is ready", "loading")
        await context.send_json({"status": "ready", "replicas": len(replicas)})

    async def _metrics(self, context: Context) -> None:
        """Answers with metrics of this front and all replicas, whose tags become `engine`."""
        texts: dict[str, bytes] = {}

        async def scrape(target: str) -> None:
            call = Call(uuid.uuid4().hex, "GET", "/metrics")
            try:
                tag, text = await asyncio.wait_for(self._whole(call, target), _SCRAPE_SECONDS)
                texts[tag] = text
            except Exception as error:  # one that is gone or busy is left out
                _log.warning("no metrics", extra={"replica": target, "cause": str(error)})

        await asyncio.gather(*(scrape(tag) for tag in self.routes.replicas()))
        text = merged(texts, self.metrics.text(), self.settings.metrics_prefix, self)
        await context.send_bytes(text, "text/plain; version=0.0.4; charset=utf-8")

    async def _prefixes(self, context: Context) -> None:
        """Answers for all replicas: each has a cache of its own."""
        method = context.request.method

        async def ask(target: str) -> dict[str, Any]:
            headers = tuple(_headers(context))
            call = Call(uuid.uuid4().hex, method, "/prefixes", headers=headers)
            tag, body = await self._whole(call, target)
            answer: dict[str, Any] = json.loads(body)
            if tag != target or "error" in answer:
                raise unavailable("not all replicas have answered", "no_replica")
            return answer

        async def answer() -> None:
            try:
                found = await asyncio.gather(*(ask(tag) for tag in self.routes.replicas()))
            except RayActorError:
                raise unavailable("a replica has failed", "replica_failed", 1) from None
            if not found:
                raise unavailable("no replica is ready", "loading")
            await context.send_json(_summed(found))

        await context.while_connected(answer())

    async def _whole(self, call: Call, target: str) -> tuple[str, bytes]:
        """Returns who answered, and the body."""
        assert self._handle is not None
        is_over = False
        with self.routes.ticket(call.id, (), target):
            answer = self._handle.remote(call)
            try:
                head, *pieces = [each async for each in answer]
                is_over = True
            finally:
                if not is_over:  # it took too long, or whoever asked has left
                    answer.cancel()
        return head.replica, b"".join((head.body, *pieces))

    async def _forward(self, context: Context) -> None:
        body: dict[str, Any] = {}
        data = b""
        request = context.request
        if request.method == "POST":
            body, data = await context.read_both()
        path = request.url.path
        keys = prefix_keys(path, body, self._model_of(body), context.tenant)
        call = Call(
            uuid.uuid4().hex,  # a client's own id may be another's too
            request.method,
            path,
            request.scope["query_string"],
            tuple(_headers(context)),
            data,
        )
        target = _replica_of(body.get("previous_response_id") or path.rpartition("/")[2])
        await context.while_connected(self._ask(context, call, keys, target))

    def _model_of(self, body: Mapping[str, Any]) -> str:
        name = body.get("model")
        found = self.registry.target(name) if isinstance(name, str) else None
        return found or self.settings.models[0].name

    async def _ask(
        self, context: Context, call: Call, keys: tuple[bytes, ...], target: str
    ) -> None:
        """Asks until a replica has answered. One that fails before costs the client only time."""
        with self.routes.ticket(call.id, keys, target):
            for attempt in range(_ATTEMPTS):
                try:
                    return await self._pass_on(context, call)
                except DeploymentUnavailableError:
                    raise unavailable("no replica can be started", "no_replica") from None
                except (RayActorError, StreamBrokenError):
                    _log.warning("replica failed", extra={"id": context.id, "attempt": attempt})
                    if context.has_begun:
                        break
                    self.num_retries += 1
                    await asyncio.sleep(_PAUSE_SECONDS * 2**attempt)
        raise unavailable("the replica that served this request has failed", "replica_failed", 1)

    async def _pass_on(self, context: Context, call: Call) -> None:
        if self._handle is None:
            raise unavailable("replicas are being started", "loading")
        with self._arrivals.expected() as arrival:
            answer = self._handle.remote(replace(call, destination=arrival.destination))
            is_over = False
            events = PassedEvents()
            send: _SendPiece = context.send_raw
            try:
                async for piece in answer:
                    if isinstance(piece, Head):
                        send = await self._begin(context, piece, events)
                        if piece.is_brought:
                            await arrival.pass_on(anext(answer), send)
                    else:
                        await send(piece)
                is_over = True
                await context.end_events(events.left())
            finally:
                if not is_over:
                    answer.cancel()

    async def _begin(self, context: Context, head: Head, events: PassedEvents) -> _SendPiece:
        """Sends how the answer begins. Returns what sends the rest."""
        context.notes["replica"] = head.replica
        await context.start_other(head.status, head.headers)
        send: _SendPiece = context.send_raw
        if is_stream(head.headers):
            send = partial(events.pass_on, context)
            if context.request.url.path == _RESPONSES:
                context.fail_stream = partial(events.fail_response, context)
        if head.body:
            await send(head.body)
        return send


def _headers(context: Context) -> list[tuple[bytes, bytes]]:
    """Adds to the client's headers the ids of the request and of the API key."""
    passed = [
        (name, value)
        for name, value in context.request.scope["headers"]
        if name.decode("latin-1").lower() not in _NOT_PASSED_ON
    ]
    own = {"x-request-id": context.id, API_KEY_HEADER: context.api_key_id}
    return passed + [(name.encode(), value.encode()) for name, value in own.items()]


def _summed(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Adds up replicas' lists of prefixes, by model."""
    first, *others = answers
    for other in others:
        for own, more in zip(first.get("data", ()), other.get("data", ()), strict=True):
            if own["cached_tokens"] is not None:
                own["cached_tokens"] += more["cached_tokens"]
    return first


def _replica_of(response: Any) -> str:
    """Gives the one that has a stored response, by its id; none for what is no such id."""
    if not isinstance(response, str) or len(response) != _ID_LENGTH:
        return ""
    return response[len("resp_") :][:_TAG_LENGTH] if response.startswith("resp_") else ""
