"""How many requests are served at once, with which bodies, and whether any are."""

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


class AdmissionController:
    """Lives on the event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._inside: set[Stoppable] = set()
        self._by_key: Counter[str] = Counter()
        self._body_bytes: Counter[Stoppable] = Counter()
        self._total_bytes = 0  # of all bodies
        self.is_closed = False  # the server is about to end

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
            self._total_bytes -= self._body_bytes.pop(request, 0)
            self._by_key[api_key_id] -= 1
            if not self._by_key[api_key_id]:
                del self._by_key[api_key_id]

    def take_bytes(self, request: Stoppable, count: int) -> bool:
        """Says whether there was room for so many more bytes of a request's body."""
        most = self._limits.bodies_bytes
        if most and self._total_bytes + count > most:
            return False
        self._body_bytes[request] += count
        self._total_bytes += count
        return True

    def close(self) -> None:
        """Lets nobody in any more."""
        self.is_closed = True

    def stop_all(self) -> None:
        """Cancels those that are inside."""
        for request in list(self._inside):
            request.stop()
