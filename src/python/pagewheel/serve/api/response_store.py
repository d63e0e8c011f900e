"""Answers of /v1/responses that can be asked for again, in memory and within limits."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pagewheel.serve.http.request_context import json_text


@dataclass(frozen=True)
class StoredResponse:
    """A response and the conversation that ends with it. Only its API key gets it.

    As JSON: parsed it takes many times the memory. Each message is a piece of its own, since
    Python's parser lets no other thread run before it is through with its text.
    """

    api_key_id: str
    response_json: bytes
    messages_json: tuple[bytes, ...]
    size: int  # in bytes, with what Python adds to each piece

    async def messages(self) -> list[dict[str, Any]]:
        """They are parsed on another thread: there may be many."""
        return await asyncio.to_thread(lambda: [json.loads(each) for each in self.messages_json])


async def packed(
    api_key_id: str,
    response: dict[str, Any],
    messages: Sequence[dict[str, Any]],
    before: StoredResponse | None = None,
) -> StoredResponse:
    earlier = () if before is None else before.messages_json

    def work() -> StoredResponse:
        whole = _json(response)
        history = (*earlier, *(_json(each) for each in messages))
        size = sum(map(sys.getsizeof, (whole, *history, history)))
        return StoredResponse(api_key_id, whole, history, size)

    return await asyncio.to_thread(work)


class ResponseStore:
    """Where room is needed, the oldest of the key with most goes. On the event loop."""

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._kept: dict[str, OrderedDict[str, StoredResponse]] = {}  # by API key, the oldest first
        self._counts: Counter[str] = Counter()
        self._sizes: Counter[str] = Counter()  # in bytes

    def __len__(self) -> int:
        return self._counts.total()

    def put(self, name: str, stored: StoredResponse) -> None:
        """A response that is larger than all may be is not kept."""
        api_key_id = stored.api_key_id
        self._kept.setdefault(api_key_id, OrderedDict())[name] = stored
        self._counts[api_key_id] += 1
        self._sizes[api_key_id] += stored.size
        while self._counts.total() > self._max_count:
            self._make_room(self._counts)
        while self._sizes.total() > self._max_bytes:
            self._make_room(self._sizes)

    def _make_room(self, shares: Counter[str]) -> None:
        largest = max(shares, key=lambda api_key_id: shares[api_key_id])
        self._drop(largest, next(iter(self._kept[largest])))

    def get(self, api_key_id: str, name: str) -> StoredResponse | None:
        """None for another key's response, too."""
        kept = self._kept.get(api_key_id)
        return None if kept is None else kept.get(name)

    def delete(self, api_key_id: str, name: str) -> bool:
        if self.get(api_key_id, name) is None:
            return False
        self._drop(api_key_id, name)
        return True

    def _drop(self, api_key_id: str, name: str) -> None:
        self._sizes[api_key_id] -= self._kept[api_key_id].pop(name).size
        self._counts[api_key_id] -= 1
        if not self._kept[api_key_id]:
            del self._kept[api_key_id], self._sizes[api_key_id], self._counts[api_key_id]


def _json(value: Any) -> bytes:
    return json_text(value).encode()
