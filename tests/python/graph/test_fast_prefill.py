"""Fast prefill leaves out work and changes no token and, in f32, no log-probability by 1e-4.

Every pipeline computes at most 33 tokens a step and has room for few sequences, so that prompts
come in prefill chunks, beside decodes of others, from the prefix cache and after preemption.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import F32, batching_pipeline, drain, greedy
from convert import tiny_models, tiny_yoco
from fast_prefill_pairs import (
    BACKENDS,
    Batching,
    Pair,
    Request,
    log_probs,
    make_pair,
    same_answers,
    same_outputs,
    submit,
)
from fuzzing import TIMES

import pagewheel
from pagewheel._pagewheel import describe_operations
from pagewheel.convert import convert

STEP = 33  # tokens
NAMES = [*tiny_models.ARCHITECTURES, *(f"yoco-{name}" for name in tiny_yoco.PATTERNS)]


@pytest.fixture(scope="module", autouse=True)
def _one_thread_for_the_references() -> Iterator[None]:
    """Their matrices are too small for more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@dataclass(frozen=True)
class Model:
    """`logits(ids, backend)` are the reference's, f32 [len(ids), vocabulary]."""

    folder: Path
    logits: Callable[[list[int], str], Any]
    keeps_states: bool = False
    attends: bool = True
    has_large_states: bool = False


def make_model(name: str, folder: Path) -> Model:
    kind, _, pattern = name.partition("yoco-")
    if kind:
        model = tiny_models.make(name)
        source = tiny_models.save(model, folder / "source")
    else:
        yoco = tiny_yoco.make(pattern)
        source = tiny_yoco.save(yoco, folder / "source")

    def logits(ids: list[int], backend: str) -> Any:
        if not kind:
            return tiny_yoco.logits(yoco, ids)
        with ExitStack() as stack:
            if backend == "openvino":  # whose attention has no soft cap
                stack.enter_context(tiny_models.without_attention_caps(model))
            return tiny_models.logits(model, ids)

    keeps_states = bool(kind) and model.config.model_type in tiny_models.WITH_STATES
    attends = not (bool(kind) and model.config.model_type == "mamba2")
    converted = convert(source, folder / "model", progress=False)
    mamba = ("granitemoehybrid", "mamba2", "falcon_h1", "nemotron_h")
    large = bool(kind) and model.config.model_type in mamba
    return Model(converted, logits, keeps_states, attends, large)


