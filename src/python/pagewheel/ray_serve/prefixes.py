"""What requests have in common at their beginning: keys of their first blocks of text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import chain
from typing import Any

from pagewheel.serve.models.tenant import Tenant

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
}


def prefix_keys(
    path: str, body: Mapping[str, Any], model: str, tenant: Tenant = _NOBODY
) -> tuple[bytes, ...]:
    """A key per whole block of the prompt; each stands for all of the prompt up to its end.

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
    """Whole ones; the rest of the text is left out."""
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
