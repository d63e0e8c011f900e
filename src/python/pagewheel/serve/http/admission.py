"""How many requests are served at once, of all clients and of one key, and whether any are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pagewheel.serve.http.errors import ApiError, too_many, unavailable
from pagewheel.serve.settings import Limits

if TYPE_CHECKING:
    from pagewheel.serve.http.request_context import RequestContext


class QueueQuota:
    """What one request takes of its key's places: one for each prompt that has no token yet."""

    def __init__(self, by_key: Counter[str], api_key_id: str, most: int) -> None:
        self._by_key = by_key
        self._api_key_id = api_key_id
        self._most = most
        self._taken = 0

    @property
    def api_key_id(self) -> str:
        return self._api_key_id

    def take(self, count: int) -> None:
        """Raises ApiError where the key has not so many."""
        if not self._most:
            return
        if count > self._most:  # waiting does not help
            raise ApiError(
                400,
                f"the request has {count} prompts; of this key {self._most} may wait",
                code="key_queue_limit",
            )
        if self._by_key[self._api_key_id] + count > self._most:
            raise too_many(f"{self._most} requests of this key may wait", "key_queue_limit")
        self._by_key[self._api_key_id] += count
        self._taken = count

    def leave(self) -> None:
        """One of them."""
        if self._taken:
            self._taken -= 1
            self._by_key[self._api_key_id] -= 1

    def leave_all(self) -> None:
        while self._taken:
            self.leave()


class BodyBytes:
    """What the bodies of all requests take that are being served."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: Counter[RequestContext] = Counter()
        self._total = 0

    def take(self, context: RequestContext, count: int) -> bool:
        """Whether there was room for so many more of this request."""
        if self._most and self._total + count > self._most:
            return False
        self._taken[context] += count
        self._total += count
        return True

    def give_back(self, context: RequestContext) -> None:
        """All of a request."""
        self._total -= self._taken.pop(context, 0)


class AdmissionController:
    """On the event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._inside: set[RequestContext] = set()
        self._by_key: Counter[str] = Counter()
        self._waiting_by_key: Counter[str] = Counter()
        self._is_closed = False
        self.body_bytes = BodyBytes(limits.bodies_bytes)

    @property
    def is_closed(self) -> bool:
        """Whether the server is about to end."""
        return self._is_closed

    def __len__(self) -> int:
        return len(self._inside)

    @contextmanager
    def entered(self, context: RequestContext) -> Iterator[None]:
        """Raises ApiError for one that may not be served now."""
        context.authenticate()
        if not context.is_limited_by_key:
            yield
            return
        self._check(context)
        self._inside.add(context)
        self._by_key[context.api_key_id] += 1
        try:
            yield
        finally:
            self._inside.discard(context)
            self.body_bytes.give_back(context)
            self._by_key[context.api_key_id] -= 1
            if not self._by_key[context.api_key_id]:
                del self._by_key[context.api_key_id]

    def _check(self, context: RequestContext) -> None:
        if self._is_closed:
            error = unavailable("the server is shutting down", "shutting_down")
            error.headers["Connection"] = "close"
            raise error
        if len(self._inside) >= self._limits.concurrency:
            raise unavailable(
                f"{self._limits.concurrency} requests are being served", "too_many_requests", 1
            )
        most = context.key_limits.requests or self._limits.concurrency_per_key
        if most and self._by_key[context.api_key_id] >= most:
            raise too_many(f"{most} requests of this key are being served", "key_limit")

    def queue_quota(self, context: RequestContext) -> QueueQuota:
        """None is taken yet."""
        most = context.key_limits.queue or self._limits.queue_per_key
        return QueueQuota(self._waiting_by_key, context.api_key_id, most)

    def close(self) -> None:
        """Lets nobody in any more."""
        self._is_closed = True

    def stop_all(self) -> None:
        """Cancels those that are inside."""
        for context in list(self._inside):
            context.stop()