@pytest.fixture(scope="module", params=NAMES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return make_model(request.param, tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest, model: Model) -> str:
    if request.param == "openvino" and model.keeps_states:
        pytest.skip("refused by name: test_states.py")
    return str(request.param)


@pytest.fixture(scope="module")
def pair(model: Model, backend: str) -> Pair:
    # A state takes a block, too.
    blocks = 72 if model.keeps_states else 36
    if not model.attends:  # 256 blocks for each of 16 states
        blocks += 16 * 256
    limits = {"max_num_batched_tokens": STEP, "num_kv_blocks": blocks}
    return make_pair(model.folder, backend, enable_prefix_caching=True, **limits)


def ids(count: int, seed: int) -> list[int]:
    return tiny_models.random_ids(count, seed)


@pytest.mark.parametrize("echo", [False, True])
def test_a_prompt_alone_whole_and_in_prefill_chunks(pair: Pair, echo: bool) -> None:
    """Without echo, only a prompt's last step has a row that anyone reads."""
    for count in (1, 2, STEP, STEP + 1, 3 * STEP + 7):
        prompt = ids(count, seed=2 * count + echo)
        (output,) = same_answers(pair, (prompt, log_probs(3, echo=echo)))
        assert len(output.prompt_log_probs) == (count - 1 if echo else 0)


def test_a_prompt_in_prefill_chunks_gives_the_tokens_of_the_reference(
    pair: Pair, model: Model, backend: str
) -> None:
    prompt = ids(3 * STEP, seed=1)
    (output,) = same_answers(pair, (prompt, log_probs(6)))
    generated = list(output.generated_ids)
    logits = model.logits(prompt + generated, backend)[len(prompt) - 1 : -1]
    # Where every token is the reference's best after the same tokens, both went one way.
    assert generated == logits.argmax(-1).tolist()
    expected = torch.log_softmax(torch.from_numpy(logits).double(), -1).max(-1).values
    np.testing.assert_allclose(output.generated_log_probs, expected, atol=2e-4)


def test_requests_of_one_batch_that_ask_for_different_rows(pair: Pair) -> None:
    lengths = [(40, False, 2), (1, False, 5), (7, True, 4), (20, False, 1), (3, True, 6)]
    requests = [
        (ids(count, seed=1000 + count), log_probs(new, echo=echo)) for count, echo, new in lengths
    ]
    same_answers(pair, *requests)


@pytest.mark.parametrize("chunk", [1, 7])
def test_small_prefill_chunks_beside_decodes(pair: Pair, model: Model, chunk: int) -> None:
    """Samples that decode leave `chunk` tokens of each step to the prompts."""
    if model.has_large_states:
        pytest.skip("the pool does not hold so many states at once")
    decodes = {"do_sample": True, "top_k": 1, "num_return_sequences": STEP - chunk}

    def run(pipeline: Batching) -> list[pagewheel.GenerationHandle]:
        handles = submit(pipeline, [(ids(1, seed=chunk), log_probs(24, **decodes))])
        pipeline.step()
        for number, echo in ((1, False), (2, True)):
            prompt = ids(chunk * 5, seed=100 * chunk + number)
            handles.append(pipeline.add_request(number, prompt, log_probs(1, echo=echo)))
            for _ in range(4):
                pipeline.step()
                assert not handles[-1].can_read()
            pipeline.step()
            assert handles[-1].can_read()
        drain(pipeline)
        return handles

    same_outputs(pair, run)


def test_a_prefix_that_leaves_one_token(pair: Pair, model: Model) -> None:
    prompt = ids(70, seed=5)
    hits = []

    def run(pipeline: Batching) -> list[pagewheel.GenerationHandle]:
        handles = []
        for number in range(2):
            handles.append(pipeline.add_request(number, prompt, log_probs(4)))
            drain(pipeline)
        hits.append(handles[1].get_perf_metrics().get_num_prefix_cache_hit_tokens())
        return handles

    cold, warm = same_outputs(pair, run)
    # The state before a prompt's last token is not kept.
    if not model.has_large_states:  # where one in between may be kept
        assert hits == ([54, 54] if model.keeps_states else [69, 69])
    assert warm.generated_ids == cold.generated_ids


def test_samples_and_beams(pair: Pair) -> None:
    sampled = {"do_sample": True, "num_return_sequences": 3, "rng_seed": 11}
    beams = pagewheel.GenerationConfig(
        max_new_tokens=6, ignore_eos=True, num_beams=3, num_return_sequences=2
    )
    requests = [(ids(45, seed=6), log_probs(5, **sampled)), (ids(50, seed=7), beams)]
    assert len(same_answers(pair, *requests)) == 5


def test_after_preemption(pair: Pair, model: Model) -> None:
    """Samples of a block and then of two are more than there is room for."""
    before = [pipeline.get_metrics().preemptions for pipeline in (pair.fast, pair.slow)]
    count = 32 if model.keeps_states else 20
    sampled = {"do_sample": True, "num_return_sequences": count, "rng_seed": 3}
    requests = [
        (ids(30, seed=8), log_probs(6, **sampled)),
        (ids(40, seed=9), log_probs(3, echo=True)),
    ]
    same_answers(pair, *requests)
    after = [pipeline.get_metrics().preemptions for pipeline in (pair.fast, pair.slow)]
    assert after[0] > before[0] and after[1] > before[1]


def random_requests(rng: random.Random) -> list[tuple[int, Request]]:
    """Each with the number of steps that are made before it comes."""
    found = []
    for _ in range(rng.randrange(2, 8)):
        prompt = ids(rng.choice([1, 2, rng.randrange(1, 70)]), rng.randrange(2**31))
        config = log_probs(rng.randrange(1, 9), echo=rng.random() < 0.3)
        found.append((rng.randrange(4), (prompt, config)))
    return found


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(6 * TIMES))
def test_random_sharing_and_random_batches(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    yoco = tiny_yoco.make_at_random(rng)
    folder = convert(tiny_yoco.save(yoco, tmp_path / "source"), tmp_path / "model", progress=False)
    model = Model(folder, lambda ids, _backend: tiny_yoco.logits(yoco, ids))
    for backend in BACKENDS:
        limits = {
            "max_num_batched_tokens": rng.choice([1, 7, 33, 200]),
            "num_kv_blocks": rng.choice([8, 100]),
            "enable_prefix_caching": rng.random() < 0.5,
        }
        pair = make_pair(model.folder, backend, **limits)
        for _ in range(2):
            requests = random_requests(rng)

            def run(
                pipeline: Batching, requests: list[tuple[int, Request]] = requests
            ) -> list[pagewheel.GenerationHandle]:
                handles = []
                for number, (steps, request) in enumerate(requests):
                    for _ in range(steps):
                        pipeline.step()
                    handles.append(pipeline.add_request(number, *request))
                drain(pipeline)
                return handles

            outputs = same_outputs(pair, run)
            for (_, (prompt, _)), output in zip(requests, outputs, strict=True):
                generated = list(output.generated_ids)
                expected = model.logits(prompt + generated, backend)[len(prompt) - 1 : -1]
                assert generated == expected.argmax(-1).tolist()


class Recorded(pagewheel.EvictionPolicy):
    """A policy of pagewheel's, and what it saw and chose."""

    def __init__(self, config: pagewheel.CacheEvictionConfig, sees_queries: bool) -> None:
        super().__init__()
        self._policy = pagewheel.make_policy(config)
        self._sees_queries = sees_queries
        self.seen: list[np.ndarray] = []
        self.queries: list[np.ndarray] = []
        self.dropped: list[tuple[int, list[int]]] = []

    def observed(self) -> pagewheel.ObservedQueries:
        asked = self._policy.observed()
        asked.queries = self._sees_queries
        return asked

    def drop(self, view: pagewheel.EvictionView, count: int) -> list[int]:
        units = sorted(self._policy.drop(view, count))
        self.seen.append(np.array(view.scores))
        if view.num_queries:
            self.queries.append(view.mean_query)
        self.dropped.append((view.layer, units))
        return units


def generate_with_eviction(
    folder: Path, backend: str, fast: bool, policy: str, during_prefill: bool
) -> tuple[Recorded, pagewheel.GenerationOutput]:
    config = pagewheel.CacheEvictionConfig(
        32,
        32,
        128,
        pagewheel.AggregationMode.NORM_SUM,
        policy=policy,
        apply_rotation=True,
        position_limit=1,
        evict_during_prefill=during_prefill,
    )
    recorded = Recorded(config, sees_queries=backend == "native")
    config.policy = recorded
    pipeline = batching_pipeline(
        folder,
        {**F32, "attention_backend": backend, "fast_prefill": fast},
        num_kv_blocks=40,
        max_num_batched_tokens=50,
        use_cache_eviction=True,
        cache_eviction_config=config,
    )
    handle = pipeline.add_request(0, ids(230, seed=4), log_probs(70))
    drain(pipeline)
    return recorded, handle.read_all()[0]


@pytest.fixture(scope="module", params=["llama-even", "yoco-half"])
def evicting_folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return make_model(request.param, tmp_path_factory.mktemp("model")).folder


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("policy", "during_prefill"),
    [("norm_sum", False), ("sum", True), ("snapkv", False), ("tova", True), ("key_diff", False)],
)
def test_eviction_sees_and_keeps_the_same(
    evicting_folder: Path, backend: str, policy: str, during_prefill: bool
) -> None:
    """Also of the last layer with a cache, whose queries policies observe to the prompt's end."""
    (fast, got), (slow, expected) = (
        generate_with_eviction(evicting_folder, backend, each, policy, during_prefill)
        for each in (True, False)
    )
    assert got.generated_ids == expected.generated_ids
    np.testing.assert_allclose(got.generated_log_probs, expected.generated_log_probs, atol=1e-4)
    assert len(fast.dropped) > 4
    assert fast.dropped == slow.dropped
    for left, right in zip(fast.seen, slow.seen, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)
    told = backend == "native" and policy != "key_diff"
    assert len(fast.queries) == (len(fast.dropped) if told else 0)
    for left, right in zip(fast.queries, slow.queries, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("reader", "asked"), [("full_attention", {0, 1}), ("sliding_attention", {1})]
)
def test_the_widest_sliding_window_on_a_cache_says_what_no_one_sees(
    tmp_path: Path, backend: str, reader: str, asked: set[int]
) -> None:
    """Layer 0 alone has a sliding window; of what layer 2 reads there, the policy decides."""
    changes = {
        "cache_of_layer": [None, None, 0],
        "sliding_window": 40,
        "layer_types": ["sliding_attention", "full_attention", reader],
    }
    yoco = tiny_yoco.make_of([None, None, 0], changes, seed=12)
    folder = convert(tiny_yoco.save(yoco, tmp_path / "source"), tmp_path / "model", progress=False)
    for fast in (True, False):
        recorded, _ = generate_with_eviction(folder, backend, fast, "norm_sum", False)
        assert {layer for layer, _ in recorded.dropped} == asked


