"""Cache eviction beside everything else, on a small model (f32) unless the real one matters."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest
import typer
from conftest import F32, drain, greedy
from convert import tiny_llama
from eviction_replay import Watching

import pagewheel
from pagewheel import AggregationMode, CacheEvictionConfig
from pagewheel._pagewheel import eviction_policies
from pagewheel.cli.app import app
from pagewheel.convert import convert

START, RECENT, BUDGET, BLOCK = 32, 32, 128, 32
# What a policy needs to be told besides its name.
OPTIONS = {
    "norm_sum": {"score_pooling": 5},
    "kvcrush": {"kvcrush_config": pagewheel.KVCrushConfig(1)},
}
POLICIES = {each.name: OPTIONS.get(each.name, {}) for each in eviction_policies()}


def eviction(policy: object = "norm_sum", **options: object) -> CacheEvictionConfig:
    defaults = {"apply_rotation": True, **options}
    return CacheEvictionConfig(
        START, RECENT, BUDGET, AggregationMode.NORM_SUM, policy=policy, **defaults
    )


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    source = tiny_llama.write(folder / "tiny.gguf", metadata={"llama.context_length": 256})
    return convert(source, folder / "converted", progress=False)


def make_pipeline(
    folder: Path, config: CacheEvictionConfig | None, backend: str = "native", **options: object
) -> pagewheel.ContinuousBatchingPipeline:
    properties = {**F32, "attention_backend": backend}
    scheduler = pagewheel.SchedulerConfig()
    for name, value in {"num_kv_blocks": 100, **options}.items():
        setattr(scheduler, name, value)
    if config is not None:
        scheduler.use_cache_eviction = True
        scheduler.cache_eviction_config = config
    return pagewheel.ContinuousBatchingPipeline(folder, scheduler, "CPU", properties)


def tokens(count: int, seed: int = 1) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(4, 260, count)]


def generate(
    pipeline: pagewheel.ContinuousBatchingPipeline, prompt: list[int], count: int
) -> tuple[list[int], list[float]]:
    handle = pipeline.add_request(0, prompt, greedy(count, logprobs=1))
    drain(pipeline)
    output = handle.read_all()[0]
    return output.generated_ids, output.generated_log_probs


def test_below_the_budget_nothing_changes(tiny_folder: Path) -> None:
    """Bit by bit, whatever the policy observes."""
    expected = generate(make_pipeline(tiny_folder, None), tokens(60), 68)
    for policy, options in POLICIES.items():
        pipeline = make_pipeline(tiny_folder, eviction(policy, **options))
        assert generate(pipeline, tokens(60), 68) == expected, policy
    assert generate(make_pipeline(tiny_folder, eviction()), tokens(60), 80)[0][:68] == expected[0]


@pytest.mark.parametrize("granularity", ["block", "token"])
@pytest.mark.parametrize("during_prefill", [False, True])
def test_a_sequence_holds_no_more_than_its_budget(
    tiny_folder: Path, granularity: str, during_prefill: bool
) -> None:
    """Past the model's context (256) and the pool, in blocks held after each step."""
    config = eviction(granularity=granularity, evict_during_prefill=during_prefill)
    pipeline = make_pipeline(tiny_folder, config, num_kv_blocks=10)
    prompt = tokens(1000 if during_prefill else 250)
    handle = pipeline.add_request(0, prompt, greedy(600))
    held = []
    while pipeline.has_non_finished_requests():
        pipeline.step()
        held.append(pipeline.get_metrics().cache_usage / 100 * 10)
    assert max(held) < BUDGET / BLOCK + 1e-3 if during_prefill else max(held[1:]) < 4.001
    assert len(handle.read_all()[0].generated_ids) == 600
    assert pipeline.get_metrics().cache_usage == 0


