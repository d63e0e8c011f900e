"""Callables as logits processors: what they get, and what becomes of what they do with it."""

from __future__ import annotations

import gc
import signal
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from conftest import batching_pipeline, drain, greedy

import pagewheel

Tokens = npt.NDArray[np.int64]
Logits = npt.NDArray[np.float32]
PROMPT = [10, 20, 30]


@pytest.fixture(scope="module")
def tiny(tiny_folder: Path) -> pagewheel.ContinuousBatchingPipeline:
    return batching_pipeline(tiny_folder)


def generated(
    pipeline: pagewheel.ContinuousBatchingPipeline, *processors: Any, **options: Any
) -> list[int]:
    config = greedy(6, logits_processors=list(processors), **options)
    return pipeline.generate([PROMPT], config)[0].m_generation_ids[0]


def test_it_gets_all_tokens_and_changes_logits_in_place(
    tiny: pagewheel.ContinuousBatchingPipeline,
) -> None:
    seen: list[list[int]] = []

    def force(token_ids: Tokens, logits: Logits) -> None:
        assert token_ids.dtype == np.int64 and logits.dtype == np.float32
        assert logits.ndim == 1 and logits.flags.writeable
        seen.append(token_ids.tolist())
        logits[:] = -np.inf
        logits[40 + len(token_ids)] = 0

    assert generated(tiny, force) == [43, 44, 45, 46, 47, 48]
    assert seen == [[*PROMPT, *range(43, 43 + i)] for i in range(6)]


def test_torch_and_dlpack_share_its_memory(tiny: pagewheel.ContinuousBatchingPipeline) -> None:
    def by_torch(token_ids: Tokens, logits: Logits) -> None:
        torch.from_numpy(logits)[:] = -1.0
        torch.from_dlpack(logits)[100] = 5.0

    assert generated(tiny, by_torch) == [100] * 6


@pytest.mark.parametrize("kind", ["array", "double", "list", "tensor", "same"])
def test_what_it_returns_is_taken_instead(
    tiny: pagewheel.ContinuousBatchingPipeline, kind: str
) -> None:
    def answer(token_ids: Tokens, logits: Logits) -> object:
        own = np.full(logits.shape, -1.0)
        own[50] = 1.0
        if kind == "same":
            logits[:] = own
            return logits
        forms = {
            "array": own.astype(np.float32),
            "double": own,
            "list": own.tolist(),
            "tensor": torch.from_numpy(own),
        }
        return forms[kind]

    assert generated(tiny, answer) == [50] * 6


def test_they_run_in_their_order_after_the_configs_own(
    tiny: pagewheel.ContinuousBatchingPipeline,
) -> None:
    def first(token_ids: Tokens, logits: Logits) -> None:
        assert logits[60] == -np.inf
        logits[60] = 1000.0

    def second(token_ids: Tokens, logits: Logits) -> None:
        assert logits[60] == 1000.0
        logits[61] = 2000.0

    assert generated(tiny, first, second, suppress_tokens=[60]) == [61] * 6


def test_what_it_keeps_stays_as_it_was_and_writing_to_it_changes_nothing(
    tiny: pagewheel.ContinuousBatchingPipeline,
) -> None:
    kept: list[tuple[Tokens, Logits, Logits]] = []
    views: list[Any] = []

    def keep(token_ids: Tokens, logits: Logits) -> None:
        for _, earlier, _ in kept[:-1]:
            earlier[:] = 1e30  # which no later token may feel
        for view in views:
            view[:] = np.nan
        kept.append((token_ids, logits, logits.copy()))
        views.append(torch.from_numpy(logits)[5:9] if len(kept) % 2 else logits[3:4])

    free = generated(tiny)
    config = greedy(6, logits_processors=[keep])
    pipelines = [tiny]
    assert pipelines[0].generate([PROMPT], config)[0].m_generation_ids[0] == free
    del config, pipelines
    gc.collect()
    assert generated(tiny) == free
    assert kept[5][0].tolist() == [*PROMPT, *free[:5]]
    np.testing.assert_array_equal(kept[5][1], kept[5][2])
    for _, logits, _ in kept:
        logits[:] = 7.0
    assert generated(tiny) == free


