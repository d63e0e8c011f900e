"""One HTTP request and its answer: from its headers to the last byte, or till the client leaves."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pagewheel.serve.errors import PROMPT, RequestError, unavailable
from pagewheel.serve.http.admission import AdmissionController
from pagewheel.serve.http.body import ClientGoneError, ignored_fields, read_both
from pagewheel.serve.http.errors import OPENAI, ApiError, Protocol, closing
from pagewheel.serve.metrics import Metrics
from pagewheel.serve.security import AllowedHosts, ApiKeys, Tenant, name_in_logs
from pagewheel.serve.settings import KeyLimits, ServerSettings

if TYPE_CHECKING:
    from pagewheel.serve.tracing import Tracing

_log = logging.getLogger("pagewheel.serve")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_CLIENT_GONE = 499  # nginx's, in logs and metrics; nobody receives it

# The engine ends a request at its deadline; this is for what is not in the engine then.
_GRACE_SECONDS = 2.0
# Tokens and likely tokens: of so many, making an answer takes some 10 ms.
_MANY = 2048
_MOST_NAMED = 20  # of ignored fields
# So many bytes of a body take as long as an entry of an answer.
_BYTES_PER_ENTRY = 32

Handler = Callable[[Any], Awaitable[None]]  # takes a RequestContext
T = TypeVar("T")


@dataclass(frozen=True)
class RawJson:
    """A value that json_text() puts where it stands as it is: what no float can hold stays."""

    text: str


def json_text(value: Any) -> str:
    """Compact. Raises ValueError for what JSON has not: NaN and infinities."""
    verbatim: dict[str, str] = {}

    def stand_in(one: Any) -> str:
        if not isinstance(one, RawJson):
            raise TypeError(f"{type(one).__name__} is not JSON")
        name = uuid.uuid4().hex  # nobody can have it in a text
        verbatim[f'"{name}"'] = one.text
        return name

    text = json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=stand_in
    )
    for name, each in verbatim.items():
        text = text.replace(name, each)
    return text


async def offload(make: Callable[[], T], size: int) -> T:
    """Runs `make`, on another thread if it is of many entries: the loop serves others."""
    return make() if size < _MANY else await asyncio.to_thread(make)


class HttpService:
    tracing: Tracing | None = None

    def __init__(self, settings: ServerSettings, keys: ApiKeys, metrics: Metrics) -> None:
        self.settings = settings
        self.keys = keys
        self.metrics = metrics
        self.hosts = AllowedHosts(settings.host, settings.allowed_hosts, bool(settings.keys))
        self.admission = AdmissionController(settings.limits)


@dataclass(frozen=True)
class Endpoint:
    """What answers the requests of a path, and how they are treated."""

    handler: Handler
    protocol: Protocol = OPENAI
    needs_key: bool = True
    needs_admin: bool = False  # a key that may load, unload, fetch and remove models
    is_counted: bool = True  # in metrics: the page's own requests are not a client's
    is_limited: bool = True


S = TypeVar("S", bound=HttpService)


class RequestContext(Response, Generic[S]):
    """Runs a handler, which takes read_body() and sends one answer: send_json(), or events.

    The handler is cancelled where the client leaves or the server stops: it must release in
    `finally` what it holds.
    """

    def __init__(self, service: S, request: Request, endpoint: Endpoint) -> None:
        self.service = service
        self.request = request
        self.api_key_id = ""  # the API key's digest
        self.notes: dict[str, Any] = {}  # for the log
        self.body_entries = 0  # for offload(): of what is made of the body, once that is read
        self.prompt_field = "messages"  # the body's
        # Sends an error in a stream's own form. None: as an event that has the error's body.
        self.fail_stream: Callable[[ApiError], Awaitable[None]] | None = None
        self._endpoint = endpoint
        self.headers_beside: dict[str, str] = {}  # of the answer
        self._ignored_fields: list[str] = []
        given = request.headers.get("x-request-id", "")
        self.id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        self.background = None
        tracing = service.tracing if request.method == "POST" else None
        self.trace = None if tracing is None else tracing.begin(request.headers, self.id)
        self.began = time.monotonic()  # its span has begun: phases are within it
        self._scope = anyio.CancelScope()
        self._is_stopped = False
        self._status = 0  # of what was sent
        self._send: Send | None = None
        self._receive: Receive | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._send, self._receive = send, receive
        try:
            with self._scope:
                await self._answer()
            if self._scope.cancelled_caught:
                await self._end_cancelled()
        except ClientGoneError:
            self._status = _CLIENT_GONE
        finally:
            self._report()

    async def _answer(self) -> None:
        try:
            self._authenticate()
            with self._admitted():
                await self._endpoint.handler(self)
        except RequestError as error:
            await self._fail(ApiError.of(error))
        except ClientGoneError:
            raise
        except Exception:
            _log.exception("internal error", extra={"id": self.id})
            await self._fail(ApiError(500, "internal error", code="internal_error"))

    async def _fail(self, error: ApiError) -> None:
        if error.param == PROMPT:
            error.param = self.prompt_field
        self.notes["error"] = error.code or error.param or error.type
        if error.status == 500:
            self.notes["reason"] = error.message
        if self._status:  # a stream that has begun
            if self.fail_stream is None:
                await self.send_event(self._endpoint.protocol.error_body(error), "error")
            else:
                await self.fail_stream(error)
            await self.end_events()
        else:
            body = self._endpoint.protocol.error_body(error)
            await self.send_json(body, error.status, error.headers)

    async def _end_cancelled(self) -> None:
        if not self._is_stopped:
            self.notes["was"] = self._status
            self._status = _CLIENT_GONE
            return
        await self._fail(closing(unavailable("the server is shutting down", "shutting_down")))

    def _admitted(self) -> AbstractContextManager[None]:
        if not (self._endpoint.needs_key and self._endpoint.is_limited):
            return nullcontext()
        admission = self.service.admission
        return admission.entered(self, self.api_key_id, self.key_limits.requests)

    def _authenticate(self) -> None:
        """Raises ApiError for a wrong host or key."""
        if not self._endpoint.needs_key:  # probes call the server by any name
            return
        headers = self.request.headers
        if not self.service.hosts.allows(headers.get("host", "")):
            raise ApiError(
                403,
                f"this server does not answer to the host {headers.get('host', '')[:100]!r}; "
                "--allowed-host names others",
                code="host_not_allowed",
            )
        api_key_id = self.service.keys.api_key_id(headers)
        if api_key_id is None:
            raise ApiError(
                401,
                "Incorrect API key provided",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        self.api_key_id = api_key_id
        if self._endpoint.needs_admin and not self.is_admin:
            raise ApiError(
                403,
                "this needs a key with admin=yes behind it in the file of --api-key-file",
                code="admin_key_needed",
            )

    @property
    def is_admin(self) -> bool:
        """Whether the client's key may load, unload, fetch and remove models."""
        return self.key_limits.admin

    @property
    def key_limits(self) -> KeyLimits:
        return self.service.keys.limits(self.api_key_id)

    @property
    def tenant(self) -> Tenant:
        return self.service.keys.tenant(self.api_key_id)

    async def read_body(self) -> dict[str, Any]:
        """Raises ApiError, or ClientGoneError."""
        return (await self.read_both())[0]

    async def read_both(self) -> tuple[dict[str, Any], bytes]:
        assert self._receive is not None
        limits = self.service.settings.limits
        take = partial(self.service.admission.take_bytes, self)
        body, data = await read_both(self.request.headers, self._receive, limits, take)
        self.body_entries = len(data) // _BYTES_PER_ENTRY
        if self.service.settings.is_lenient:
            ignored_fields.set(self._ignored_fields)
        return body, data

    async def offload_by_body(self, make: Callable[[], T]) -> T:
        """offload() by the size of the body. `make` touches nothing of the loop."""
        return await offload(make, self.body_entries)

    async def while_connected(self, work: Awaitable[None]) -> None:
        """Awaits the work; ends it if the client leaves, or after a request's longest time."""
        seconds = self.service.settings.limits.request_seconds + _GRACE_SECONDS
        watcher = asyncio.ensure_future(self._watch())
        try:
            with anyio.move_on_after(seconds) as clock:
                await work
        finally:
            watcher.cancel()
        if clock.cancelled_caught:
            raise ApiError(408, f"the request took longer than {seconds:g} seconds")

    async def _watch(self) -> None:
        assert self._receive is not None
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._scope.cancel()

    def stop(self) -> None:
        """The server ends, and the time for running requests is over."""
        self._is_stopped = True
        self._scope.cancel()

    async def send_json(
        self, body: Any, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        await self.send_bytes(json_text(body).encode(), "application/json", status, headers)

    async def send_offloaded(self, make: Callable[[], Any], size: int) -> None:
        """Makes an answer of so many entries, on another thread if they are many."""
        data = await offload(lambda: json_text(make()).encode(), size)
        await self.send_bytes(data, "application/json")

    async def send_bytes(
        self, data: bytes, kind: str, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        length = {"content-length": str(len(data))}
        await self._start(status, kind, {**length, **(headers or {})})
        await self.send_raw(data, more_body=False)

    @property
    def has_begun(self) -> bool:
        return bool(self._status)

    async def start_other(self, status: int, headers: Mapping[str, str]) -> None:
        """Another application has made the answer: send_raw() and end_events() follow."""
        await self._start(status, headers.get("content-type", "text/plain"), headers)

    async def start_events(self, kind: str = "text/event-stream; charset=utf-8") -> None:
        """Sends 200, whatever happens later."""
        await self._start(200, kind, {"cache-control": "no-cache", "x-accel-buffering": "no"})

    async def send_line(self, body: Any, size: int = 0) -> None:
        """Sends a line of newline-delimited JSON, of so many entries."""
        await self.send_raw(await offload(lambda: f"{json_text(body)}\n".encode(), size))

    async def send_event(self, body: Any, name: str | None = None, size: int = 0) -> None:
        """Waits until the client takes what was sent before. The event has so many entries."""
        begin = "data: " if name is None else f"event: {name}\ndata: "
        data = await offload(lambda: f"{begin}{json_text(body)}\n\n".encode(), size)
        await self.send_raw(data)

    async def send_raw(self, data: bytes, more_body: bool = True) -> None:
        assert self._send is not None
        await self._send({"type": "http.response.body", "body": data, "more_body": more_body})

    async def end_events(self, last: bytes = b"") -> None:
        await self.send_raw(last, more_body=False)

    async def _start(self, status: int, kind: str, headers: Mapping[str, str]) -> None:
        assert self._send is not None
        self._status = status
        own = self._endpoint.protocol.id_header
        ids = {own: self.id, "x-request-id": self.id}
        every = {"content-type": kind, **ids, **self.headers_beside, **headers}
        if self._ignored_fields:
            every["x-ignored-fields"] = ", ".join(self._ignored_fields[:_MOST_NAMED])
        raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in every.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    def _report(self) -> None:
        route = self.request.scope.get("route")
        path = getattr(route, "path", "")
        if self._endpoint.is_counted:
            self.service.metrics.answers.labels(path=path, status=str(self._status)).inc()
        if self.trace is not None:
            self.trace.end(self.request.method, path, self._status)
        is_loud = self._endpoint.needs_key and self._endpoint.is_counted
        level = logging.INFO if is_loud else logging.DEBUG
        _log.log(
            level,
            "request",
            extra={
                "id": self.id,
                "path": path,
                "status": self._status,
                "seconds": round(time.monotonic() - self.began, 4),
                **({"key": name_in_logs(self.api_key_id)} if self.api_key_id else {}),
                **self.notes,
            },
        )
