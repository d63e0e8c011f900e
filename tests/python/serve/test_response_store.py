"""Responses that are kept: one API key's do not crowd out another's, nor hold others up."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable
from typing import Any, TypeVar

from pagewheel.serve.api.response_store import ResponseStore, StoredResponse, packed

T = TypeVar("T")
MESSAGES = [{"role": "user", "content": "a" * 100} for _ in range(50_000)]


def put(store: ResponseStore, api_key_id: str, response: dict[str, Any]) -> None:
    store.put(response["id"], asyncio.run(packed(api_key_id, response, [])))


def test_the_oldest_of_whoever_has_most_makes_room() -> None:
    store = ResponseStore(max_count=3, max_bytes=1 << 20)
    put(store, "modest", {"id": "first"})
    for name in ("one", "two", "three"):
        put(store, "greedy", {"id": name})
    assert store.get("modest", "first") is not None
    assert store.get("greedy", "one") is None
    assert store.get("greedy", "three") is not None
    assert len(store) == 3


def test_one_that_is_too_large_pushes_out_nothing_of_others() -> None:
    store = ResponseStore(max_count=3, max_bytes=100)
    put(store, "modest", {"id": "first"})
    put(store, "greedy", {"id": "large", "text": "a" * 200})
    assert store.get("modest", "first") is not None
    assert store.get("greedy", "large") is None


def test_the_store_is_bounded_in_bytes() -> None:
    store = ResponseStore(max_count=100, max_bytes=1000)
    for number in range(10):
        put(store, "", {"id": str(number), "text": "a" * 300})
    assert 1 <= len(store) <= 3
    assert store.get("", "9") is not None
    assert store.get("", "0") is None


def test_the_store_takes_the_memory_that_it_counts() -> None:
    store = ResponseStore(max_count=100, max_bytes=8 << 20)
    tracemalloc.start()
    for number in range(3):
        nested = [{"content": [[] for _ in range(100_000)]}]
        short = [{"role": "user", "content": ""} for _ in range(1000)]
        store.put(str(number), asyncio.run(packed("", {"id": str(number)}, nested + short)))
    del nested, short
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(store) == 3
    found = store.get("", "1")
    assert found is not None
    assert found.response_json == b'{"id":"1"}'
    assert asyncio.run(found.messages())[0] == {"content": [[]] * 100_000}
    assert taken < 3 * found.size + (1 << 19)


def test_what_is_deleted_is_gone_and_its_room_free() -> None:
    store = ResponseStore(max_count=1, max_bytes=1 << 20)
    put(store, "one", {"id": "first"})
    assert not store.delete("another", "first")
    assert store.delete("one", "first")
    assert len(store) == 0
    put(store, "another", {"id": "second"})
    assert store.get("another", "second") is not None


async def _others_served_during(work: Awaitable[T]) -> tuple[T, int]:
    """How often the event loop has served others meanwhile."""
    task = asyncio.ensure_future(work)
    count = 0
    while not task.done():
        await asyncio.sleep(0)
        count += 1
    return task.result(), count


def test_a_long_conversation_holds_nobody_while_it_is_packed_and_parsed() -> None:
    async def scenario() -> tuple[int, int, list[dict[str, Any]], StoredResponse]:
        first, packing = await _others_served_during(packed("one", {"id": "first"}, MESSAGES))
        found, parsing = await _others_served_during(first.messages())
        second = await packed("one", {"id": "second"}, [{"role": "user", "content": "b"}], first)
        return packing, parsing, found, second

    packing, parsing, found, second = asyncio.run(scenario())
    assert packing > 3
    assert parsing > 3
    assert found == MESSAGES
    assert asyncio.run(second.messages()) == [*MESSAGES, {"role": "user", "content": "b"}]