def test_what_it_keeps_outlives_the_pipeline(tiny_folder: Path) -> None:
    kept: list[Logits] = []
    pipeline = batching_pipeline(tiny_folder)
    generated(pipeline, lambda token_ids, logits: kept.append(logits[::2]))
    del pipeline
    gc.collect()
    for logits in kept:
        logits += 1
        assert np.isfinite(logits).all()


def test_what_it_raises_reaches_the_caller_and_ends_no_other_request(
    tiny: pagewheel.ContinuousBatchingPipeline,
) -> None:
    def fail(token_ids: Tokens, logits: Logits) -> None:
        if len(token_ids) == 5:
            raise LookupError("no such thing")

    free = generated(tiny)
    other = tiny.add_request(0, PROMPT, greedy(6))
    failing = tiny.add_request(1, PROMPT, greedy(6, logits_processors=[fail]))
    drain(tiny)
    assert other.read_all()[0].generated_ids == free
    with pytest.raises(RuntimeError, match="processor failed: LookupError: no such thing"):
        failing.read_all()
    with pytest.raises(RuntimeError, match="LookupError: no such thing"):
        generated(tiny, fail)
    with pytest.raises(RuntimeError, match="LookupError: no such thing"):
        generated(tiny, fail, num_beams=2)
    assert generated(tiny) == free


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda logits: logits[:-1], r"an array of \d+ logits, got shape \(\d+,\)"),
        (lambda logits: logits[None], r"got shape \(1, \d+\)"),
        (lambda logits: True, r"got shape \(\)"),
        (lambda logits: "text", "got <class 'str'>"),
        (lambda logits: logits * np.nan, "left a logit of -?nan for token 0"),
        (lambda logits: logits + np.inf, "left a logit of inf for token 0"),
        (lambda logits: logits - np.inf, "no token can be chosen"),
    ],
)
def test_nonsense_is_refused_with_the_reason(
    tiny: pagewheel.ContinuousBatchingPipeline, answer: Any, message: str
) -> None:
    with pytest.raises(RuntimeError, match=message):
        generated(tiny, lambda token_ids, logits: answer(logits))


def test_a_slow_one_only_delays_the_step(tiny_folder: Path) -> None:
    pipeline = batching_pipeline(tiny_folder)
    free = generated(pipeline)
    begun, may_go_on = threading.Event(), threading.Event()
    waited: list[bool] = []

    def slow_processor(token_ids: Tokens, logits: Logits) -> None:
        if len(token_ids) == 4:
            begun.set()
            waited.append(may_go_on.wait(30))

    pipeline.start()
    slow = pipeline.add_request(0, PROMPT, greedy(6, logits_processors=[slow_processor]))
    assert begun.wait(10)
    other = pipeline.add_request(1, PROMPT, greedy(6))
    other.can_read()
    pipeline.get_statistics()
    may_go_on.set()  # who does not need the step has not waited for it
    assert [slow.read_all()[0].generated_ids, other.read_all()[0].generated_ids] == [free, free]
    assert waited == [True]
    pipeline.stop()


@pytest.mark.parametrize("num_beams", [1, 3])
def test_it_sees_of_each_sequence_its_own_tokens(
    tiny: pagewheel.ContinuousBatchingPipeline, num_beams: int
) -> None:
    seen: set[tuple[int, ...]] = set()
    how = {"num_beams": 3} if num_beams > 1 else {"do_sample": True, "rng_seed": 1}
    config = greedy(
        5,
        num_return_sequences=3,
        logits_processors=[lambda token_ids, logits: seen.add(tuple(token_ids))],
        **how,
    )
    result = tiny.generate([PROMPT], config)[0]
    for tokens in result.m_generation_ids:
        for end in range(5):
            assert (*PROMPT, *tokens[:end]) in seen