@pytest.mark.parametrize("policy", ["norm_sum", "snapkv", "streaming"])
def test_a_decision_may_wait_for_tokens_of_the_answer(tiny_folder: Path, policy: str) -> None:
    """Until it falls the text is that without eviction, and then the budget holds."""
    expected = generate(make_pipeline(tiny_folder, None), tokens(200), 20)
    pipeline = make_pipeline(tiny_folder, eviction(policy, decision_delay=20))
    handle = pipeline.add_request(0, tokens(200), greedy(150, logprobs=1))
    blocks = []
    while pipeline.has_non_finished_requests():
        pipeline.step()
        blocks.append(round(pipeline.get_metrics().cache_usage))
    output = handle.read_all()[0]
    assert output.generated_ids[:20] == expected[0]
    np.testing.assert_allclose(output.generated_log_probs[:20], expected[1], atol=1e-4)
    assert blocks[0] == blocks[19] == 7  # 200 tokens and the 20 that follow
    assert len(blocks) == 150
    assert max(blocks[20:]) <= BUDGET // BLOCK


def test_a_decision_that_waits_needs_no_more_than_the_pool(tiny_folder: Path) -> None:
    for shared in (False, True):
        config = eviction(decision_delay=BUDGET)
        pipeline = make_pipeline(
            tiny_folder, config, num_kv_blocks=10, enable_prefix_caching=shared
        )
        prompts = [tokens(250), tokens(250, 2), tokens(220), tokens(250)]
        handles = [pipeline.add_request(i, p, greedy(300)) for i, p in enumerate(prompts)]
        drain(pipeline)
        assert [len(h.read_all()[0].generated_ids) for h in handles] == [300] * 4
        assert pipeline.get_metrics().cache_usage == 0


def test_prefixes_are_shared_and_change_nothing(tiny_folder: Path) -> None:
    """The same prompt twice, and one that goes on differently, equal cold runs."""
    prompt = tokens(200)
    other = prompt[:170] + tokens(60, seed=2)
    for policy, options in POLICIES.items():
        for more in (
            {"granularity": "block"},
            {"evict_during_prefill": True, "granularity": "token"},
            {"decision_delay": 20},
        ):
            # Equal tokens have keys of equal norm, so with single tokens the last bits decide,
            # which depend on the prefill chunks.
            if policy in ("kvcrush", "key_norm"):
                more.pop("granularity", None)
            config = eviction(policy, **options, **more)
            cold = make_pipeline(tiny_folder, config)
            expected = [generate(cold, p, 90)[0] for p in (prompt, other)]
            warm = make_pipeline(tiny_folder, config, enable_prefix_caching=True)
            for p, wanted in ((prompt, 0), (prompt, 0), (other, 1), (prompt, 0)):
                assert generate(warm, p, 90)[0] == expected[wanted], (policy, more)
            assert warm.get_metrics().prefix_cache_hit_tokens > 100
            assert warm.get_metrics().cache_usage == 0


