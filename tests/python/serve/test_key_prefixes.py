"""Cached prefixes are an API key's own: others learn nothing of them, by no path."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from raw_http import connect
from serving import Served, serving, tiny_settings
from waiting import eventually

from pagewheel.errors import InvalidArgumentError
from pagewheel.serve.models import engine as engine_module, prefix_store
from pagewheel.serve.security import ApiKeys, Tenant, read_keys
from pagewheel.serve.settings import KeyLimits, ServerSettings

COMPLETIONS = "/v1/completions"
ONE, TWO, THREE = "key-number-one", "key-number-two", "key-number-three"
KNOWN = [5 + number % 200 for number in range(100)]
DIGITS = range(40, 50)
SECRET = [47, 41, 49, 43]


def settings_of(folder: Path, groups: Mapping[str, str | None], **others: Any) -> ServerSettings:
    limits = {key: KeyLimits(prefixes=group) for key, group in groups.items()}
    return tiny_settings(folder, keys=tuple(groups), key_limits=limits, **others)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def ask(served: Served, key: str, prompt: list[int], **fields: Any) -> Any:
    body = {"prompt": prompt, "max_tokens": 1, **fields}
    answer = served.post(COMPLETIONS, body, headers=bearer(key))
    assert answer.status_code == 200, answer.text
    return answer.json()


def cached(served: Served, key: str, prompt: list[int], **fields: Any) -> int:
    details = ask(served, key, prompt, **fields)["usage"]["prompt_tokens_details"]
    return int(details["cached_tokens"])


def recovered(served: Served, key: str) -> list[int]:
    """What the counts tell, a digit after the other; it ends where they tell nothing."""
    found: list[int] = []
    while len(found) < len(SECRET):
        counts = {one: cached(served, key, [*KNOWN, *found, one, 3]) for one in DIGITS}
        best = max(counts, key=lambda one: counts[one])
        if list(counts.values()).count(counts[best]) > 1:
            break
        found.append(best)
    return found


@pytest.fixture(scope="module")
def apart(tiny_folder: Path) -> Iterator[Served]:
    with serving(settings_of(tiny_folder, {ONE: None, TWO: None})) as served:
        served.http.headers.update(bearer(ONE))
        yield served


@pytest.fixture(scope="module")
def group(tiny_folder: Path) -> Iterator[Served]:
    """Two keys share by name, a third one is alone."""
    groups = {ONE: "team", TWO: "team", THREE: None}
    with serving(settings_of(tiny_folder, groups)) as served:
        served.http.headers.update(bearer(ONE))
        yield served


def test_a_key_does_not_recover_what_another_has_sent(apart: Served) -> None:
    ask(apart, ONE, [*KNOWN, *SECRET, 3])
    assert recovered(apart, TWO) == []
    assert recovered(apart, ONE) == SECRET  # so the counts would have told it


def test_a_salt_of_its_own_does_not_lead_into_another_keys_prefixes(apart: Served) -> None:
    prompt = [6, *KNOWN]
    ask(apart, ONE, prompt)
    ask(apart, ONE, prompt, cache_salt="mine")
    own = apart.server.service.keys.api_key_id(bearer(ONE))
    assert own is not None
    for salt in ("", "mine", own, Tenant.of_key(own).id, Tenant.of_key(own).salt("mine")):
        assert cached(apart, TWO, prompt, cache_salt=salt or None) == 0, salt
    assert cached(apart, ONE, prompt) == len(prompt) - 1
    assert cached(apart, ONE, prompt, cache_salt="mine") == len(prompt) - 1
    assert cached(apart, ONE, prompt, cache_salt="other") == 0


@pytest.mark.parametrize(
    ("path", "body", "count"),
    [
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "Zebras " * 40}], "max_tokens": 1},
            lambda answer: answer["usage"]["prompt_tokens_details"]["cached_tokens"],
        ),
        (
            "/v1/responses",
            {"input": "Lions " * 40, "max_output_tokens": 1},
            lambda answer: answer["usage"]["input_tokens_details"]["cached_tokens"],
        ),
        (
            "/v1/messages",
            {"messages": [{"role": "user", "content": "Bears " * 40}], "max_tokens": 1},
            lambda answer: answer["usage"]["cache_read_input_tokens"],
        ),
    ],
)
def test_every_endpoint_keeps_keys_apart(apart: Served, path: str, body: Any, count: Any) -> None:
    def counted(key: str) -> int:
        return int(count(apart.post(path, body, headers=bearer(key)).json()))

    assert counted(ONE) < 10  # the template's own beginning may be there
    assert counted(ONE) > 40
    assert counted(TWO) < 10


def test_keys_that_share_by_name_are_told_no_count(group: Served) -> None:
    ask(group, ONE, [*KNOWN, *SECRET, 3])
    assert recovered(group, TWO) == recovered(group, ONE) == []
    before = group.engine.statistics().num_prefix_cache_hit_tokens
    assert cached(group, TWO, [*KNOWN, *SECRET, 3]) == 0
    after = group.engine.statistics().num_prefix_cache_hit_tokens
    assert after - before == len(KNOWN) + len(SECRET)  # they do share
    assert cached(group, THREE, [*KNOWN, *SECRET, 3]) == 0
    assert cached(group, THREE, [*KNOWN, *SECRET, 3]) > 0


def test_metrics_tell_no_count_where_keys_share(group: Served, apart: Served) -> None:
    telling = (
        "prefix_cache_hits_total",
        "prefix_cache_usage_perc",
        "kv_cache_usage_perc",
        "engine_steps_total",
        "spec_decode_num_draft_tokens_total",
        "spec_decode_num_accepted_tokens_total",
    )
    here, there = (each.http.get("/metrics").text for each in (group, apart))
    for name in telling:
        assert f"pagewheel:{name}" not in here
        assert f"pagewheel:{name}" in there
    assert "pagewheel:prompt_tokens_total" in here


def test_where_keys_share_none_sees_the_cache(group: Served, apart: Served) -> None:
    ask(group, ONE, KNOWN)
    for key in (ONE, TWO, THREE):  # the sums would tell the third what the group has sent
        answer = group.http.get("/cache", headers=bearer(key))
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "cache_not_shown"
        assert "prefix_hit_tokens" not in answer.text
    assert apart.http.get("/cache", headers=bearer(TWO)).status_code == 200


def test_the_cache_view_shows_a_key_its_own_requests_alone(apart: Served) -> None:
    is_over = threading.Event()

    def generate() -> None:
        while not is_over.is_set():
            ask(apart, ONE, [9, *KNOWN], max_tokens=1500, ignore_eos=True)

    client = threading.Thread(target=generate)
    client.start()
    try:

        def shows(key: str) -> list[Any]:
            view = apart.http.get("/cache", headers=bearer(key)).json()
            assert len(view["sequences"]) == view["num_sequences"]
            return list(view["sequences"])

        eventually(lambda: len(shows(ONE)) == 1)
        (own,) = shows(ONE) or [{}]
        assert "cache_salt" not in own
        assert shows(TWO) == []
    finally:
        is_over.set()
        client.join()


def test_a_stored_response_is_no_others(apart: Served) -> None:
    made = apart.post("/v1/responses", {"input": "a", "max_output_tokens": 1}).json()
    body = {"input": "b", "previous_response_id": made["id"]}
    assert apart.post("/v1/responses", body, headers=bearer(TWO)).status_code == 404
    assert apart.post("/v1/responses", body).status_code == 200


def listed(served: Served, key: str) -> dict[str, Any]:
    (found,) = served.http.get("/prefixes", headers=bearer(key)).json()["data"]
    return dict(found)


def test_a_keys_prefixes_are_found_again_listed_and_removed_for_it_alone(
    tiny_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "saved"
    settings = settings_of(tiny_folder, {ONE: None, TWO: None}, prefix_cache_dir=folder)
    with serving(settings) as served:
        served.http.headers.update(bearer(ONE))
        ask(served, ONE, KNOWN)
        ask(served, ONE, [8, *KNOWN], cache_salt="a salt")
        ask(served, TWO, KNOWN)
        assert listed(served, ONE)["cached_tokens"] == 2 * len(KNOWN) + 1
        assert listed(served, ONE)["saved_bytes"] is None
    files = list(folder.glob("*.prefixes"))
    assert len(files) == 2
    for file in files:
        for secret in (ONE, TWO, "a salt"):
            assert secret.encode() not in file.read_bytes()
            assert secret not in file.name
    with serving(settings) as served:  # as after a restart
        served.http.headers.update(bearer(ONE))
        own = listed(served, ONE)
        assert own["cached_tokens"] == 2 * len(KNOWN) + 1
        assert own["saved_bytes"] in {file.stat().st_size for file in files}
        assert own["saved_at"] > 0
        assert cached(served, ONE, KNOWN) == len(KNOWN) - 1
        assert cached(served, ONE, [8, *KNOWN], cache_salt="a salt") == len(KNOWN)
        removed = served.http.delete("/prefixes", headers=bearer(TWO))
        assert removed.json()["deleted"] is True
        assert listed(served, TWO)["cached_tokens"] == 0
        assert listed(served, TWO)["saved_bytes"] is None
        assert len(list(folder.glob("*.prefixes"))) == 1
        assert listed(served, ONE) == own
        assert cached(served, TWO, KNOWN) == 0
        assert cached(served, ONE, KNOWN) == len(KNOWN) - 1
    with serving(settings) as served:
        served.http.headers.update(bearer(ONE))
        assert cached(served, ONE, KNOWN) == len(KNOWN) - 1


def test_a_key_that_was_removed_leaves_nothing_on_disk(tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    with serving(tiny_settings(tiny_folder, prefix_cache_dir=folder)) as served:
        ask(served, "nobody", KNOWN)
    assert len(list(folder.glob("*.prefixes"))) == 1
    for keys, num_cached in (((ONE, TWO), 0), ((ONE,), len(KNOWN) - 1)):
        settings = settings_of(tiny_folder, dict.fromkeys(keys), prefix_cache_dir=folder)
        with serving(settings) as served:
            served.http.headers.update(bearer(ONE))
            salts = served.engine._tokens_by_salt()
            tenants = served.server.service.keys.tenants()
            assert tenants is not None
            assert set(salts) <= tenants
            assert cached(served, ONE, KNOWN) == num_cached
            if TWO in keys:
                ask(served, TWO, KNOWN)
        assert len(list(folder.glob("*.prefixes"))) == len(keys)


def test_a_key_is_replaced_by_one_of_the_same_group(tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    for keys in ((ONE,), (ONE, TWO), (TWO,)):
        groups = dict.fromkeys(keys, "team")
        settings = settings_of(tiny_folder, groups, prefix_cache_dir=folder)
        with serving(settings) as served:
            served.http.headers.update(bearer(keys[-1]))
            ask(served, keys[-1], KNOWN)
            hits = served.engine.statistics().num_prefix_cache_hit_tokens
            assert hits == (0 if keys == (ONE,) else len(KNOWN) - 1)


def test_a_lock_that_hangs_at_a_removal_stops_no_load(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix_store, "_REMOVE_SECONDS", 600.0)
    folder = tmp_path / "saved"
    settings = settings_of(tiny_folder, {ONE: None, TWO: None}, prefix_cache_dir=folder)
    (model,) = settings.models
    other = replace(model, name="other", is_pinned=False)
    with serving(replace(settings, models=(model, other))) as served:
        served.http.headers.update(bearer(ONE))
        registry = served.server.service.registry
        assert registry._prefixes is not None
        registry._prefixes._lock_seconds = 600.0
        ask(served, ONE, KNOWN, model="tiny")
        with (folder / ".lock").open() as held, ThreadPoolExecutor(1) as client:
            fcntl.flock(held, fcntl.LOCK_EX)
            removal = client.submit(served.http.delete, "/prefixes", headers=bearer(ONE))
            eventually(lambda: bool(registry._forgetting))
            again = served.http.delete("/prefixes", headers=bearer(ONE))
            assert again.status_code == 429
            assert again.json()["error"]["code"] == "prefixes_busy"
            ask(served, TWO, KNOWN, model="other")  # it is loaded meanwhile
            assert not removal.done()
            fcntl.flock(held, fcntl.LOCK_UN)
            assert removal.result().status_code == 200
        assert served.http.delete("/prefixes", headers=bearer(ONE)).status_code == 200
        assert served.http.delete("/prefixes", headers=bearer(TWO)).status_code == 200


def test_a_removal_goes_on_without_its_client_and_forgets_what_is_in_memory(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix_store, "_REMOVE_SECONDS", 0.0)
    folder = tmp_path / "saved"
    with serving(tiny_settings(tiny_folder, prefix_cache_dir=folder)) as served:
        ask(served, "nobody", KNOWN)
        with (folder / ".lock").open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert served.http.delete("/prefixes").status_code == 503
        assert served.engine._tokens_by_salt() == {}
        monkeypatch.setattr(prefix_store, "_REMOVE_SECONDS", 600.0)
        registry = served.server.service.registry
        with (folder / ".lock").open() as held, connect(served) as client:
            fcntl.flock(held, fcntl.LOCK_EX)
            client.sendall(b"DELETE /prefixes HTTP/1.1\r\nhost: localhost\r\n\r\n")
            eventually(lambda: bool(registry._forgetting))
            ask(served, "nobody", KNOWN)
            client.close()
            fcntl.flock(held, fcntl.LOCK_UN)
        eventually(lambda: not registry._forgetting)
        assert served.engine._tokens_by_salt() == {}


def test_cached_tokens_are_counted_once_for_all_who_ask_soon(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_FRESH_SECONDS", 600.0)
    with serving(settings_of(tiny_folder, {ONE: None, TWO: None})) as served:
        served.http.headers.update(bearer(ONE))
        engine = served.engine
        count, counted = engine._tokens_by_salt, []

        def counting() -> Mapping[str, int]:
            counted.append(1)
            return count()

        ask(served, ONE, KNOWN)
        monkeypatch.setattr(engine, "_tokens_by_salt", counting)
        for _ in range(5):
            assert listed(served, ONE)["cached_tokens"] == len(KNOWN)
            assert listed(served, TWO)["cached_tokens"] == 0
        assert len(counted) == 1
        assert served.http.delete("/prefixes", headers=bearer(ONE)).status_code == 200
        assert listed(served, ONE)["cached_tokens"] == 0
        assert len(counted) == 3  # one is the removal's


def test_a_group_is_told_no_sizes_of_its_prefixes(group: Served) -> None:
    ask(group, ONE, KNOWN)
    assert listed(group, TWO)["cached_tokens"] is None
    assert listed(group, TWO)["saved_bytes"] is None
    assert isinstance(listed(group, THREE)["cached_tokens"], int)


def test_without_keys_all_share_as_before(tiny_folder: Path) -> None:
    with serving(tiny_settings(tiny_folder)) as served:
        assert cached(served, "nobody", KNOWN) == 0
        assert cached(served, "somebody", KNOWN) == len(KNOWN) - 1
        (found,) = served.http.get("/prefixes").json()["data"]
        assert found["cached_tokens"] == len(KNOWN)
        assert served.http.delete("/prefixes").status_code == 200
        assert cached(served, "nobody", KNOWN) == 0


def test_where_nothing_is_cached_there_is_nothing_to_list_or_remove(tiny_folder: Path) -> None:
    settings = tiny_settings(tiny_folder, scheduler={"enable_prefix_caching": False})
    with serving(settings) as served:
        (found,) = served.http.get("/prefixes").json()["data"]
        assert found["cached_tokens"] == 0
        assert served.http.delete("/prefixes").status_code == 200


def test_tenants_of_keys_groups_and_all() -> None:
    limits = {ONE: KeyLimits(prefixes="team"), TWO: KeyLimits(prefixes="team")}
    keys = ApiKeys([ONE, TWO, THREE, "key-number-four"], limits)
    api_key_ids = [keys.api_key_id(bearer(key)) for key in (ONE, TWO, THREE, "key-number-four")]
    one, two, three, four = (keys.tenant(api_key_id or "") for api_key_id in api_key_ids)
    assert one == two
    assert one.is_shared
    assert not three.is_shared
    assert len({one.id, three.id, four.id, ""}) == 4
    assert keys.share_prefixes
    assert not ApiKeys([ONE]).share_prefixes
    all_keys = ApiKeys([ONE, TWO, THREE, "key-number-four"], limits, shares_prefixes=True)
    one, _, three, four = (all_keys.tenant(api_key_id or "") for api_key_id in api_key_ids)
    assert three == four != one
    assert three.is_shared
    assert ApiKeys([]).tenant("") == Tenant("")
    assert ApiKeys([]).tenants() == {""}
    assert keys.tenants() == {keys.tenant(api_key_id or "").id for api_key_id in api_key_ids}
    assert Tenant("").salt() == ""


def test_a_salt_tells_its_tenant_and_no_text() -> None:
    own = Tenant.of_key("0123456789ab")
    assert Tenant.id_of(own.salt()) == Tenant.id_of(own.salt("a:b")) == own.id
    assert Tenant.id_of(Tenant("").salt("a:b")) == ""
    assert "a:b" not in own.salt("a:b")
    assert "0123456789ab" not in own.id
    assert own.salt("a") != own.salt("b") != own.salt()
    assert Tenant.of_key("a").id != Tenant.of_group("a").id


def test_a_line_of_the_key_file_names_a_group(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{ONE} prefixes=team requests=2\n{TWO}\n")
    assert read_keys(file, {}) == {ONE: KeyLimits(requests=2, prefixes="team"), TWO: KeyLimits()}
    for wrong in (
        "prefixes=",
        "prefixes=a b",
        "prefixes=ä",
        "prefixes=a/b",
        "prefixes=" + 65 * "a",
    ):
        file.write_text(f"{ONE} {wrong}\n")
        with pytest.raises(InvalidArgumentError, match="prefixes=NAME"):
            read_keys(file, {})
