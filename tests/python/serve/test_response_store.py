"""Responses that are kept: one owner's do not crowd out another's."""

from __future__ import annotations

from pagewheel.serve.api.response_store import ResponseStore


def test_the_oldest_of_whoever_has_most_makes_room() -> None:
    store = ResponseStore(max_count=3, max_bytes=1 << 20)
    store.put("modest", {"id": "first"}, [])
    for name in ("one", "two", "three"):
        store.put("greedy", {"id": name}, [])
    assert store.get("modest", "first") is not None
    assert store.get("greedy", "one") is None
    assert store.get("greedy", "three") is not None


def test_one_that_is_too_large_pushes_out_nothing_of_others() -> None:
    store = ResponseStore(max_count=3, max_bytes=100)
    store.put("modest", {"id": "first"}, [])
    store.put("greedy", {"id": "large", "text": "a" * 200}, [])
    assert store.get("modest", "first") is not None
    assert store.get("greedy", "large") is None
