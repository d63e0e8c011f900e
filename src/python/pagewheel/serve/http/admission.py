"""How many requests are served at once, of all clients and of one key, and whether any are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from pagewheel.serve.errors import too_many, unavailable
from pagewheel.serve.http.errors import closing
from pagewheel.serve.settings import Limits


class Stoppable(Protocol):
    """A request that is being served."""

    def stop(self) -> None: ...


class BodyBytes:
    """The memory of the bodies of all requests that are being served; 0 is no limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: Counter[Stoppable] = Counter()
        self._total = 0

    def take(self, request: Stoppable, count: int) -> bool:
        """Whether there was room for so many more of this request."""
        if self._most and self._total + count > self._most:
            return False
        self._taken[request] += count
        self._total += count
        return True

    def give_back(self, request: Stoppable) -> None:
        """All of a request."""
        self._total -= self._taken.pop(request, 0)


class AdmissionController:
    """On the event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._inside: set[Stoppable] = set()
        self._by_key: Counter[str] = Counter()
        self.is_closed = False  # the server is about to end
        self.body_bytes = BodyBytes(limits.bodies_bytes)

    def __len__(self) -> int:
        return len(self._inside)

    @contextmanager
    def entered(self, request: Stoppable, api_key_id: str, most: int) -> Iterator[None]:
        """Raises RequestError for one that may not be served now: of its key `most` may be."""
        most = most or self._limits.concurrency_per_key
        if self.is_closed:
            raise closing(unavailable("the server is shutting down", "shutting_down"))
        if len(self._inside) >= self._limits.concurrency:
            message = f"{self._limits.concurrency} requests are being served"
            raise unavailable(message, "too_many_requests", 1)
        if most and self._by_key[api_key_id] >= most:
            raise too_many(f"{most} requests of this key are being served", "key_limit")
        self._inside.add(request)
        self._by_key[api_key_id] += 1
        try:
            yield
        finally:
            self._inside.discard(request)
            self.body_bytes.give_back(request)
            self._by_key[api_key_id] -= 1
            if not self._by_key[api_key_id]:
                del self._by_key[api_key_id]

    def close(self) -> None:
        """Lets nobody in any more."""
        self.is_closed = True

    def stop_all(self) -> None:
        """Cancels those that are inside."""
        for request in list(self._inside):
            request.stop()