def test_it_combines_with_sampling_preemption_and_cancelling(tiny_folder: Path) -> None:
    random.seed(4)
    for granularity in ("block", "token"):
        config = eviction("norm_sum", granularity=granularity, evict_during_prefill=True)
        pipeline = make_pipeline(tiny_folder, config, num_kv_blocks=17, enable_prefix_caching=True)
        shared = tokens(150)
        handles = []
        for i in range(14):
            n = random.choice([1, 1, 3])
            sampling = {"do_sample": n > 1, "num_return_sequences": n, "rng_seed": 3}
            prompt = shared[: random.choice([10, 100, 150])] + tokens(random.randrange(1, 300), i)
            length = random.randrange(1, 200)
            handles.append((pipeline.add_request(i, prompt, greedy(length, **sampling)), n, length))
        steps = 0
        while pipeline.has_non_finished_requests():
            pipeline.step()
            steps += 1
            if steps % 40 == 0:
                handles[steps // 40 % len(handles)][0].cancel()
        for handle, n, length in handles:
            if handle.get_status() == pagewheel.GenerationStatus.CANCEL:
                continue
            lengths = [len(output.generated_ids) for output in handle.read_all()]
            assert lengths == [length] * n
        assert pipeline.get_metrics().preemptions > 0
        assert pipeline.get_metrics().cache_usage == 0


def test_samples_of_one_prompt_evict_as_if_alone(tiny_folder: Path) -> None:
    """Greedy siblings would be equal; sampled ones equal a run of their own seeds."""
    for granularity in ("block", "token"):
        config = eviction("tova", granularity=granularity, decision_delay=8)
        both = make_pipeline(tiny_folder, config)
        sampled = {"do_sample": True, "top_k": 1}
        handle = both.add_request(0, tokens(200), greedy(200, num_return_sequences=2, **sampled))
        drain(both)
        alone = generate(make_pipeline(tiny_folder, config), tokens(200), 200)[0]
        assert [output.generated_ids for output in handle.read_all()] == [alone, alone]


def test_the_openvino_backend_evicts_as_the_native_one(tiny_folder: Path) -> None:
    """For every policy, cold and with a prefix that the tree has, whose blocks are copied before
    their keys are rotated."""
    prompt, other = tokens(200), tokens(170) + tokens(60, seed=2)
    for policy, options in POLICIES.items():
        config = eviction(policy, **options)
        # Keys that were rotated where they lie compare differently.
        by_keys = policy in ("key_diff", "adaptive_rkv", "hybrid")
        cold = make_pipeline(tiny_folder, config, "openvino" if by_keys else "native")
        expected = [generate(cold, p, 90) for p in (prompt, other)]
        openvino = make_pipeline(tiny_folder, config, "openvino", enable_prefix_caching=True)
        for i in (0, 0, 1, 0):
            ids, log_probs = generate(openvino, (prompt, other)[i], 90)
            assert ids == expected[i][0], policy
            np.testing.assert_allclose(log_probs, expected[i][1], atol=1e-3, err_msg=policy)
        assert openvino.get_metrics().prefix_cache_hit_tokens > 100
        assert openvino.get_metrics().cache_usage == 0


def test_samples_evict_as_if_alone_with_the_openvino_backend(tiny_folder: Path) -> None:
    """Their blocks are shared when the first of them evicts."""
    for granularity in ("block", "token"):
        config = eviction("tova", granularity=granularity)
        sampled = {"do_sample": True, "top_k": 1, "num_return_sequences": 3}
        pipeline = make_pipeline(tiny_folder, config, "openvino")
        handle = pipeline.add_request(0, tokens(200), greedy(200, **sampled))
        drain(pipeline)
        alone = generate(make_pipeline(tiny_folder, config), tokens(200), 200)[0]
        assert [output.generated_ids for output in handle.read_all()] == [alone] * 3


class Wrong(pagewheel.EvictionPolicy):
    def __init__(self, answer: object) -> None:
        super().__init__()
        self.answer = answer

    def drop(self, view: pagewheel.EvictionView, count: int) -> object:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class FailsLater(pagewheel.EvictionPolicy):
    """Streaming, but for a long prompt."""

    def drop(self, view: pagewheel.EvictionView, count: int) -> object:
        if view.positions[-1] > 200:
            raise RuntimeError("too long")
        return range(view.first_unit, view.first_unit + count)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([], "named 0 units; expected 1"),
        ([1, 2], "named 2 units; expected 1"),
        ([0], "named unit 0; allowed: 1 to 2"),
        ([-1], "indices"),
        (None, "not iterable"),
        (KeyError("mine"), "mine"),
    ],
)
def test_a_policy_that_fails_ends_its_request(
    tiny_folder: Path, answer: object, message: str
) -> None:
    pipeline = make_pipeline(tiny_folder, eviction(Wrong(answer)))
    with pytest.raises(RuntimeError, match=message):
        pipeline.generate([tokens(100)], greedy(60))
    assert pipeline.get_metrics().cache_usage == 0
    assert len(generate(pipeline, tokens(100), 20)[0]) == 20


def test_a_policy_that_fails_harms_no_other_request(tiny_folder: Path) -> None:
    pipeline = make_pipeline(tiny_folder, eviction(FailsLater()))
    fine = pipeline.add_request(0, tokens(20), greedy(150))
    fails = pipeline.add_request(1, tokens(220), greedy(10))
    drain(pipeline)
    assert len(fine.read_all()[0].generated_ids) == 150
    assert fails.get_status() == pagewheel.GenerationStatus.CANCEL
    with pytest.raises(RuntimeError, match="too long"):
        fails.read_all()


