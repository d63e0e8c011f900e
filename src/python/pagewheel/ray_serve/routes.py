"""Which replica a request goes to: the one that knows its beginning, unless that one is busy.

Shared by the front, on its event loop, and Ray Serve's router, which has a thread of its own.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import Any

from pagewheel.serve.embedding import Tenant

# About as much text as the tokens of a block of the engine's cache.
BLOCK_BYTES = 128
# A request's blocks beyond these do not matter for where it goes.
MAX_BLOCKS = 1024
_KEY_BYTES = 8
_NOBODY = Tenant("")

# The fields that make a prompt, in the order in which it has them.
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "/v1/chat/completions": ("tools", "messages"),
    "/v1/completions": ("prompt",),
    "/v1/responses": ("instructions", "input"),
    "/v1/messages": ("tools", "system", "messages"),
    "/api/chat": ("tools", "messages"),
    "/api/generate": ("system", "prompt"),
}


def prefix_keys(
    path: str, body: Mapping[str, Any], model: str, tenant: Tenant = _NOBODY
) -> tuple[bytes, ...]:
    """Gives a key per whole block of the prompt; each stands for all of the prompt up to its end.

    Requests of two models, tenants or values of `cache_salt` share no key: they share no cache.
    """
    if path not in _FIELDS:
        return ()
    given = body.get("cache_salt")
    salt = tenant.salt(given if isinstance(given, str) else "")
    key = _digest(json.dumps([path, model, salt]).encode())
    keys = []
    for block in _blocks(_pieces(body, _FIELDS[path])):
        key = _digest(key + block)
        keys.append(key)
        if len(keys) == MAX_BLOCKS:
            break
    return tuple(keys)


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_KEY_BYTES).digest()


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yields whole blocks; the rest of the text is left out."""
    rest = b""
    for piece in pieces:
        rest += piece
        whole = len(rest) - len(rest) % BLOCK_BYTES
        for begin in range(0, whole, BLOCK_BYTES):
            yield rest[begin : begin + BLOCK_BYTES]
        rest = rest[whole:]


def _pieces(body: Mapping[str, Any], fields: Iterable[str]) -> Iterator[bytes]:
    """A list's elements one by one: a longer conversation begins as the shorter one does."""
    values = (body.get(field) for field in fields)
    for each in chain.from_iterable(one if isinstance(one, list) else [one] for one in values):
        if isinstance(each, str):
            yield each.encode()
        elif each is not None:
            yield json.dumps(each, sort_keys=True, separators=(",", ":")).encode() + b","


@dataclass
class _Ticket:
    """A request on its way. `target` is the one replica that can answer it, if there is one."""

    keys: tuple[bytes, ...]
    target: str
    replica: str = ""  # where it is


class Routes:
    """Replicas, what each has seen, and what each has to do. All methods are atomic."""

    def __init__(self, imbalance: int, blocks: int) -> None:
        self._imbalance = imbalance  # requests that a replica may have more than another
        self._blocks = blocks  # keys remembered of a replica
        self._lock = threading.Lock()
        self._seen: dict[str, OrderedDict[bytes, None]] = {}
        self._tickets: dict[str, _Ticket] = {}
        self._decisions: Counter[str] = Counter()

    def replicas(self) -> list[str]:
        with self._lock:
            return list(self._seen)

    def set_replicas(self, tags: Sequence[str]) -> None:
        """Sets the replicas that run; what others have seen is forgotten."""
        with self._lock:
            self._seen = {tag: self._seen.get(tag, OrderedDict()) for tag in tags}

    def remove(self, tag: str) -> None:
        """Forgets a replica that has died."""
        with self._lock:
            self._seen.pop(tag, None)

    def loads(self) -> Counter[str]:
        """Counts requests per replica."""
        with self._lock:
            return self._loads()

    def decisions(self) -> dict[str, int]:
        """Says how many requests with a prefix went where for which reason."""
        with self._lock:
            return dict(self._decisions)

    def num_blocks(self) -> int:
        """Counts blocks that are remembered, of all replicas."""
        with self._lock:
            return sum(len(each) for each in self._seen.values())

    @contextmanager
    def ticket(self, name: str, keys: tuple[bytes, ...], target: str = "") -> Iterator[None]:
        """Knows the request `name` for as long as it is under way."""
        with self._lock:
            self._tickets[name] = _Ticket(keys, target)
        try:
            yield
        finally:
            with self._lock:
                del self._tickets[name]

    def order(self, name: str, tags: Sequence[str], reported: Mapping[str, int]) -> list[str]:
        """Sorts the replicas `tags`, best first, and counts the request for the first.

        `reported` is what replicas have to do as they say: other fronts' requests too.
        """
        with self._lock:
            ticket = self._tickets.get(name, _Ticket((), ""))
            own = self._loads()
            own[ticket.replica] -= 1
            loads = {tag: max(own[tag], reported.get(tag, 0)) for tag in tags}
            matches = {tag: self._match(tag, ticket.keys) for tag in tags}
            most = min(loads.values(), default=0) + self._imbalance
            first = ticket.keys[0] if ticket.keys else name.encode()

            def rank(tag: str) -> tuple[bool, bool, int, int, bytes]:
                is_busy = loads[tag] > most
                match = 0 if is_busy else -matches[tag]
                return tag != ticket.target, is_busy, match, loads[tag], _mixed(first, tag)

            found = sorted(tags, key=rank)
            if found:
                if ticket.keys and not ticket.replica:
                    self._decisions[_reason(ticket, found[0], matches)] += 1
                self._place(ticket, found[0])
            return found

    def sent(self, name: str, tag: str) -> None:
        """Notes which replica has taken the request: the first of order(), or one after it."""
        with self._lock:
            ticket = self._tickets.get(name)
            if ticket is not None and ticket.replica != tag:
                self._place(ticket, tag)

    def _loads(self) -> Counter[str]:
        return Counter(each.replica for each in self._tickets.values() if each.replica)

    def _match(self, tag: str, keys: Sequence[bytes]) -> int:
        """Counts the keys, from the first on, that the replica has seen."""
        seen: Mapping[bytes, None] = self._seen.get(tag, {})
        for number, key in enumerate(keys):
            if key not in seen:
                return number
        return len(keys)

    def _place(self, ticket: _Ticket, tag: str) -> None:
        ticket.replica = tag
        seen = self._seen.get(tag)
        if seen is None:
            return
        for key in reversed(ticket.keys):  # a beginning is forgotten after what follows it
            seen[key] = None
            seen.move_to_end(key)
        while len(seen) > self._blocks:
            seen.popitem(last=False)


def _reason(ticket: _Ticket, tag: str, matches: Mapping[str, int]) -> str:
    if ticket.target:
        return "target" if tag == ticket.target else "lost"
    most = max(matches.values())
    if not most:
        return "new"
    return "prefix" if matches[tag] == most else "busy"


def _mixed(key: bytes, tag: str) -> bytes:
    """Mixes alike in every front, so that all of them send a new prefix to the same replica."""
    return blake2b(key + tag.encode(), digest_size=8).digest()


_ROUTES: dict[str, Routes] = {}
_ROUTES_LOCK = threading.Lock()


def routes_of(name: str, imbalance: int, blocks: int) -> Routes:
    """This process's, by a deployment's name: Ray Serve makes the router, not the front."""
    with _ROUTES_LOCK:
        return _ROUTES.setdefault(name, Routes(imbalance, blocks))
