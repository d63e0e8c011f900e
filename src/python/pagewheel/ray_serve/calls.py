"""What a front hands to a replica, and the beginning of what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# The front says in it whose API key a request has; it lets no client say so.
OWNER_HEADER = "x-pagewheel-owner"
# In answers: the replica that gave it.
REPLICA_HEADER = "x-pagewheel-replica"


@dataclass(frozen=True)
class Call:
    """An HTTP request."""

    id: str
    method: str
    path: str
    query: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""


@dataclass(frozen=True)
class Head:
    """The first thing a replica sends, with its tag; the body's pieces follow as bytes."""

    replica: str
    status: int
    headers: Mapping[str, str]
    body: bytes
