"""Prefix caches on disk: found again by the same model, never half written, never another's."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from serving import Served, serving, tiny_settings
from waiting import eventually

import pagewheel
from pagewheel.errors import InvalidArgumentError
from pagewheel.serve.models.prefix_store import PrefixStore
from pagewheel.serve.security import Tenant
from pagewheel.serve.settings import ServerSettings

PROMPT = [5 + number % 200 for number in range(300)]
LIMIT = 1 << 30


def make_pipeline(folder: Path, num_blocks: int = 200) -> pagewheel.ContinuousBatchingPipeline:
    scheduler = pagewheel.SchedulerConfig()
    scheduler.num_kv_blocks = num_blocks
    scheduler.enable_prefix_caching = True
    return pagewheel.ContinuousBatchingPipeline(folder, scheduler, "CPU")


def compute(pipeline: pagewheel.ContinuousBatchingPipeline, prompt: list[int], **more: str) -> None:
    config = pagewheel.GenerationConfig(max_new_tokens=1, ignore_eos=True, **more)
    pipeline.generate([prompt], config)


def loaded(store: PrefixStore, folder: Path, model: str = "tiny") -> int:
    """Tokens that a new pipeline gets of it."""
    return store.load(model, make_pipeline(folder).get_prefix_cache())


def only_file(folder: Path) -> Path:
    (file,) = folder.glob("*.prefixes")
    return file


@pytest.fixture
def saved(tiny_folder: Path, tmp_path: Path) -> Path:
    """A store's folder with the prompt in it."""
    folder = tmp_path / "saved"
    pipeline = make_pipeline(tiny_folder)
    compute(pipeline, PROMPT)
    PrefixStore(folder, LIMIT).save("tiny", pipeline.get_prefix_cache())
    return folder


def test_a_prefix_is_found_again_by_its_model_alone(tiny_folder: Path, saved: Path) -> None:
    store = PrefixStore(saved, LIMIT)
    assert loaded(store, tiny_folder) == len(PROMPT)
    assert loaded(store, tiny_folder, "another") == 0


def test_only_the_owner_can_read_what_is_saved(saved: Path) -> None:
    assert saved.stat().st_mode & 0o777 == 0o700
    for file in saved.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(InvalidArgumentError, match="chmod 700"):
        PrefixStore(tmp_path, LIMIT)


def test_each_tenant_has_a_file_of_its_own(tiny_folder: Path, tmp_path: Path) -> None:
    pipeline = make_pipeline(tiny_folder)
    tenants = [Tenant(""), Tenant.of_key("one"), Tenant.of_key("two")]
    for tenant in tenants:
        compute(pipeline, PROMPT, cache_salt=tenant.salt())
        compute(pipeline, PROMPT[:100], cache_salt=tenant.salt("more"))
    store = PrefixStore(tmp_path / "saved", LIMIT)
    store.save("tiny", pipeline.get_prefix_cache())
    other = make_pipeline(tiny_folder).get_prefix_cache()
    assert store.load("tiny", other) == 3 * (len(PROMPT) + 100)
    assert other.num_tokens_by_salt() == pipeline.get_prefix_cache().num_tokens_by_salt()
    for tenant in tenants:
        assert store.saved("tiny", tenant.id) is not None
        assert store.saved("other", tenant.id) is None
    assert store.remove(tenants[1].id) == 1
    assert store.remove(tenants[1].id) == 0
    left = make_pipeline(tiny_folder).get_prefix_cache()
    store.load("tiny", left)
    salts = {each.salt(more) for each in (tenants[0], tenants[2]) for more in ("", "more")}
    assert set(left.num_tokens_by_salt()) == salts


@pytest.fixture
def three(tiny_folder: Path, tmp_path: Path) -> Path:
    """A store's folder with the prompt of the shared tenant and of two keys."""
    pipeline = make_pipeline(tiny_folder)
    for tenant in (Tenant(""), Tenant.of_key("one"), Tenant.of_key("two")):
        compute(pipeline, PROMPT, cache_salt=tenant.salt())
    folder = tmp_path / "three"
    PrefixStore(folder, LIMIT).save("tiny", pipeline.get_prefix_cache())
    return folder


