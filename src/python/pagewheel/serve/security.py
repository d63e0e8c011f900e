"""Who may ask: API keys, whose prefixes they find, and the Host header where there are no keys."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from pagewheel.errors import InvalidArgumentError
from pagewheel.serve.settings import KeyLimits

ENVIRONMENT = "PAGEWHEEL_API_KEYS"
_MIN_KEY_LENGTH = 8
_NO_LIMITS = KeyLimits()
# What may stand behind a key: its form and type.
_LIMITS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "requests": (r"[1-9]\d{0,8}", int),
    "queue": (r"[1-9]\d{0,8}", int),
    "priority": (r"-?\d{1,9}", int),
    "prefixes": (r"[\w.-]{1,64}", str),
    "admin": (r"yes", bool),
}


def read_keys(
    file: Path | None, environment: Mapping[str, str] = os.environ
) -> dict[str, KeyLimits]:
    """The environment's keys, parted by commas, then a file's, each with its limits.

    A line of the file is a key and what it may take: `KEY requests=8 queue=4 priority=0`. ApiKeys
    with the same `prefixes=NAME` share cached prefixes. Lines that begin with # say nothing. The
    environment's key may be in the file, too: its limits stand there.
    """
    given = environment.get(ENVIRONMENT, "").split(",")
    found = {key.strip(): KeyLimits() for key in given if key.strip()}
    if file is not None:
        found.update(_keys_of_file(file))
    if file is not None and not found:
        raise InvalidArgumentError(f"{file} has no API key")
    if any(len(key) < _MIN_KEY_LENGTH or not key.isascii() for key in found):
        raise InvalidArgumentError(
            f"API keys must be {_MIN_KEY_LENGTH} or more ASCII characters; one is not"
        )
    return found


def _keys_of_file(file: Path) -> dict[str, KeyLimits]:
    found: dict[str, KeyLimits] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        key, *limits = line.split() or [""]
        if not key or key.startswith("#"):
            continue
        first = lines.setdefault(key, number)
        if first != number:
            raise InvalidArgumentError(
                f"{file}, lines {first} and {number}: they have the same API key, which may stand "
                "in one line alone"
            )
        found[key] = _key_limits(f"{file}, line {number}", limits)
    return found


def _key_limits(place: str, words: Sequence[str]) -> KeyLimits:
    """The words after a key. What is wrong is told without them: one may be part of a key."""
    found: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        form, kind = _LIMITS.get(name, ("", str))
        if name in found or not (form and re.fullmatch(form, value, re.ASCII)):
            raise InvalidArgumentError(
                f"{place}: behind the key may be requests=N and queue=N of 1 or more, priority=N, "
                "prefixes=NAME of up to 64 letters, digits and any of _.-, and admin=yes, each once"
            )
        found[name] = kind(value)
    return KeyLimits(**found)


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Tenant:
    """Whose cached prefixes a request finds: those of its API key, or of keys that share by name.

    `id` is "" where there are no API keys. It is a digest, as it is part of files on disk.
    """

    ID_PATTERN: ClassVar[str] = "(?:key|group)-[0-9a-f]{32}"  # of each but ""

    id: str
    is_shared: bool = False  # by several keys: none may be told how much of a prompt was cached

    @staticmethod
    def of_key(api_key_id: str) -> Tenant:
        return Tenant(f"key-{_tenant_digest('key', api_key_id)}")

    @staticmethod
    def of_group(name: str) -> Tenant:
        return Tenant(f"group-{_tenant_digest('group', name)}", is_shared=True)

    def salt(self, given: str = "") -> str:
        """The engine's cache_salt for a request whose client has sent `given`."""
        return f"{self.id}:{_tenant_digest('salt', given)}" if given else self.id

    @staticmethod
    def id_of(salt: str) -> str:
        return salt.partition(":")[0]


def _tenant_digest(kind: str, text: str) -> str:
    return hashlib.sha256(f"pagewheel {kind}\n{text}".encode()).hexdigest()[:32]


class ApiKeys:
    """Compares in constant time, and knows keys by digests alone."""

    def __init__(
        self,
        keys: Iterable[str],
        limits: Mapping[str, KeyLimits] = MappingProxyType({}),
        shares_prefixes: bool = False,
    ) -> None:
        """`shares_prefixes`: all keys that are in no group share cached prefixes."""
        self._digests = [_digest(key.encode()) for key in keys]
        self._limits = {_digest(key.encode()).hex(): own for key, own in limits.items()}
        self._default_group = "" if shares_prefixes else None

    def __bool__(self) -> bool:
        return bool(self._digests)

    def api_key_id(self, headers: Mapping[str, str]) -> str | None:
        """The digest of the key of whoever asks, "" where no key is needed; None: refuse.

        The key is in `Authorization: Bearer` as OpenAI's clients send it, or in `x-api-key`.
        """
        if not self._digests:
            return ""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        asked = _digest(given.encode("utf-8", "surrogateescape"))
        found = False
        for digest in self._digests:  # all of them, whichever fits
            found |= hmac.compare_digest(digest, asked)
        return asked.hex() if found else None

    def limits_by_id(self) -> dict[str, KeyLimits]:
        return dict(self._limits)

    def limits(self, api_key_id: str) -> KeyLimits:
        return self._limits.get(api_key_id, _NO_LIMITS)

    def tenant(self, api_key_id: str) -> Tenant:
        if not api_key_id:
            return Tenant("")
        group = self.limits(api_key_id).prefixes
        group = self._default_group if group is None else group
        return Tenant.of_key(api_key_id) if group is None else Tenant.of_group(group)

    def tenants(self) -> frozenset[str] | None:
        """The ids of all that there are; None: they are not known here."""
        api_key_ids = [digest.hex() for digest in self._digests] or [""]
        return frozenset(self.tenant(api_key_id).id for api_key_id in api_key_ids)

    @property
    def share_prefixes(self) -> bool:
        """Whether several keys may find the same cached prefixes."""
        groups = (each.prefixes for each in self._limits.values())
        return self._default_group is not None or any(each is not None for each in groups)


class AllowedHosts:
    """Refuses other names for a server that only this machine can reach and that has no keys.

    A page in a browser could have its own name resolved to 127.0.0.1, and then read answers.
    """

    def __init__(self, host: str, allowed: Iterable[str], has_keys: bool) -> None:
        self._allowed = {name.lower() for name in allowed}
        self._is_open = not self._allowed and (has_keys or not is_loopback(host))

    def allows(self, header: str) -> bool:
        """`header` is the request's Host, with or without a port."""
        if self._is_open:
            return True
        name = header.lower()
        if name.startswith("["):
            name = name.partition("]")[0][1:]
        elif name.count(":") == 1:
            name = name.partition(":")[0]
        return is_loopback(name) or name in self._allowed


def name_in_logs(api_key_id: str) -> str:
    """Enough of a key's digest to tell keys apart by eye."""
    return api_key_id[:12]


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