def test_a_python_policy_sees_what_it_asks_for(tiny_folder: Path) -> None:
    class Watching(pagewheel.EvictionPolicy):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[tuple[int, int, float]] = []

        def observed(self) -> pagewheel.ObservedQueries:
            return pagewheel.ObservedQueries(4, 2)

        def drop(self, view: pagewheel.EvictionView, count: int) -> object:
            assert view.scores.shape == view.positions.shape == (view.num_tokens,)
            assert (np.diff(view.positions) > 0).all()
            keys = view.keys(3, 7)
            assert keys.shape == (4, tiny_llama.KV_HEADS, tiny_llama.HEAD_SIZE)
            # Each query's attention sums to 1 per head; the mass of evicted keys is gone.
            mass = view.scores.sum() / tiny_llama.HEADS
            self.seen.append((view.layer, view.num_tokens, round(float(mass), 3)))
            return [view.first_unit]

    policy = Watching()
    pipeline = make_pipeline(tiny_folder, eviction(policy))
    generate(pipeline, tokens(128), 40)
    # The prompt's last 4 queries, then the last 2 before each decision.
    assert policy.seen == [(0, 128, 4.0), (1, 128, 4.0), (0, 128, 2.0), (1, 128, 2.0)]


def test_a_policy_is_told_whether_more_of_the_prompt_is_to_be_read(tiny_folder: Path) -> None:
    class Watching(pagewheel.EvictionPolicy):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[tuple[int, bool]] = []

        def drop(self, view: pagewheel.EvictionView, count: int) -> object:
            self.seen.append((int(view.positions[-1]) + 1, view.is_prefilling))
            return range(view.first_unit, view.first_unit + count)

    for while_reading in (False, True):
        policy = Watching()
        config = eviction(policy, evict_during_prefill=while_reading)
        generate(make_pipeline(tiny_folder, config), tokens(220), 60)
        assert all(is_prefilling == (processed < 220) for processed, is_prefilling in policy.seen)
        assert {is_prefilling for _, is_prefilling in policy.seen} == {False, while_reading}


def test_a_builtin_policy_in_python_chooses_the_same(tiny_folder: Path) -> None:
    class NormSum(pagewheel.EvictionPolicy):
        def observed(self) -> pagewheel.ObservedQueries:
            return pagewheel.ObservedQueries(8, pagewheel.ObservedQueries.ALL, True)

        def drop(self, view: pagewheel.EvictionView, count: int) -> object:
            value = view.scores / np.maximum(view.lifetimes, 1)
            full = view.num_tokens // view.unit_size * view.unit_size
            units = value[:full].astype(float).reshape(-1, view.unit_size).sum(1)
            units = units[view.first_unit : view.last_unit]
            return view.first_unit + np.argsort(units, kind="stable")[:count]

    for granularity in ("block", "token"):
        config = eviction("norm_sum", granularity=granularity, score_pooling=1)
        built_in = make_pipeline(tiny_folder, config)
        own = make_pipeline(tiny_folder, eviction(NormSum(), granularity=granularity))
        assert generate(own, tokens(150), 150) == generate(built_in, tokens(150), 150)


def test_every_policy_is_in_all_lists() -> None:
    """Those of the docs, the docstring and the command line."""
    docs = next(
        (folder / "docs/eviction.md").read_text(encoding="utf-8")
        for folder in Path(__file__).parents
        if (folder / "docs/eviction.md").exists()
    )
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", docs, re.MULTILINE)
    assert rows == [(each.name, each.help, each.parameters) for each in eviction_policies()]
    docstring = CacheEvictionConfig.__doc__ or ""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    (option,) = [each for each in group.commands["trace"].params if each.name == "policy"]
    for each in eviction_policies():
        assert f"\n  {each.name}: {each.help}" in docstring
        assert re.search(rf"\b{each.name}\b", getattr(option, "help", ""))
        for parameter in filter(None, each.parameters.split(", ")):
            assert hasattr(CacheEvictionConfig, parameter)