def test_beams_show_log_probabilities(tiny: pagewheel.ContinuousBatchingPipeline) -> None:
    sums: list[float] = []

    def look(token_ids: Tokens, logits: Logits) -> None:
        sums.append(float(np.exp(logits.astype(np.float64)).sum()))

    free = generated(tiny, num_beams=3)
    assert generated(tiny, look, num_beams=3) == free
    np.testing.assert_allclose(sums, 1, atol=1e-4)


class Counting:
    """Forces token 70 + the number of its calls."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def fork(self) -> Counting:
        return Counting(self.count)

    def __call__(self, token_ids: Tokens, logits: Logits) -> None:
        logits[:] = -np.inf
        logits[70 + self.count] = 0
        self.count += 1


@pytest.mark.parametrize("how", [{"do_sample": True}, {"num_beams": 3}])
def test_one_that_forks_has_a_state_for_each_sequence(
    tiny: pagewheel.ContinuousBatchingPipeline, how: dict[str, Any]
) -> None:
    counting = Counting()
    count = 2 if "do_sample" in how else 1
    config = greedy(4, num_return_sequences=count, logits_processors=[counting], **how)
    for _ in range(2):
        result = tiny.generate([PROMPT], config)[0]
        assert result.m_generation_ids == [[70, 71, 72, 73]] * count
    assert counting.count == 0


def test_ctrl_c_in_it_reaches_the_program_and_costs_no_request(
    tiny: pagewheel.ContinuousBatchingPipeline,
) -> None:
    calls: list[int] = []

    def interrupted(token_ids: Tokens, logits: Logits) -> None:
        logits[:] += 1.0  # once for each token, whatever happens
        calls.append(len(token_ids))
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)

    free = generated(tiny)
    handle = tiny.add_request(0, PROMPT, greedy(6, logits_processors=[interrupted]))
    with pytest.raises(KeyboardInterrupt):
        drain(tiny)
    drain(tiny)
    assert calls.count(4) == 2
    assert handle.read_all()[0].generated_ids == free


def test_prompts_log_probabilities_are_the_models_own(
    tiny: pagewheel.ContinuousBatchingPipeline,
) -> None:
    calls: list[int] = []

    def halve(token_ids: Tokens, logits: Logits) -> None:
        calls.append(len(token_ids))
        logits /= 2

    handles = [
        tiny.add_request(i, PROMPT, greedy(2, echo=True, logprobs=1, logits_processors=given))
        for i, given in enumerate([[], [halve]])
    ]
    drain(tiny)
    plain, halved = [handle.read_all()[0] for handle in handles]
    assert calls == [3, 4]
    assert plain.prompt_log_probs == halved.prompt_log_probs
    assert plain.generated_log_probs != halved.generated_log_probs


def test_a_config_gives_its_callables_back_and_lets_them_go(
    tiny: pagewheel.ContinuousBatchingPipeline,
) -> None:
    def nothing(token_ids: Tokens, logits: Logits) -> None:
        pass

    config = pagewheel.GenerationConfig(max_new_tokens=2, logits_processors=[nothing])
    assert config.logits_processors == [nothing]
    config.logits_processors = [nothing, nothing]
    assert config.logits_processors == [nothing, nothing]
    tiny.generate([PROMPT], config)
    alive = weakref.ref(nothing)
    config.update_generation_config(logits_processors=None)
    assert config.logits_processors == []
    del nothing
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("given", [lambda token_ids, logits: None, [1], "text", 5])
def test_what_is_no_list_of_callables_is_refused(given: object) -> None:
    config = pagewheel.GenerationConfig()
    with pytest.raises(TypeError, match="logits_processors must"):
        pagewheel.GenerationConfig(logits_processors=given)
    with pytest.raises(TypeError, match="logits_processors must"):
        config.logits_processors = given
    with pytest.raises(TypeError, match="logits_processors must"):
        config.update_generation_config(max_new_tokens=3, logits_processors=given)
    assert config.max_new_tokens == pagewheel.GenerationConfig().max_new_tokens
