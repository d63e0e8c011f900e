"""What scenarios ask of an engine, and which figures follow from its times."""

from __future__ import annotations

import pytest
from fake_engine import even_steps

from benchmarks.peers.engine import Generated, common_prefix
from benchmarks.prompts import PromptSource, real_text
from benchmarks.scenarios import (
    BATCH,
    DECODE,
    LONG,
    PREFILL,
    SCENARIOS,
    SHARED_PREFIX,
    WarmScenario,
)


def test_the_text_is_long_enough_for_every_scenario() -> None:
    words = real_text(None).split()
    assert len(words) > 20_000


def test_prompts_have_their_lengths_and_do_not_overlap() -> None:
    assert PromptSource(range(10)).cut([3, 4]) == [[0, 1, 2], [3, 4, 5, 6]]


def test_a_text_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="need 11 tokens, the text has 10"):
        PromptSource(range(10)).cut([5, 6])


def test_the_digest_tells_prompts_apart() -> None:
    assert PromptSource([1, 23]).digest() != PromptSource([12, 3]).digest()


def test_metrics_follow_from_times() -> None:
    decode = DECODE.sample([], [Generated(0.5, 1.5)])
    assert decode == {"decode": 255.0, "first_token": 500.0}
    sample = BATCH.sample([], [Generated(0.5, 4.0)] * len(BATCH.SIZES))
    assert sample["batch_32"] == 32 * 128 / 4.0
    prefill = PREFILL.sample([], [Generated(2.0, 2.0)] * 3)
    assert prefill == {"prefill_512": 256.0, "prefill_2048": 1024.0, "prefill_6144": 3072.0}


def test_a_long_generation_is_measured_by_the_thousand() -> None:
    # The first thousand take 1 s, the second 2 s, and so on.
    times = [5.0]
    while len(times) < LONG.NEW_TOKENS:
        times.append(times[-1] + (len(times) // 1000 + 1) / 1000)
    sample = LONG.sample([], [Generated(times[0], times[-1], times)])
    for part in range(6):
        assert sample[f"long_{part + 1}000"] == pytest.approx(1000 / (part + 1))
    assert sample["long"] == pytest.approx(5999 / 20.999)
    with pytest.raises(ValueError, match="5999 steps made 6000 tokens"):
        LONG.sample([], [Generated(times[0], times[-1], times[1:])])


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_names_metrics_that_its_samples_hold(name: str) -> None:
    scenario = SCENARIOS[name]
    assert scenario.metrics
    if isinstance(scenario, WarmScenario):
        tasks = scenario.tasks(PromptSource(range(40_000)))
        sample = scenario.sample(tasks, [even_steps(task.new_tokens, 1.0, 2.0) for task in tasks])
        assert list(sample) == [metric.key for metric in scenario.metrics]


def test_warming_up_has_the_shapes_of_the_measurement() -> None:
    source = PromptSource(range(40_000))
    warm, measured = BATCH.warm_up(source), BATCH.tasks(source)
    assert [task.prompts for task in warm] == [task.prompts for task in measured]
    assert warm[0].new_tokens < measured[0].new_tokens


@pytest.mark.parametrize(
    ("prompts", "shared"),
    [
        ([[1, 2, 3, 4], [1, 2, 9], [1, 2, 3]], 2),
        ([[1, 2, 3], [1, 2, 3]], 2),  # the last token is everybody's own to compute
        ([[1], [1]], 0),
        ([[1, 2, 3]], 0),
        ([[5, 1], [6, 1]], 0),
    ],
)
def test_a_shared_prefix_leaves_each_prompt_a_token(prompts: list[list[int]], shared: int) -> None:
    assert common_prefix(prompts) == shared


def test_samples_of_a_shared_prefix_share_it_and_nothing_with_others() -> None:
    source = PromptSource(range(40_000))
    (first,), (second,) = SHARED_PREFIX.tasks(source), SHARED_PREFIX.tasks(source)
    assert common_prefix(first.prompts) == SHARED_PREFIX.SHARED_TOKENS
    assert common_prefix([first.prompts[0], second.prompts[0]]) == 0