def test_what_cannot_be_is_refused_with_the_reason(tiny_folder: Path) -> None:
    with pytest.raises(ValueError, match="max_cache_size is 64; allowed: more than start_size 32"):
        CacheEvictionConfig(32, 32, 64, AggregationMode.SUM)
    with pytest.raises(ValueError, match="recent_size is 40; allowed: multiples of the block size"):
        blocks = CacheEvictionConfig(32, 40, 128, AggregationMode.SUM, granularity="block")
        make_pipeline(tiny_folder, blocks)
    with pytest.raises(ValueError, match=r"the KV cache has 4 blocks; eviction .* needs at least"):
        make_pipeline(tiny_folder, eviction(), num_kv_blocks=4)
    with pytest.raises(ValueError, match="policy is 'best'; allowed: sum"):
        eviction("best")
    with pytest.raises(ValueError, match="granularity is 'row'; allowed: auto, block, token"):
        eviction(granularity="row")
    with pytest.raises(ValueError, match="decision_delay is 129; allowed: up to max_cache_size"):
        eviction(decision_delay=129)
    with pytest.raises(ValueError, match="decision_delay is 1; allowed: 0 with evict_during_pre"):
        eviction(decision_delay=1, evict_during_prefill=True)
    with pytest.raises(ValueError, match="policy wants to see more than 64 queries of a prompt"):
        make_pipeline(tiny_folder, eviction(Watching(prompt=65)))
    with pytest.raises(ValueError, match="policy wants to see queries, which takes the native att"):
        make_pipeline(tiny_folder, eviction(Watching(prompt=8)), "openvino")
    scheduler = pagewheel.SchedulerConfig()
    scheduler.use_cache_eviction = True
    properties = {"attention_backend": "openvino"}
    with pytest.raises(ValueError, match="KV_CACHE_PRECISION is u8, attention_backend is 'openvin"):
        pagewheel.ContinuousBatchingPipeline(tiny_folder, scheduler, "CPU", properties)
    properties["KEY_CACHE_PRECISION"] = "f16"
    with pytest.raises(ValueError, match="KEY_CACHE_PRECISION is set"):
        pagewheel.ContinuousBatchingPipeline(tiny_folder, scheduler, "CPU", properties)


@pytest.mark.parametrize("sizes", [(40, 20, 95), (5, 7, 60), (1, 1, 35), (0, 0, 32)])
def test_the_smallest_budgets_of_tokens_generate_on(
    tiny_folder: Path, sizes: tuple[int, int, int]
) -> None:
    texts = []
    for backend, during_prefill in (("native", False), ("native", True), ("openvino", False)):
        config = CacheEvictionConfig(
            *sizes, AggregationMode.NORM_SUM, apply_rotation=True, granularity="token"
        )
        config.evict_during_prefill = during_prefill
        pipeline = make_pipeline(tiny_folder, config, backend)
        texts.append(generate(pipeline, tokens(200), 150)[0])
        assert len(texts[-1]) == 150
    assert texts[0] == texts[2]


def test_a_budget_without_a_block_to_evict_is_refused(tiny_folder: Path) -> None:
    small = CacheEvictionConfig(5, 7, 43, AggregationMode.SUM, granularity="token")
    message = "max_cache_size is 43; allowed: start_size 5 plus recent_size 7 plus a block of 32"
    with pytest.raises(ValueError, match=message):
        make_pipeline(tiny_folder, small)


def test_rotation_needs_the_models_frequencies(tiny_folder: Path, tmp_path: Path) -> None:
    for file in tiny_folder.iterdir():
        if file.name not in ("pagewheel.json", "config.json"):
            (tmp_path / file.name).symlink_to(file)
    with pytest.raises(ValueError, match="apply_rotation is true, but the model folder does not"):
        make_pipeline(tmp_path, eviction())
    # As another tool's folder: derived from config.json, to the same text.
    (tmp_path / "config.json").symlink_to(tiny_folder / "config.json")
    derived = generate(make_pipeline(tmp_path, eviction()), tokens(150), 100)
    assert derived == generate(make_pipeline(tiny_folder, eviction()), tokens(150), 100)
