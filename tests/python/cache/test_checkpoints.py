"""Prefixes and drafts of models whose layers keep states: what is shared changes no token (f32)."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import batching_pipeline, drain, greedy
from convert import tiny_models
from fuzzing import TIMES

import pagewheel
from pagewheel.convert import convert

Tokens = list[int]
request_ids = itertools.count()
TIE = 1e-4  # of log-probabilities: f32 decides by its last digits


def make_folder(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tiny_models.save(tiny_models.make(name), tmp_path_factory.mktemp("source"))
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 8192}))
    return convert(source, tmp_path_factory.mktemp("converted") / "model", progress=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder("lfm2", tmp_path_factory)


@pytest.fixture(scope="module", params=["lfm2", "qwen3_next"])
def each_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(request.param, tmp_path_factory)


def random_tokens(rng: random.Random, least: int, most: int) -> Tokens:
    return [rng.randrange(3, tiny_models.VOCABULARY) for _ in range(rng.randint(least, most))]


@dataclass
class Chat:
    """A conversation that branches: its turns are prompts, each with the answer it got."""

    rng: random.Random
    system: Tokens
    turns: list[tuple[Tokens, Tokens]] = field(default_factory=list)
    left: int = 6

    def next_prompt(self) -> Tokens:
        kind = self.rng.choice(["goes on"] * 4 + ["is asked again", "is edited", "branches"])
        if not self.turns or len(self.turns[-1][0]) > 300:
            return self.system + random_tokens(self.rng, 1, 40)
        prompt, answer = self.turns[-1]
        if kind == "is asked again":
            return prompt
        if kind == "is edited":
            return prompt[: self.rng.randint(1, len(prompt))] + random_tokens(self.rng, 1, 30)
        if kind == "branches":
            prompt, answer = self.rng.choice(self.turns)
        # Templates leave out the end of a prompt, or of an answer, in the next turn.
        prompt = prompt[: len(prompt) - self.rng.choice([0, 0, 3])]
        answer = answer[: len(answer) - self.rng.choice([0, 0, 1, 5])]
        return prompt + answer + random_tokens(self.rng, 1, 40)

    def config(self) -> pagewheel.GenerationConfig:
        options: dict[str, Any] = {"logprobs": 2}
        kind = self.rng.randrange(6)
        if kind == 0:
            options |= {"do_sample": True, "num_return_sequences": 3, "rng_seed": 7}
        elif kind == 1:
            options |= {"num_beams": 2, "num_return_sequences": 2, "logprobs": 0}
        elif kind <= 3:
            options |= {"num_assistant_tokens": self.rng.randint(1, 6)}
        return greedy(self.rng.randint(1, 40), **options)


class WarmAndCold:
    """Chats that share a small cache, compared with a pipeline that keeps nothing."""

    def __init__(self, folder: Path, disk: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.folder, self.disk = folder, disk
        self.cold = batching_pipeline(folder, num_kv_blocks=400)
        self.warm = self.make_warm()
        self.counts: Counter[str] = Counter()

    def make_warm(self) -> pagewheel.ContinuousBatchingPipeline:
        return batching_pipeline(
            self.folder,
            num_kv_blocks=self.rng.choice([20, 30, 60]),
            max_num_batched_tokens=self.rng.choice([24, 50, 200]),
            checkpoint_fraction=self.rng.choice([0.1, 0.3]),
            enable_prefix_caching=True,
        )

    def restart(self) -> None:
        """The cache comes back from a file."""
        self.count()
        self.warm.get_prefix_cache().save(self.disk)
        self.warm = self.make_warm()
        self.warm.get_prefix_cache().load(self.disk)

    def count(self) -> None:
        metrics = self.warm.get_metrics()
        self.counts["preemptions"] += metrics.preemptions
        self.counts["tokens found"] += metrics.prefix_cache_hit_tokens
        assert metrics.cache_usage == 0

    def run(self, num_chats: int) -> None:
        systems = [random_tokens(self.rng, 20, 90) for _ in range(3)]
        waiting = [Chat(self.rng, self.rng.choice(systems)) for _ in range(num_chats)]
        chats: list[Chat] = []
        while waiting or chats:
            while waiting and len(chats) < 8:
                chats.append(waiting.pop())
            self.take_turns(chats)
            chats = [chat for chat in chats if chat.left > 0]
            if self.rng.random() < 0.05:
                self.restart()
        self.count()

    def take_turns(self, chats: list[Chat]) -> None:
        asked = [(chat.next_prompt(), chat.config()) for chat in chats]
        handles = []
        for prompt, config in asked:
            handles.append(self.warm.add_request(next(request_ids), prompt, config))
            for _ in range(self.rng.randrange(4)):
                self.warm.step()
            if self.rng.random() < 0.1:
                self.warm.add_request(next(request_ids), prompt, config).cancel()
        drain(self.warm)
        expected = self.cold.generate([prompt for prompt, _ in asked], [c for _, c in asked])
        for chat, (prompt, _), handle, cold in zip(chats, asked, handles, expected, strict=True):
            outputs = handle.read_all()
            self.compare(outputs, [list(ids) for ids in cold.m_generation_ids])
            chat.turns.append((prompt, list(outputs[0].generated_ids)))
            chat.left -= 1

    def compare(self, warm: list[pagewheel.GenerationOutput], cold: list[Tokens]) -> None:
        """Of several sequences the order is that of scores, or of their numbers."""
        warm = sorted(warm, key=lambda output: list(output.generated_ids))
        for output, expected in zip(warm, sorted(cold), strict=True):
            got = list(output.generated_ids)
            if got == expected:
                self.counts["equal"] += 1
                continue
            first = next(i for i, (a, b) in enumerate(zip(got, expected, strict=True)) if a != b)
            best = output.top_log_probs[first]
            assert best[0].log_prob - best[1].log_prob < TIE, f"{got} is not {expected}"
            self.counts["ties"] += 1


@pytest.mark.fuzz
def test_chats_get_what_a_cold_pipeline_gives(each_folder: Path, tmp_path: Path) -> None:
    """20 of them, and 500 by `scripts/fuzz 25`."""
    counts: Counter[str] = Counter()
    for seed in range(TIMES):
        both = WarmAndCold(each_folder, tmp_path / "prefixes", seed)
        both.run(num_chats=20)
        counts += both.counts
    print(dict(counts))
    assert counts["ties"] <= counts["equal"] / 1000
    assert counts["preemptions"] > 0
    assert counts["tokens found"] > 1000


def hits(handle: pagewheel.GenerationHandle) -> int:
    return handle.get_perf_metrics().get_num_prefix_cache_hit_tokens()


def make_pipeline(folder: Path, **limits: Any) -> pagewheel.ContinuousBatchingPipeline:
    limits = {"num_kv_blocks": 100, "max_num_batched_tokens": 50} | limits
    return batching_pipeline(folder, enable_prefix_caching=True, **limits)


def answer(
    pipeline: pagewheel.ContinuousBatchingPipeline, prompt: Tokens, count: int = 10
) -> tuple[Tokens, int]:
    handle = pipeline.add_request(next(request_ids), prompt, greedy(count))
    drain(pipeline)
    return list(handle.read_all()[0].generated_ids), hits(handle)


def test_a_chat_goes_on_where_the_answer_ended(folder: Path) -> None:
    pipeline = make_pipeline(folder)
    prompt = tiny_models.random_ids(100)
    first, found = answer(pipeline, prompt)
    assert found == 0
    # The last token of the answer was not computed.
    assert answer(pipeline, [*prompt, *first, 5, 6, 7])[1] == 109
    # The end of the prompt may be the template's, and something else in the next turn.
    assert answer(pipeline, [*prompt[:95], *first, 5, 6, 7])[1] == 84


def test_the_second_prompt_that_parts_leaves_a_state_for_the_third(folder: Path) -> None:
    pipeline = make_pipeline(folder)
    rng = random.Random(1)
    shared = tiny_models.random_ids(100)
    found = [answer(pipeline, shared + random_tokens(rng, 60, 60))[1] for _ in range(4)]
    assert found == [0, 0, 100, 100]


def test_requests_of_one_batch_compute_their_prefix_once(folder: Path) -> None:
    pipeline = make_pipeline(folder, num_kv_blocks=200)
    rng = random.Random(1)
    shared = tiny_models.random_ids(130)
    prompts = [shared + random_tokens(rng, 50, 50) for _ in range(8)]
    handles = [pipeline.add_request(next(request_ids), p, greedy(4)) for p in prompts]
    drain(pipeline)
    assert [hits(handle) for handle in handles] == [0] + [130] * 7


def agent_session(rng: random.Random) -> Iterator[Tokens]:
    """What each of 60 calls has beyond the answer of the one before: results of tools."""
    yield random_tokens(rng, 400, 400)
    for _ in range(59):
        yield random_tokens(rng, 10, 60)


def test_an_agents_calls_find_what_they_share_within_a_tenth_of_the_cache(folder: Path) -> None:
    pipeline = make_pipeline(folder, num_kv_blocks=300)
    prompt: Tokens = []
    shared = found = 0
    for new in agent_session(random.Random(2)):
        shared += max(0, len(prompt) - 1)
        prompt += new
        tokens, hit = answer(pipeline, prompt, 20)
        found += hit
        prompt += tokens
    statistics = pipeline.get_statistics()
    print(f"{found} of {shared} tokens, {statistics.num_checkpoints} checkpoints")
    assert found >= 0.95 * shared
    in_tree = len(prompt) // statistics.block_size
    assert statistics.num_prefix_blocks - in_tree <= 0.1 * statistics.num_blocks


def test_without_checkpoints_nothing_is_shared(folder: Path) -> None:
    pipeline = make_pipeline(folder, checkpoint_fraction=0)
    assert [answer(pipeline, tiny_models.random_ids(90))[1] for _ in range(3)] == [0, 0, 0]
    assert pipeline.get_prefix_cache().num_tokens() == 0
    with pytest.raises(ValueError, match=r"checkpoint_fraction is 1.5; allowed: 0 to 1"):
        make_pipeline(folder, checkpoint_fraction=1.5)


def test_pins_keep_the_state_behind_them(folder: Path) -> None:
    pipeline = make_pipeline(folder, num_kv_blocks=40)
    cache = pipeline.get_prefix_cache()
    prompt = tiny_models.random_ids(70)
    expected, _ = answer(pipeline, [*prompt, 9])
    assert cache.pin(prompt) == 70
    cache.clear()
    rng = random.Random(3)
    for _ in range(10):  # takes all that is not pinned
        answer(pipeline, random_tokens(rng, 300, 400))
    assert answer(pipeline, [*prompt, 9]) == (expected, 70)
    assert cache.unpin(prompt)
    cache.clear()
    statistics = pipeline.get_statistics()
    assert statistics.num_free_blocks == statistics.num_blocks
    assert statistics.num_checkpoints == 0


def test_files_bring_states_back(folder: Path, tmp_path: Path) -> None:
    pipeline = make_pipeline(folder)
    prompts = [tiny_models.random_ids(100), random_tokens(random.Random(4), 150, 150)]
    expected = [answer(pipeline, prompt)[0] for prompt in prompts]
    whole, part = tmp_path / "whole", tmp_path / "part"
    pipeline.get_prefix_cache().save(whole)
    pipeline.get_prefix_cache().save(part, max_bytes=whole.stat().st_size * 2 // 3)
    assert part.stat().st_size <= whole.stat().st_size * 2 // 3
    for file, found in (whole, [109, 159]), (part, [0, 159]):
        other = make_pipeline(folder)
        assert other.get_prefix_cache().load(file) > 0
        turns = [[*p, *tokens, 7] for p, tokens in zip(prompts, expected, strict=True)]
        got = [answer(other, turn) for turn in turns]
        assert [hit for _, hit in got] == found
        assert [tokens for tokens, _ in got] == [answer(pipeline, turn)[0] for turn in turns]


def test_a_damaged_state_is_refused(folder: Path, tmp_path: Path) -> None:
    pipeline = make_pipeline(folder)
    answer(pipeline, tiny_models.random_ids(100))
    file = tmp_path / "prefixes"
    pipeline.get_prefix_cache().save(file)
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)
    with pytest.raises(RuntimeError, match="it is damaged"):
        make_pipeline(folder).get_prefix_cache().load(file)


def test_the_cache_view_counts_checkpoints_as_cached(folder: Path) -> None:
    pipeline = make_pipeline(folder)
    answer(pipeline, tiny_models.random_ids(100))
    statistics = pipeline.get_statistics()
    states = pipeline.get_cache_view().block_states
    assert statistics.num_checkpoints == 3  # before the prompt's end, there, after the answer
    assert statistics.num_used_blocks == 0
    assert (states == int(pagewheel.BlockState.CACHED)).sum() == statistics.num_cached_blocks
    assert statistics.num_cached_blocks == statistics.num_prefix_blocks > 4


@pytest.mark.parametrize("num_drafts", [1, 3, 8])
def test_drafts_change_no_token(folder: Path, num_drafts: int) -> None:
    """Of texts that repeat themselves few drafts are right, of answers that were seen all."""
    pipeline = make_pipeline(folder, speculation="auto")
    cold = batching_pipeline(folder, num_kv_blocks=100)
    rng = random.Random(num_drafts)
    for _ in range(6):
        prompt = random_tokens(rng, 4, 12) * rng.randint(3, 8)
        expected = answer(cold, prompt, 60)[0]
        for _ in range(2):
            config = greedy(60, num_assistant_tokens=num_drafts)
            handle = pipeline.add_request(next(request_ids), prompt, config)
            drain(pipeline)
            assert list(handle.read_all()[0].generated_ids) == expected
    steps = pipeline.get_statistics().all_steps
    assert 0 < steps.num_accepted_tokens < steps.num_drafted_tokens
