"""Answers of /v1/responses that can be asked for again, in memory and within limits."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Any

from pagewheel.serve.http.exchange import json_text


@dataclass(frozen=True)
class Stored:
    """A response and the conversation that ends with it. Only its owner gets it.

    As JSON: parsed it takes many times the memory.
    """

    owner: str
    response_json: bytes
    messages_json: bytes

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.response_json) + len(self.messages_json)

    @property
    def response(self) -> dict[str, Any]:
        return dict(json.loads(self.response_json))

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(json.loads(self.messages_json))


class ResponseStore:
    """Where room is needed, the oldest of whoever has most goes. On the event loop."""

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[str, Stored] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, owner: str, response: dict[str, Any], messages: list[dict[str, Any]]) -> None:
        """Not kept if it is larger than all that may be."""
        stored = Stored(owner, _packed(response), _packed(messages))
        self._kept[response["id"]] = stored
        self._bytes += stored.size
        while len(self._kept) > self._max_count:
            self._make_room(Counter(each.owner for each in self._kept.values()))
        while self._bytes > self._max_bytes:
            sizes: Counter[str] = Counter()
            for each in self._kept.values():
                sizes[each.owner] += each.size
            self._make_room(sizes)

    def _make_room(self, shares: Counter[str]) -> None:
        largest = max(shares, key=lambda owner: shares[owner])
        self._drop(next(name for name, each in self._kept.items() if each.owner == largest))

    def get(self, owner: str, name: str) -> Stored | None:
        """None for what is another's, too."""
        found = self._kept.get(name)
        return found if found is not None and found.owner == owner else None

    def delete(self, owner: str, name: str) -> bool:
        """Whether it was there."""
        if self.get(owner, name) is None:
            return False
        self._drop(name)
        return True

    def _drop(self, name: str) -> None:
        self._bytes -= self._kept.pop(name).size


def _packed(value: Any) -> bytes:
    return json_text(value).encode()
