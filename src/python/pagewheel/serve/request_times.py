"""When what happened to a request in the engine, for metrics and traces."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RequestTimes:
    """Seconds since the request arrived; None: it did not come so far."""

    whole: float
    queue: float | None = None  # to its first step
    first_token: float | None = None
    last_token: float | None = None

    @property
    def prefill(self) -> float | None:
        """From the first step to the first token."""
        return _between(self.queue, self.first_token)

    @property
    def decode(self) -> float | None:
        """From the first token to the last."""
        return _between(self.first_token, self.last_token)

    @property
    def inference(self) -> float | None:
        """From the first step to the last token."""
        return _between(self.queue, self.last_token)


def _between(begin: float | None, end: float | None) -> float | None:
    """Not negative: both come from clocks that are read at different places."""
    return None if begin is None or end is None else max(0.0, end - begin)
