"""Whose cached prefixes a request finds: those of its API key, or of keys that share by name."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

_BETWEEN = ":"


@dataclass(frozen=True)
class Tenant:
    """`id` is "" where there are no API keys. It is a digest, as it is part of files on disk."""

    ID_PATTERN: ClassVar[str] = "(?:key|group)-[0-9a-f]{32}"  # of each but ""

    id: str
    is_shared: bool = False  # by several keys: none may be told how much of a prompt was cached

    @staticmethod
    def of_key(api_key_id: str) -> Tenant:
        """`api_key_id` is the key's digest, as ApiKeys.api_key_id() gives it."""
        return Tenant(f"key-{_digest('key', api_key_id)}")

    @staticmethod
    def of_group(name: str) -> Tenant:
        """Of keys that share prefixes under this name."""
        return Tenant(f"group-{_digest('group', name)}", is_shared=True)

    def salt(self, given: str = "") -> str:
        """The engine's cache_salt for a request whose client has sent `given`."""
        return f"{self.id}{_BETWEEN}{_digest('salt', given)}" if given else self.id

    @staticmethod
    def id_of(salt: str) -> str:
        """The tenant's of a salt()."""
        return salt.partition(_BETWEEN)[0]


def _digest(kind: str, text: str) -> str:
    return hashlib.sha256(f"pagewheel {kind}\n{text}".encode()).hexdigest()[:32]
