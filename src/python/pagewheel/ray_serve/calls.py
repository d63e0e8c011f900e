"""What a front hands to a replica, and what a replica says before and after the body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# The front says in it whose API key a request has; it lets no client say so.
API_KEY_HEADER = "x-pagewheel-api-key-id"
# In answers: the replica that gave it.
REPLICA_HEADER = "x-pagewheel-replica"


@dataclass(frozen=True)
class Destination:
    """Where a replica brings a stream. Who connects there says `key`, which nobody else knows."""

    host: str
    port: int
    key: str


@dataclass(frozen=True)
class Call:
    id: str
    method: str
    path: str
    query: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""
    destination: Destination | None = None  # of a streamed answer; None: it goes through Ray


@dataclass(frozen=True)
class Head:
    """The first thing a replica sends, with its tag and the first piece of the body.

    The other pieces follow as bytes. If they are brought to the destination, an End follows.
    """

    replica: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    is_brought: bool = False  # the rest, to the destination


@dataclass(frozen=True)
class End:
    """All that a replica had to bring to the destination is on its way there."""

    size: int  # bytes


def is_stream(headers: Mapping[str, str]) -> bool:
    """Whether an answer with these headers is a stream of events, or of Ollama's lines."""
    return headers.get("content-type", "").startswith(("text/event-stream", "application/x-ndjson"))
