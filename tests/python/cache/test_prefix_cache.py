"""The prefix cache as an object: pin, clear, save, load."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from conftest import F32, batching_pipeline, greedy

import pagewheel

make_pipeline = functools.partial(batching_pipeline, enable_prefix_caching=True, num_kv_blocks=40)
Pipeline = pagewheel.ContinuousBatchingPipeline
PROMPT = [4 + i % 260 for i in range(200)]


def hits(pipeline: Pipeline, prompt: list[int], **config: object) -> int:
    result = pipeline.generate([prompt], greedy(1, **config))[0]
    return result.perf_metrics.get_num_prefix_cache_hit_tokens()


def test_a_pinned_prompt_stays_until_it_is_unpinned(tiny_folder: Path) -> None:
    pipeline = make_pipeline(tiny_folder)
    cache = pipeline.get_prefix_cache()
    assert cache.pin(PROMPT) == 200
    assert cache.pin(PROMPT) == 200
    statistics = pipeline.get_statistics()
    assert (statistics.num_used_blocks, statistics.num_cached_blocks) == (0, 7)
    assert pipeline.get_metrics().cache_usage == 0
    with pytest.raises(ValueError, match=f"{33 * 32} tokens; the KV cache holds {33 * 32}"):
        pipeline.add_request(0, [5] * 33 * 32, greedy(1))
    pipeline.generate([[7] * (33 * 32 - 1)], greedy(1))
    cache.clear()
    assert cache.num_tokens() == 200
    assert hits(pipeline, PROMPT) == 199
    assert cache.unpin(PROMPT)
    assert not cache.unpin(PROMPT)
    pipeline.generate([[8] * (40 * 32 - 1)], greedy(1))
    assert hits(pipeline, PROMPT) == 0
    cache.clear()
    assert cache.num_tokens() == 0
    assert pipeline.get_statistics().num_free_blocks == 40


def test_longer_prompts_that_come_and_go_leave_a_pin_whole(
    tiny_folder: Path, tmp_path: Path
) -> None:
    pipeline = make_pipeline(tiny_folder)
    cache = pipeline.get_prefix_cache()
    pinned, longer = PROMPT[:40], PROMPT[:140]
    assert cache.pin(pinned) == 40
    for _ in range(2):
        pipeline.generate([longer], greedy(1))
        pipeline.generate([[7] * (38 * 32 - 1)], greedy(1))  # takes all other blocks
        assert hits(pipeline, longer) == 40
    cache.clear()
    assert cache.num_tokens() == 40
    pipeline.generate([longer], greedy(1))
    cache.save(tmp_path / "prefixes")
    cache.clear()
    cache.load(tmp_path / "prefixes")
    assert hits(pipeline, longer) == 139
    pipeline.generate([[8] * (38 * 32 - 1)], greedy(1))
    assert hits(pipeline, longer) == 40
    assert cache.unpin(pinned)
    cache.clear()
    assert pipeline.get_statistics().num_free_blocks == 40


def test_a_pin_is_of_its_salt(tiny_folder: Path) -> None:
    cache = make_pipeline(tiny_folder).get_prefix_cache()
    cache.pin(PROMPT, salt="alice")
    assert not cache.unpin(PROMPT)
    assert cache.unpin(PROMPT, salt="alice")


def test_what_would_starve_requests_is_not_pinned(tiny_folder: Path) -> None:
    pipeline = make_pipeline(tiny_folder)
    cache = pipeline.get_prefix_cache()
    with pytest.raises(ValueError, match="21 of 40 blocks would be, and half of them may"):
        cache.pin([5] * (20 * 32 + 1))
    pipeline.generate([PROMPT], greedy(1))
    handle = pipeline.add_request(3, [9] * 1100, greedy(30))
    with pytest.raises(ValueError, match="request 3 may need 1130"):
        cache.pin(PROMPT)
    while pipeline.has_non_finished_requests():
        pipeline.step()
    assert handle.get_status() == pagewheel.GenerationStatus.FINISHED


def test_a_saved_cache_serves_another_process_of_the_same_model(
    tiny_folder: Path, tmp_path: Path
) -> None:
    first = make_pipeline(tiny_folder)
    expected = first.generate([PROMPT], greedy(20))[0].m_generation_ids[0]
    first.generate([PROMPT[:50]], greedy(3, cache_salt="alice"))
    path = tmp_path / "prefixes"
    first.get_prefix_cache().save(path)

    second = make_pipeline(tiny_folder)
    cache = second.get_prefix_cache()
    assert cache.load(path) == first.get_prefix_cache().num_tokens() == 219 + 52
    assert cache.load(path) == 0  # it is there
    assert hits(second, PROMPT[:50], cache_salt="alice") == 49
    result = second.generate([PROMPT], greedy(20))[0]
    assert result.perf_metrics.get_num_prefix_cache_hit_tokens() == 199
    assert result.m_generation_ids[0] == expected

    small = make_pipeline(tiny_folder, num_kv_blocks=5)  # takes what fits
    assert 5 * 16 < small.get_prefix_cache().load(path) <= 5 * 32
    assert small.get_statistics().num_cached_blocks == 5


def test_a_file_of_another_format_or_damaged_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    first = make_pipeline(tiny_folder)
    first.generate([PROMPT], greedy(2))
    path = tmp_path / "prefixes"
    first.get_prefix_cache().save(path)
    other = make_pipeline(tiny_folder, {**F32, "KV_CACHE_PRECISION": "u8"}).get_prefix_cache()
    with pytest.raises(
        ValueError, match=r"another model or cache format(.|\n)*PRECISION f32"
    ) as error:
        other.load(path)
    assert "PRECISION u8" in str(error.value)

    content = path.read_bytes()
    own = make_pipeline(tiny_folder).get_prefix_cache()
    for damaged, message in (
        (content[:-3], "it ends too early"),
        (content[:9000] + bytes([content[9000] ^ 1]) + content[9001:], "it is damaged"),
        (b"something else entirely, and long enough", "no such file"),
        (b"", "it ends too early"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(RuntimeError, match=message):
            own.load(path)
    with pytest.raises(RuntimeError, match="cannot be opened"):
        own.load(tmp_path / "nowhere")
    with pytest.raises(RuntimeError, match="cannot be saved"):
        own.save(tmp_path / "nowhere" / "prefixes")


def test_without_prefix_caching_there_is_none(tiny_folder: Path) -> None:
    cache = make_pipeline(tiny_folder, enable_prefix_caching=False).get_prefix_cache()
    for call in (cache.clear, cache.num_tokens, lambda: cache.pin(PROMPT)):
        with pytest.raises(ValueError, match="enable_prefix_caching is false"):
            call()


def test_a_file_of_limited_size_has_what_was_used_last(tiny_folder: Path, tmp_path: Path) -> None:
    first = make_pipeline(tiny_folder)
    prompts = [[number] * 96 for number in range(5, 10)]
    for prompt in [*prompts, prompts[1]]:
        first.generate([prompt], greedy(1))
    cache, path = first.get_prefix_cache(), tmp_path / "prefixes"
    cache.save(path)
    most = path.stat().st_size // 2
    cache.save(path, max_bytes=most)
    assert most // 2 < path.stat().st_size <= most
    second = make_pipeline(tiny_folder)
    second.get_prefix_cache().load(path)
    assert [hits(second, prompt) > 90 for prompt in prompts] == [False, True, False, False, True]
    cache.save(path, max_bytes=1)
    assert make_pipeline(tiny_folder).get_prefix_cache().load(path) == 0


def test_what_has_a_salt_is_left_out_of_a_file_on_demand(tiny_folder: Path, tmp_path: Path) -> None:
    first = make_pipeline(tiny_folder)
    first.generate([PROMPT], greedy(1))
    first.generate([PROMPT], greedy(1, cache_salt="a tenant's secret"))
    path = tmp_path / "prefixes"
    first.get_prefix_cache().save(path, salts={""})
    assert b"secret" not in path.read_bytes()
    second = make_pipeline(tiny_folder)
    assert second.get_prefix_cache().load(path) == len(PROMPT)
    assert hits(second, PROMPT, cache_salt="a tenant's secret") == 0
    assert hits(second, PROMPT) == 199