def test_files_of_tenants_that_are_no_more_are_removed_at_start(
    tiny_folder: Path, three: Path
) -> None:
    one, two = Tenant.of_key("one"), Tenant.of_key("two")
    old = three / f"before-0123456789abcdef-{two.id}.prefixes"  # of another model and version
    old.write_bytes(b"words")
    strangers = [three / "notes.prefixes", three / f"{two.id}.prefixes", three / "mine.txt"]
    for file in strangers:
        file.write_bytes(b"words")
    (link := three / f"link-0123456789abcdef-{two.id}.prefixes").symlink_to(three / "mine.txt")
    (folder := three / f"folder-0123456789abcdef-{two.id}.prefixes").mkdir()
    (kept,) = three.glob(f"tiny-*{one.id}.prefixes")
    store = PrefixStore(three, LIMIT, tenants={one.id})
    left = {file for file in three.iterdir() if file.name != ".lock"}
    assert left == {kept, *strangers, link, folder}
    cache = make_pipeline(tiny_folder).get_prefix_cache()
    assert store.load("tiny", cache) == len(PROMPT)
    assert set(cache.num_tokens_by_salt()) == {one.salt()}


def test_prefixes_of_tenants_that_are_no_more_are_neither_loaded_nor_saved(
    tiny_folder: Path, three: Path
) -> None:
    one = Tenant.of_key("one")
    with (three / ".lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        store = PrefixStore(three, LIMIT, lock_seconds=0, tenants={one.id})
    assert len(list(three.glob("*.prefixes"))) == 3  # so nothing was removed
    pipeline = make_pipeline(tiny_folder)
    assert store.load("tiny", pipeline.get_prefix_cache()) == len(PROMPT)
    assert set(pipeline.get_prefix_cache().num_tokens_by_salt()) == {one.salt()}
    assert store.remove("") == 1
    compute(pipeline, PROMPT)
    store.save("tiny", pipeline.get_prefix_cache())
    assert store.saved("tiny", "") is None


def test_a_tenants_files_of_all_models_and_versions_are_removed(three: Path) -> None:
    one, two = Tenant.of_key("one"), Tenant.of_key("two")
    store = PrefixStore(three, LIMIT)
    for own in ("", f"-{one.id}", f"-{two.id}"):
        (three / f"before-0123456789abcdef{own}.prefixes").write_bytes(b"words")
    (three / "notes.prefixes").write_bytes(b"words")
    assert store.remove(one.id) == 2
    assert not list(three.glob(f"*{one.id}*"))
    assert len(list(three.glob(f"*{two.id}*"))) == 2
    assert store.remove("") == 2
    assert {file.name for file in three.glob("*.prefixes")} == {
        "notes.prefixes",
        *(file.name for file in three.glob(f"*{two.id}*")),
    }


def test_while_a_tenant_is_excluded_nothing_of_it_is_loaded_or_saved(
    tiny_folder: Path, three: Path
) -> None:
    one = Tenant.of_key("one")
    store = PrefixStore(three, LIMIT)
    pipeline = make_pipeline(tiny_folder)
    with store.excluding(one.id):
        assert store.load("tiny", pipeline.get_prefix_cache()) == 2 * len(PROMPT)
        store.remove(one.id)
        compute(pipeline, PROMPT, cache_salt=one.salt())
        store.save("tiny", pipeline.get_prefix_cache())
        assert store.saved("tiny", one.id) is None
    store.save("tiny", pipeline.get_prefix_cache())
    assert store.saved("tiny", one.id) is not None


def with_times(folder: Path, times: dict[str, int]) -> dict[Path, float]:
    """Of the files of tenants with these ids, which are given these times."""
    found = {}
    for tenant, seconds in times.items():
        (file,) = folder.glob(f"tiny-*{tenant}.prefixes")
        os.utime(file, (seconds, seconds))
        found[file] = float(seconds)
    return found


def test_what_was_not_used_for_longest_is_evicted_first_after_a_load(
    tiny_folder: Path, three: Path
) -> None:
    one, two = Tenant.of_key("one"), Tenant.of_key("two")
    for old, new in ((one, two), (two, one)):
        (three / PrefixStore(three, LIMIT)._path("tiny", "").name).unlink(missing_ok=True)
        times = with_times(three, {old.id: 10**9, new.id: 10**9 + 9})
        pipeline = make_pipeline(tiny_folder, num_blocks=25)
        store = PrefixStore(three, LIMIT)
        cache = pipeline.get_prefix_cache()
        assert store.load("tiny", cache, pipeline.get_statistics()) == 2 * len(PROMPT)
        assert {file: file.stat().st_mtime for file in times} == times
        compute(pipeline, [4, *PROMPT], cache_salt="more")
        left = cache.num_tokens_by_salt()
        assert left[new.salt()] == len(PROMPT)
        assert left.get(old.salt(), 0) < len(PROMPT)


def test_of_files_that_do_not_fit_together_the_newest_are_loaded_whole(
    tiny_folder: Path, three: Path
) -> None:
    one, two = Tenant.of_key("one"), Tenant.of_key("two")
    for old, new in ((one, two), (two, one)):
        (three / PrefixStore(three, LIMIT)._path("tiny", "").name).unlink(missing_ok=True)
        with_times(three, {old.id: 10**9, new.id: 10**9 + 9})
        pipeline = make_pipeline(tiny_folder, num_blocks=15)
        cache = pipeline.get_prefix_cache()
        PrefixStore(three, LIMIT).load("tiny", cache, pipeline.get_statistics())
        left = cache.num_tokens_by_salt()
        assert left[new.salt()] == len(PROMPT)
        assert 0 < left[old.salt()] < len(PROMPT)  # in what is left


def test_a_save_gives_files_the_time_of_their_tenants_last_use(
    tiny_folder: Path, three: Path
) -> None:
    one, two = Tenant.of_key("one"), Tenant.of_key("two")
    with_times(three, {one.id: 10**9, two.id: 10**9})
    store = PrefixStore(three, LIMIT)
    cache = make_pipeline(tiny_folder).get_prefix_cache()
    store.load("tiny", cache)
    store.save("tiny", cache, {two.id: 10**9 + 9.0, "": 10**9 + 5.0})
    (of_one,) = three.glob(f"tiny-*{one.id}.prefixes")
    (of_two,) = three.glob(f"tiny-*{two.id}.prefixes")
    assert of_one.stat().st_mtime == 10**9  # it was only read
    assert of_two.stat().st_mtime == 10**9 + 9
    size = of_one.stat().st_size
    pipeline = make_pipeline(tiny_folder)
    compute(pipeline, PROMPT)
    PrefixStore(three, int(3.5 * size)).save("another", pipeline.get_prefix_cache())
    assert not of_one.exists()
    assert of_two.exists()


def test_a_save_that_fails_in_the_middle_makes_room_all_the_same(
    tiny_folder: Path,
    saved: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (before,) = saved.glob("tiny-*.prefixes")
    size = before.stat().st_size
    os.utime(before, (10**9, 10**9))
    pipeline = make_pipeline(tiny_folder)
    compute(pipeline, PROMPT, cache_salt=Tenant.of_key("one").salt())
    compute(pipeline, PROMPT, cache_salt=Tenant.of_key("two").salt())
    replace = PrefixStore._replace
    calls = []

    def fail_at_second(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError("the disk is full")
        replace(*arguments)

    monkeypatch.setattr(PrefixStore, "_replace", fail_at_second)
    PrefixStore(saved, int(1.9 * size)).save("another", pipeline.get_prefix_cache())
    assert "prefixes not saved" in caplog.text
    assert not before.exists()
    assert len(list(saved.glob("another-*.prefixes"))) == 1


@contextmanager
def a_full_disk() -> Iterator[None]:
    """No file may grow."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_costs_nothing_that_was_saved_and_lets_it_be_removed(
    tiny_folder: Path, saved: Path
) -> None:
    before = only_file(saved).read_bytes()
    pipeline = make_pipeline(tiny_folder)
    compute(pipeline, PROMPT[::-1])
    with a_full_disk():
        store = PrefixStore(saved, LIMIT)
        store.save("tiny", pipeline.get_prefix_cache())
        assert only_file(saved).read_bytes() == before
        assert list(saved.glob(".saving-*")) == []
        assert store.remove("") == 1
    assert list(saved.glob("*.prefixes")) == []


def test_a_damaged_file_of_a_tenant_costs_no_other_its_prefixes(
    tiny_folder: Path, tmp_path: Path
) -> None:
    pipeline = make_pipeline(tiny_folder)
    one, two = Tenant.of_key("one"), Tenant.of_key("two")
    for tenant in (one, two):
        compute(pipeline, PROMPT, cache_salt=tenant.salt())
    folder = tmp_path / "saved"
    store = PrefixStore(folder, LIMIT)
    store.save("tiny", pipeline.get_prefix_cache())
    (file,) = folder.glob(f"*{one.id}*")
    file.write_bytes(file.read_bytes()[:-9])
    for newest in (0, 2):  # it is read first, and last
        os.utime(file, (newest * 10**9, newest * 10**9))
        cache = make_pipeline(tiny_folder).get_prefix_cache()
        assert store.load("tiny", cache) == len(PROMPT)
        assert cache.num_tokens_by_salt() == {two.salt(): len(PROMPT)}


def test_a_tenant_with_much_leaves_the_others_their_share_of_the_disk(
    tiny_folder: Path, saved: Path
) -> None:
    size = only_file(saved).stat().st_size
    pipeline = make_pipeline(tiny_folder)
    small, large = Tenant.of_key("small"), Tenant.of_key("large")
    compute(pipeline, PROMPT, cache_salt=small.salt())
    for number in range(6):
        compute(pipeline, [5 + number, *PROMPT], cache_salt=large.salt())
    store = PrefixStore(saved, 3 * size)
    store.save("tiny", pipeline.get_prefix_cache())
    cache = make_pipeline(tiny_folder).get_prefix_cache()
    store.load("tiny", cache)
    found = cache.num_tokens_by_salt()
    assert found[small.salt()] == len(PROMPT)
    assert found[large.salt()] > len(PROMPT)  # with what the small one leaves
    assert sum(file.stat().st_size for file in saved.glob("*.prefixes")) <= 3 * size


HOLDER = """
import fcntl, os, signal, sys
handle = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(handle, fcntl.LOCK_EX)
os.ftruncate(handle, 0)
os.pwrite(handle, str(os.getpid()).encode(), 0)
print("held", flush=True)
signal.pause()
"""


@pytest.fixture
def holder(saved: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock and hangs."""
    command = [sys.executable, "-c", HOLDER, str(saved / ".lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_process_that_hangs_stops_no_start_and_is_named(
    tiny_folder: Path,
    saved: Path,
    holder: subprocess.Popen[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = PrefixStore(saved, LIMIT, lock_seconds=0.2)
    pipeline = make_pipeline(tiny_folder)
    assert store.load("tiny", pipeline.get_prefix_cache()) == len(PROMPT)
    before = only_file(saved).stat().st_ino
    store.save("tiny", pipeline.get_prefix_cache())
    assert only_file(saved).stat().st_ino == before
    (record,) = [each for each in caplog.records if each.message == "prefixes not saved"]
    assert f"process {holder.pid} has held the lock" in record.error  # type: ignore[attr-defined]
    with pytest.raises(TimeoutError, match=f"process {holder.pid} "):
        store.remove("")
    holder.kill()
    holder.wait()
    store.save("tiny", pipeline.get_prefix_cache())
    assert only_file(saved).stat().st_ino != before


@pytest.mark.parametrize("harm", ["cut", "changed", "foreign", "open", "link", "second name"])
def test_a_broken_or_foreign_file_is_refused_and_replaced_by_the_next(
    tiny_folder: Path, saved: Path, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = only_file(saved)
    content = file.read_bytes()
    middle = len(content) // 2
    if harm == "cut":
        file.write_bytes(content[:middle])
    elif harm == "changed":
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    elif harm == "foreign":
        file.write_bytes(content.replace(b"model ", b"nodel ", 1))
    elif harm == "open":
        file.chmod(0o666)
    elif harm == "link":
        file.rename(saved / "elsewhere")
        file.symlink_to(saved / "elsewhere")
    else:
        os.link(file, saved / "elsewhere")
    store = PrefixStore(saved, LIMIT)
    pipeline = make_pipeline(tiny_folder)
    assert store.load("tiny", pipeline.get_prefix_cache()) == 0
    assert "saved prefixes refused" in caplog.text
    assert pipeline.get_prefix_cache().num_tokens() == 0  # nor what came before the damage
    compute(pipeline, PROMPT)
    store.save("tiny", pipeline.get_prefix_cache())
    assert loaded(store, tiny_folder) == len(PROMPT)


def test_files_take_no_more_than_the_limit(tiny_folder: Path, saved: Path) -> None:
    size = only_file(saved).stat().st_size
    store = PrefixStore(saved, int(2.5 * size))
    pipeline = make_pipeline(tiny_folder)
    compute(pipeline, PROMPT)
    for name in ("one", "two"):
        for file in saved.glob("*.prefixes"):  # the oldest go first
            os.utime(file, ns=(0, file.stat().st_mtime_ns - 10**9))
        store.save(name, pipeline.get_prefix_cache())
    assert sum(file.stat().st_size for file in saved.glob("*.prefixes")) <= 2.5 * size
    assert [loaded(store, tiny_folder, name) > 0 for name in ("tiny", "one", "two")] == [
        False,
        True,
        True,
    ]
    small = PrefixStore(saved, size // 2)
    small.save("small", pipeline.get_prefix_cache())
    assert only_file(saved).stat().st_size <= size // 2
    assert 0 < loaded(small, tiny_folder, "small") < len(PROMPT)


def _save_for_ever(model: Path, folder: Path) -> None:
    pipeline = make_pipeline(model)
    store = PrefixStore(folder, LIMIT)
    for number in range(16):
        compute(pipeline, [5 + number, *PROMPT])
    while True:
        store.save("tiny", pipeline.get_prefix_cache())


def test_killed_at_any_moment_it_leaves_a_whole_file(tiny_folder: Path, saved: Path) -> None:
    chance = random.Random(1)
    first = only_file(saved).stat().st_ino
    replaced = 0
    for _ in range(8):
        process = multiprocessing.get_context("spawn").Process(
            target=_save_for_ever, args=(tiny_folder, saved)
        )
        process.start()
        eventually(lambda: list(saved.glob(".saving-*")) != [], 60)
        time.sleep(chance.random() * 0.1)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        replaced += only_file(saved).stat().st_ino != first
        assert loaded(PrefixStore(saved, LIMIT), tiny_folder) >= len(PROMPT)
        assert not list(saved.glob(".saving-*"))
    assert replaced


def cached_tokens(served: Served, **fields: object) -> int:
    body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 1, **fields}
    usage = served.post("/v1/completions", body).json()["usage"]
    return int(usage["prompt_tokens_details"]["cached_tokens"])


def test_a_model_that_wakes_knows_its_prefixes(tiny_folder: Path, tmp_path: Path) -> None:
    (model,) = tiny_settings(tiny_folder).models
    settings = ServerSettings(
        (model, type(model)("other", tiny_folder, scheduler=model.scheduler)),
        port=0,
        prefix_cache_dir=tmp_path / "saved",
    )
    with serving(settings) as served:
        assert cached_tokens(served) == 0
    with serving(settings) as served:  # as after a restart
        assert cached_tokens(served) == len(PROMPT) - 1
        assert cached_tokens(served, cache_salt="tenant") == 0


def test_an_idle_model_is_saved_when_it_is_unloaded(tiny_folder: Path, tmp_path: Path) -> None:
    (model,) = tiny_settings(tiny_folder).models
    names = [type(model)(name, tiny_folder, scheduler=model.scheduler) for name in ("tiny", "b")]
    settings = ServerSettings(
        tuple(names), port=0, prefix_cache_dir=tmp_path / "saved", idle_unload_seconds=0.5
    )
    with serving(settings) as served:
        assert cached_tokens(served) == 0
        eventually(lambda: not list(served.server.service.registry.loaded()))
        assert cached_tokens(served) == len(PROMPT) - 1


def test_a_pinned_model_is_saved_when_it_is_idle_and_stays(
    tiny_folder: Path, tmp_path: Path
) -> None:
    settings = tiny_settings(
        tiny_folder, prefix_cache_dir=tmp_path / "saved", idle_unload_seconds=0.3
    )
    with serving(settings) as served:
        engine = served.engine
        cached_tokens(served)
        eventually(lambda: any((tmp_path / "saved").glob("tiny-*")))
        assert served.engine is engine
