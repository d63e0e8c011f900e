"""Which replica a request goes to, without replicas."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from pagewheel.ray_serve.routes import BLOCK_BYTES, MAX_BLOCKS, Routes, prefix_keys
from pagewheel.serve.security import Tenant

CHAT = "/v1/chat/completions"
NONE: dict[str, int] = {}


def message(text: str, role: str = "user") -> dict[str, str]:
    return {"role": role, "content": text}


def keys_of(text: str, model: str = "m", **fields: Any) -> tuple[bytes, ...]:
    return prefix_keys("/v1/completions", {"prompt": text, **fields}, model)


def shared(one: tuple[bytes, ...], other: tuple[bytes, ...]) -> int:
    return sum(a == b for a, b in zip(one, other, strict=False))


def make_routes(*tags: str, imbalance: int = 2, blocks: int = 100) -> Routes:
    routes = Routes(imbalance, blocks)
    routes.set_replicas(tags or ("a", "b"))
    return routes


def sent_to(routes: Routes, keys: tuple[bytes, ...], name: str = "request") -> str:
    """Where a request goes that ends at once."""
    with routes.ticket(name, keys):
        return routes.order(name, routes.replicas(), NONE)[0]


def test_a_longer_conversation_has_the_keys_of_the_shorter_one() -> None:
    first = [message("s" * 500, "system"), message("u" * 500)]
    longer = [*first, message("a" * 500, "assistant"), message("v" * 500)]
    short = prefix_keys(CHAT, {"messages": first}, "m")
    assert len(short) == 8  # 500 characters and the role each, in blocks of 128 bytes
    assert prefix_keys(CHAT, {"messages": longer}, "m")[:8] == short


def test_keys_differ_from_the_block_on_where_texts_do() -> None:
    text = "x" * BLOCK_BYTES * 4
    changed = text[: BLOCK_BYTES * 2] + "y" + text[BLOCK_BYTES * 2 + 1 :]
    assert shared(keys_of(text), keys_of(changed)) == 2
    assert keys_of("x" * (BLOCK_BYTES - 1)) == ()
    assert len(keys_of("x" * BLOCK_BYTES * (MAX_BLOCKS + 5))) == MAX_BLOCKS


def test_models_and_salts_share_no_key() -> None:
    text = "x" * 1000
    assert not shared(keys_of(text), keys_of(text, model="other"))
    assert not shared(keys_of(text), keys_of(text, cache_salt="mine"))
    assert keys_of(text, cache_salt="mine") == keys_of(text, cache_salt="mine")


def test_tenants_share_no_key() -> None:
    body = {"prompt": "x" * 1000}
    one, two, nobody = (
        prefix_keys("/v1/completions", body, "m", tenant)
        for tenant in (Tenant.of_key("one"), Tenant.of_key("two"), Tenant(""))
    )
    assert not shared(one, two)
    assert not shared(one, nobody)
    assert one == prefix_keys("/v1/completions", body, "m", Tenant.of_key("one"))


def test_tools_come_before_messages_and_token_ids_are_a_prompt() -> None:
    tools = [{"type": "function", "function": {"name": "t" * 300}}]
    with_tools = prefix_keys(CHAT, {"messages": [message("u" * 500)], "tools": tools}, "m")
    others = prefix_keys(CHAT, {"messages": [message("w" * 500)], "tools": tools}, "m")
    assert shared(with_tools, others) == 2
    ids = list(range(1000, 1200))
    assert shared(keys_of("", prompt=ids), keys_of("", prompt=[*ids, 7])) == 7
    assert prefix_keys("/v1/models", {}, "m") == ()


def test_a_prefix_goes_where_it_was() -> None:
    routes = make_routes("a", "b", "c", "d")
    keys = keys_of("x" * 1000)
    first = sent_to(routes, keys)
    for number in range(20):
        sent_to(routes, keys_of(f"{number}-" * 500))
    assert {sent_to(routes, keys) for _ in range(20)} == {first}
    assert routes.decisions() == {"new": 21, "prefix": 20}


def test_a_busy_replica_is_passed_over() -> None:
    routes = make_routes(imbalance=2)
    keys = keys_of("x" * 1000)
    found = []
    with (
        routes.ticket("1", keys),
        routes.ticket("2", keys),
        routes.ticket("3", keys),
        routes.ticket("4", keys),
    ):
        for name in "1234":
            found.append(routes.order(name, ["a", "b"], NONE)[0])
        assert len(set(found[:3])) == 1  # 0, 1 and 2 requests more than the other has
        assert found[3] != found[0]
        assert routes.loads() == {found[0]: 3, found[3]: 1}
    assert not any(routes.loads().values())
    assert routes.decisions() == {"new": 1, "prefix": 2, "busy": 1}


def test_new_prefixes_are_spread_over_replicas_by_load() -> None:
    routes = make_routes("a", "b", "c")
    names = [str(number) for number in range(9)]
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(routes.ticket(name, keys_of(name * 1000)))
            routes.order(name, ["a", "b", "c"], NONE)
        assert routes.loads() == {"a": 3, "b": 3, "c": 3}


def test_two_fronts_send_a_new_prefix_to_the_same_replica() -> None:
    for number in range(20):
        keys = keys_of(f"{number}-" * 500)
        assert sent_to(make_routes(), keys) == sent_to(make_routes(), keys)
    spread = {sent_to(make_routes(), keys_of(f"{number}-" * 500)) for number in range(20)}
    assert spread == {"a", "b"}


def test_what_replicas_report_counts_too() -> None:
    routes = make_routes(imbalance=2)
    keys = keys_of("x" * 1000)
    home = sent_to(routes, keys)
    other = "b" if home == "a" else "a"
    with routes.ticket("later", keys):
        assert routes.order("later", ["a", "b"], {home: 3})[0] == other


def test_a_replica_that_took_the_request_instead_has_its_prefix() -> None:
    routes = make_routes()
    keys = keys_of("x" * 1000)
    with routes.ticket("request", keys):
        first, second = routes.order("request", ["a", "b"], NONE)
        routes.sent("request", second)
        assert routes.loads() == {second: 1}
    with routes.ticket("later", keys):
        assert routes.order("later", [second], NONE) == [second]
    assert routes.decisions() == {"new": 1, "prefix": 1}
    assert first != second


def test_the_target_is_asked_whatever_its_load() -> None:
    routes = make_routes()
    with routes.ticket("request", keys_of("x" * 1000), "b"):
        assert routes.order("request", ["a", "b"], {"b": 100}) == ["b", "a"]
    with routes.ticket("later", keys_of("x" * 1000), "gone"):
        assert routes.order("later", ["a", "b"], NONE)[0] in "ab"
    assert routes.decisions() == {"target": 1, "lost": 1}


def test_memory_is_bounded_and_ends_of_prompts_are_forgotten_first() -> None:
    routes = make_routes("a", blocks=10)
    keys = keys_of("x" * BLOCK_BYTES * 8)
    sent_to(routes, keys)
    sent_to(routes, keys_of("y" * BLOCK_BYTES * 5))
    assert routes.num_blocks() == 10
    routes.set_replicas(["a", "b"])
    with routes.ticket("request", keys):
        # Five of eight blocks are still known.
        assert routes.order("request", ["a", "b"], NONE)[0] == "a"
    routes.remove("a")
    assert routes.num_blocks() == 0