def test_the_layers_from_the_last_owned_cache_on_are_trimmed(tmp_path: Path) -> None:
    for name, (owners, _) in tiny_yoco.PATTERNS.items():
        folder = make_model(f"yoco-{name}", tmp_path / name).folder
        last = max(layer for layer, owner in enumerate(owners) if owner is None)
        count = len(owners) - last
        found = {
            backend: describe_operations(folder, "CPU", {"attention_backend": backend}).fast_prefill
            for backend in BACKENDS
        }
        native, openvino = (found[backend] for backend in BACKENDS)
        assert (native.layers, native.attention_nodes) == (count, count), name
        # The openvino backend's attention writes keys for its queries alone.
        assert (openvino.layers, openvino.attention_nodes) == (count, count - 1), name
        assert 0 < openvino.work_skipped < native.work_skipped < 1, name
        off = describe_operations(folder, "CPU", {"fast_prefill": False}).fast_prefill
        assert (off.layers, off.work_skipped) == (0, 0)


def test_the_property_is_true_or_false(tiny_folder: Path) -> None:
    prompt, config = "hello", greedy(4)
    texts = [
        pagewheel.LLMPipeline(tiny_folder, "CPU", fast_prefill=fast, **F32).generate(prompt, config)
        for fast in (True, False)
    ]
    assert texts[0] == texts[1]
    with pytest.raises(ValueError, match="fast_prefill"):
        pagewheel.LLMPipeline(tiny_folder, "CPU", fast_prefill="perhaps")
